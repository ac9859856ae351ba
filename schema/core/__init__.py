"""Values, errors and JSON: the parts of every document.

`Digest` names bytes, `Version` orders releases, `Ref` is `name[:tag][@sha256:...]`. The command line maps each family of
`RegError` to an exit status. `canonical` writes and reads JSON; its `Record` is the base of documents that only this program
writes (msgspec), `document` that of documents of people and other programs (pydantic).

Start with `digest.py`, `ref.py` and `errors.py`.
Must not import: any other package of onnxreg.
"""
