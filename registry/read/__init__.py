"""Read other registries: by name, with tracking copies of them, and versions as they were published.

`Remotes` are registries with names, `TrackingCopies` keep what was last read of each (for `--offline` and
conditional requests), `PublishedVersion` is a manifest with its log.

Start with `remotes.py`.
Must not import: `gates` or anything above it.
"""
