"""Keys, signatures and signed statements, as values. No cryptography is done here.

`PublicKey` is a key with its id; `Envelope` is a DSSE 1.0.2 envelope. `release_statement` makes the in-toto statement about
a manifest, `sign_line` signs a log line, and `make_bundle` makes the bundle of OpenSSF Model Signing 1.0.

Start with `dsse.py`.
Must not import: `log` or anything above it.
"""
