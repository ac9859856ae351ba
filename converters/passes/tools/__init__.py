"""Tools that several passes share: graph helpers, quantizers, value ranges, the comparison of a result.

`samples` draws inputs, and compares the outputs of parent and child for them, `dynamic_quantizer` and `half_graph` compute the
numbers of ONNX Runtime's tools; `half_graph` also finds values that float16 cannot represent.

Start with `samples.py`.
"""
