"""Facts that are read from model files: start with `facts`. `onnx_graph` and `ort_file` return an `onnx_ir.Model`."""
