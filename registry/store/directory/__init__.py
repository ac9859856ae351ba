"""A registry in a local directory, written by any number of processes at once.

`DirectoryRegistry` reads and swaps, `DirectoryPush` takes blobs in, `PartialDownload` lets a pull continue
after a kill. `scratch` holds locks and temporary files, `direct_io` writes large files past the page cache.

Start with `directory.py`.
"""
