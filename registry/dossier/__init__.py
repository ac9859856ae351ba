"""The dossier of a version, assembled from a registry: every generated cell cites a blob or a line of a log.

`VersionRecord` is what is read, a generator makes the tables of a field, `assemble` follows a profile, and
`write_dossier` puts document, page and attachments into a directory. Profiles are in `profiles/`.

Start with `assemble.py`. The dossier in words: docs/dossier.md.
Must not import: anything that writes to a registry.
"""
