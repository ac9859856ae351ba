"""Keys, signatures and signed statements, as values. No cryptography is done here.

`PublicKey` is a key and its id, `Envelope` is DSSE 1.0.2, `release_statement` makes the in-toto statement about one
manifest. `sign_line` makes the signature of a log line; `make_bundle` makes the bundle of OpenSSF Model Signing 1.0.

Start with `dsse.py`.
Must not import: `log` or anything above it.
"""
