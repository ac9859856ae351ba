"""Making deltas (docs/delta.md): reads two files of a model and writes a delta file, tensor by tensor.

The format is `onnxreg.schema.delta`; `onnxreg.registry.delta` applies. Must not import: `engine`, `passes`, `evaluation`.
"""
