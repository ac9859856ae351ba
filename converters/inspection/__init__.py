"""Facts read from an artifact itself: contract, operators, opsets, weights. Nothing here trusts a claim."""

from onnxreg.converters.inspection.facts import GraphFacts, inspect_onnx, inspect_ort

__all__ = ["GraphFacts", "inspect_onnx", "inspect_ort"]
