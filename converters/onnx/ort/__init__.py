"""ORT-format files (flatbuffers): reading them, and writing them canonically.

`ort_graph` reads through the bindings that onnxruntime ships, `canonical_ort` makes equal models equal bytes.

Start with `ort_graph.py`.
"""
