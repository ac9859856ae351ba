"""Make deltas (docs/delta.md): read two files of a model, and write a delta file, tensor by tensor.

The format is in `onnxreg.schema.delta`; `registry/transfer` applies deltas. Must not import: `engine`, `passes`, `evaluation`.
"""
