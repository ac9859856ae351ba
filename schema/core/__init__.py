"""Values, errors and JSON: the parts of every document.

`Digest` names bytes, `Version` orders releases, `Ref` is `name[:tag][@sha256:...]`. `RegError` and its
families say what a reader can do next; the command line maps each family to an exit status. `canonical` is
the one JSON encoder (RFC 8785) and the one strict decoder. `record` is the base of documents that only this
program writes (msgspec, which keeps light verbs fast), `document` of those of people and other programs (pydantic).

Start with `digest.py`, `ref.py` and `errors.py`.
Must not import: any other package of onnxreg.
"""
