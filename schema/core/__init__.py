"""Values, errors and JSON: the parts of every document.

`Digest` names bytes, `Version` orders releases, `Ref` is `name[:tag][@sha256:...]`. The command line maps each family of
`RegError` to an exit status. `canonical` reads and writes JSON. `Record` (msgspec) is the base of documents that only
onnxreg writes; `Document` (pydantic) is the base of documents that people and other programs write.

Start with `canonical.py`, `ref.py` and `errors.py`.
Must not import: any other package of onnxreg.
"""
