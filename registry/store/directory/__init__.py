"""A registry in a local directory, written by any number of processes at once.

`DirectoryTree` reads files and swaps them, `DirectoryRegistry` is the registry, `DirectoryPush` takes blobs in,
`PartialDownload` lets a pull continue after a kill. `scratch` holds locks and temporary files.

Start with `directory.py`.
"""
