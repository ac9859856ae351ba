"""This user's keys, and the signing of log lines and releases.

`Keystore` holds key files, `PrivateKey` signs (Ed25519, ECDSA P-256), `line_signer` is the key that signs every
event if one is configured.

Start with `keys.py`. What a reader accepts is in `trust`.
Must not import: `log` or anything above it.
"""
