"""Facts read from model files themselves: contract, operators, weights. Nothing here trusts a claim.

`onnx_graph` bounds and reads an ONNX file, and runs the checker; `ort_file` reads ORT-format files. Both give an
`onnx_ir.Model`: `semantic` has its digest, and `facts`, the module to start with, all that is known of it.

Must not import: `passes`, `engine`, `tasks`, `importers`.
"""
