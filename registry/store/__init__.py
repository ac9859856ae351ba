"""Stores of a registry: one contract, and a module for each kind of store.

A `RegistryReader` can be read. A `RegistryStore` can also be written. Local directories, buckets, memory and the Hub
can be written because they have compare-and-swap. Stores of fsspec can have one writer. Web servers and archives are
read-only. Every store passes the tests in `tests/conformance`. `open_url` in `remotes.py` picks the store for a URL.

Start with `protocol.py`, then `directory.py`. Must not import: anything of `registry` except `system`.
"""
