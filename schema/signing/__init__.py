"""Keys, signatures and signed statements, as values. No cryptography is done here.

Start with `dsse.py`. Must not import: `log` or anything above it.
"""
