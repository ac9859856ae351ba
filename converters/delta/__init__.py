"""Making deltas (docs/delta.md): two files of a model in, a delta file out, tensor by tensor.

The format is `onnxreg.schema.delta`; applying is `onnxreg.registry.delta`. Must not import: `engine`, `passes`, `evaluation`.
"""
