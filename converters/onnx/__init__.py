"""Facts read from model files themselves: contract, operators, weights. Nothing here trusts a claim.

`inspect_onnx` and `inspect_ort` return `GraphFacts`. `onnx_graph` bounds and reads a file, and runs the checker; `ort_file`
reads and writes ORT-format files. Both give an `onnx_ir.Model`: `semantic` has its digest.

Start with `facts.py`.
Must not import: `passes`, `engine`, `tasks`, `importers`.
"""

from onnxreg.converters.onnx.facts import GraphFacts, inspect_onnx, inspect_ort

__all__ = ["GraphFacts", "inspect_onnx", "inspect_ort"]
