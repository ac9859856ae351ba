"""Values, errors and JSON: the parts of every document.

`Digest` names bytes, `Version` orders releases, `Ref` is `name[:tag][@sha256:...]`. `RegError` and its
families say what a reader can do next; the command line maps each family to an exit status. `canonical` is
the one JSON encoder (RFC 8785) and the one strict decoder, and reads plain values out of decoded JSON
without pydantic, which keeps light verbs fast. `document` is the base of every pydantic document.

Start with `digest.py`, `ref.py` and `errors.py`.
Must not import: any other package of onnxreg.
"""
