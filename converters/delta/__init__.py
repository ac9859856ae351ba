"""Making deltas: two files of a model in, a delta file out (docs/delta.md), tensor by tensor.

`make.py` pairs the tensors of two files and encodes their differences; `extents.py` finds the tensors in ONNX (external
data too), ORT and safetensors files. The format is `onnxreg.schema.delta`; applying is `onnxreg.registry.delta`.
Must not import: `engine`, `passes`, `evaluation`.
"""
