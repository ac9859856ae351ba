"""Facts read from model files: contract, operators, weights. This package trusts no claim about a file.

`onnx_graph` reads an ONNX file, limits its size, and runs the checker; `ort_file` reads ORT-format files. Both give an
`onnx_ir.Model`, from which `facts`, the module to start with, collects all facts.

Must not import: `passes`, `engine`, `tasks`, `importers`.
"""
