"""Making deltas (docs/delta.md): reads two files of a model and writes a delta file, tensor by tensor.

Format: `onnxreg.schema.delta`. Applied by: `onnxreg.registry.delta`. Must not import: `engine`, `passes`, `evaluation`.
"""
