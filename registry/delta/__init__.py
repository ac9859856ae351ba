"""Deltas in a registry: kept, named by the log, chosen and applied when a file is fetched (docs/delta.md).

`apply.py` makes a file from old ones and a delta. `delta_log.py` appends the event that names a version's
`DeltaTable`, and takes deltas away with the versions they belong to. `delta_fetch.py` is the blob that arrives by
a delta, and falls back to the whole file on any doubt.

Start with `delta_fetch.py`. The format is `onnxreg.schema.delta`; making is `onnxreg.converters.delta`.
Must not import: `server`, `search`.
"""
