"""ORT-format files (flatbuffers): reading them, and writing them canonically.

`ort_graph` reads through the bindings that onnxruntime ships, `ort_operators` lists what a minimal build needs, and
`canonical_ort` makes equal models equal bytes.

Start with `ort_graph.py`.
"""
