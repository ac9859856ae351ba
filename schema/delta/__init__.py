"""The delta format: the bytes that make a new file from old files.

A delta file is a `DeltaHeader` and then a row of `Span`s: each makes the next bytes of the new file, as a copy of old
bytes, as literal bytes, or as the difference from old numbers (`difference.py`). No I/O here. A delta is never trusted: the
digest of the new file decides.

Start with docs/delta.md, then `delta_format.py`.
Must not import: `gates`, `inputs`, `compare`, `formats`, `query`.
"""
