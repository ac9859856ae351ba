"""Facts read from model files themselves: contract, operators, weights. Nothing here trusts a claim.

`inspect_onnx` and `inspect_ort` return `GraphFacts`. `tensor_contract` reads inputs and outputs, `onnx_graph`
reads a file and runs the checker, `stored_tensors` reads weights one at a time, `ort` reads ORT-format files, `compare`
finds the differences of two files.

Start with `facts.py`.
Must not import: `passes`, `engine`, `tasks`, `importers`.
"""

from onnxreg.converters.onnx.facts import GraphFacts, inspect_onnx, inspect_ort

__all__ = ["GraphFacts", "inspect_onnx", "inspect_ort"]
