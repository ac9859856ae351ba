"""Make deltas (docs/delta.md): read two files of a model, and write a delta file, tensor by tensor.

`onnxreg.schema.delta` has the format, `registry/transfer/exchange.py` applies deltas. Must not import: `engine`, `passes`, `evaluation`.
"""
