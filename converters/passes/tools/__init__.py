"""Tools that several passes share: graph helpers, quantizers, value ranges, the proof of a result.

`proof` loads parent and child and compares their outputs, `dynamic_quantizer` and `half_graph` compute the
numbers of ONNX Runtime's tools; `half_graph` also finds values that float16 cannot represent.

Start with `proof.py`.
"""
