"""Push, pull and mirror: all of them exchange versions and their bytes.

`exchange` compares two logs, and copies the missing blobs, then the index file. `mirror` copies a whole registry.
`export_files` writes a version as plain files.

Start with `exchange.py`. docs/format.md has the rule for merging two logs.
Must not import: `publish`, `maintain`, `server`.
"""
