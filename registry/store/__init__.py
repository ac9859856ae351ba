"""Stores of a registry: one contract, a folder or module for each kind of store.

`RegistryReader` is a place to read, `RegistryStore` one to write, `protocol.py` states what each must
guarantee. `DirectoryRegistry` is a local directory, `RegistryStore` a registry over any store of objects
that can compare and swap (buckets, fsspec, memory), `HubRegistry` a repository on the Hugging Face Hub,
`HttpRegistry` and `ArchiveRegistry` are read only. `tests/conformance` is the test suite that every store passes;
`open.py` picks the store for a URL.

Start with `protocol.py`, then `directory/directory.py` and `object_store.py`.
Must not import: anything of `registry` except `support`.
"""
