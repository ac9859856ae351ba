"""A registry in a local directory, written by any number of processes at once.

`DirectoryRegistry` is the registry, `DirectoryPush` takes blobs in, `incoming` has them until then.
`scratch` has locks and temporary files.

Start with `directory.py`.
"""
