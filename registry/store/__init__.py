"""Stores of a registry: one contract, a module for each kind of store.

`RegistryReader` is a place to read, `RegistryStore` one to write, in any store of objects that can compare and swap
(a local directory, buckets, fsspec, memory, the Hub); web servers and archives are read only. `tests/conformance` is the
test suite that every store passes; `open.py` picks the store for a URL.

Start with `protocol.py`, then `directory.py`. Must not import: anything of `registry` except `support`.
"""
