"""Facts that are read from model files: inputs and outputs, operators, weights. Start with `facts`.

`onnx_graph` reads ONNX files, `ort_file` reads ORT-format files. Both return an `onnx_ir.Model`.
"""
