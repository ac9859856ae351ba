"""Read other registries: by name, with copies of their documents, and versions as they were published.

`Remotes` are registries with names, a `RemoteReader` checks what it reads and keeps it in a `RemoteCopy`, a `Release` is
a version with its manifest.

Start with `remotes.py`.
Must not import: `gates` or anything above it.
"""
