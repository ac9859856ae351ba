"""The delta format: a file that makes a new file from old files.

A delta is a `DeltaHeader` and `Span`s. Each span makes the next bytes of the new file. It copies old bytes, has the new
bytes itself, or has the differences from old numbers to new numbers (`difference.py`). The digest of the new file is
checked.

Start with docs/delta.md, then `delta_format.py`. Must not import: `gates`, `inputs`, `compare`, `formats`, `query`.
"""
