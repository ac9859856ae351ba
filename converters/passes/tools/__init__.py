"""Tools that several passes share: graph helpers, samples, scales of a parent, float16, the comparison of a result.

`samples` draws inputs, and compares the outputs of parent and child for them, `half_graph` computes
the numbers of ONNX Runtime's float16 converter and finds values that float16 cannot represent.

Start with `samples.py`.
"""
