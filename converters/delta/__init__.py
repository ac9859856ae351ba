"""Making deltas: two files of a model in, a delta file out (docs/delta.md), tensor by tensor.

`make.py` finds the tensors in ONNX (external data too), ORT and safetensors files, pairs those of two files and encodes their
differences. The format is `onnxreg.schema.delta`; applying is `onnxreg.registry.delta`.
Must not import: `engine`, `passes`, `evaluation`.
"""
