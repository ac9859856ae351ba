"""Push, pull, mirror and archive: one exchange of versions and their bytes.

`merge` compares two logs, `exchange` moves blobs in parallel, then the manifest, then the index. `mirror` copies a whole
registry, `archive` writes one file, `export_files` writes a version as plain files.

Start with `exchange.py`, then `merge.py`. The rule for two logs: docs/format.md.
Must not import: `publish`, `maintain`, `server`.
"""
