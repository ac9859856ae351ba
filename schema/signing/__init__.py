"""Keys, signatures and signed statements, as values. No cryptography is done here.

`PublicKey` is a key with its id, `Envelope` a DSSE 1.0.2 envelope. `release_statement` makes the in-toto statement about a
manifest, `sign_line` the signature of a log line, `make_bundle` the bundle of OpenSSF Model Signing 1.0.

Start with `dsse.py`.
Must not import: `log` or anything above it.
"""
