"""Digests, versions, refs, errors and JSON: the values that every document is made of.

A `Digest` is the SHA-256 of some bytes, a `Version` orders releases, a `Ref` names a version as `acme/model:1.2.0`.
`canonical` reads and writes JSON. `Record` (msgspec) is the base of documents that only onnxreg writes. `Document`
(pydantic) is the base of documents that people and other programs write.

Start with `canonical.py`, `ref.py` and `errors.py`. Must not import: any other package of onnxreg.
"""
