"""Making deltas: two files of a model in, a delta file out (docs/delta.md), tensor by tensor.

A `ModelFile` is a file with the `TensorExtent`s that it stores, read by `read_extents` from ONNX (external data too),
ORT and safetensors files. `match.py` pairs the tensors of two files and gives the `Section`s of the new one;
`make.py` encodes them as spans, block by block, on all cores.

Start with `make.py`. The format is `onnxreg.schema.delta`; applying is `onnxreg.registry.delta`.
Must not import: `engine`, `passes`, `evaluation`.
"""
