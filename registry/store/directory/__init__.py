"""A registry in a local directory, written by any number of processes at once.

`DirectoryRegistry` is the registry, `DirectoryPush` takes blobs in, `PartialDownload` lets a pull continue after a kill.
`scratch` has locks and temporary files.

Start with `directory.py`.
"""
