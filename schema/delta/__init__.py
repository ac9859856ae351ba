"""The delta format: a file that makes a new file from old files.

A delta is a `DeltaHeader` and `Span`s. Each span makes the next bytes of the new file: as a copy of old bytes, as
literal bytes, or as a difference to old numbers (`difference.py`). The digest of the new file is checked.

Start with docs/delta.md, then `delta_format.py`. Must not import: `gates`, `inputs`, `compare`, `formats`, `query`.
"""
