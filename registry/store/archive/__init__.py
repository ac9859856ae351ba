"""A registry in one file, read-only: a zip whose entries are not compressed.

`ArchiveRegistry` reads the tree, `stored_zip` reads the zip strictly. Archives are written by
`registry.transfer.archive`.

Start with `archive_reader.py`.
"""
