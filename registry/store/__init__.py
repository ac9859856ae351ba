"""Stores of a registry: one contract, and a module for each kind of store.

`RegistryReader` is a registry to read, `RegistryStore` one to write. A store can be written if its objects can be compared
and swapped: a local directory, buckets, fsspec, memory, the Hub. Web servers and archives are read only. Every store
passes the tests in `tests/conformance`; `open.py` picks the store for a URL.

Start with `protocol.py`, then `directory.py`. Must not import: anything of `registry` except `support`.
"""
