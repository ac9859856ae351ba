"""Making deltas (docs/delta.md): reads two files of a model and writes a delta file, tensor by tensor.

Format: `onnxreg.schema.delta`. Applied by: `onnxreg.registry.transfer.exchange`. Must not import: `engine`, `passes`, `evaluation`.
"""
