"""Facts read from model files: contract, operators, weights. Claims of other documents about a file are never used.

`onnx_graph` reads an ONNX file, limits its size, and runs the checker; `ort_file` reads ORT-format files. Both give an
`onnx_ir.Model`, from which `facts` collects all facts. Start with `facts`.

Must not import: `passes`, `engine`, `tasks`, `importers`.
"""
