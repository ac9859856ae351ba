"""The delta format: the bytes that make a new file from old files.

A delta file is a `DeltaHeader` and a sequence of `Span`s. Each span makes the next bytes of the new file: as a copy of old
bytes, as literal bytes, or from a difference to old numbers (`difference.py`). A delta is never trusted: the digest of the
new file is checked.

Start with docs/delta.md, then `delta_format.py`.
Must not import: `gates`, `inputs`, `compare`, `formats`, `query`.
"""
