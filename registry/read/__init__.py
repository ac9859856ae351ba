"""Read other registries: by name, with tracking copies of them, and one version as it was published.

`Remotes` are registries with names, `TrackingCopies` keep what was last read of each (for `--offline` and
conditional requests), `PublishedVersion` is a manifest with its log.

Start with `remotes.py`.
Must not import: `gates` or anything above it.
"""
