"""`MergeDecoders` on graphs small enough to multiply by hand."""

import numpy as np
import pytest
from support.graphs import graph, read

from onnxreg.converters.passes import models
from onnxreg.converters.passes.merge_decoders import SWITCH, MergeDecoders


@pytest.mark.parametrize("is_later", [False, True])
def test_products_are_exact_without_a_session_option(is_later):
    """x86 without VNNI saturates products with INT8 weights, and the option against this does not reach a branch."""
    weights = np.array([[127, -128], [127, -128], [127, 3], [-1, -7]], np.int8)
    tensors = {"w": weights, "zx": np.array(3, np.uint8), "zw": np.array([0, 5], np.int8)}
    sides = "uint8[n, 4] x", "int32[n, 2] logits"
    first, later = (read(graph("logits = MatMulInteger(x, w, zx, zw)", *sides, **tensors)) for _ in range(2))
    merging = MergeDecoders(with_past="later")
    merging.second_graph = later
    session = models.session(merging.apply(first))
    x = np.array([[255, 255, 0, 9], [255, 254, 253, 252]], np.uint8)
    (products,) = session.run(None, {"x": x, SWITCH: np.array([is_later])})
    assert products.tolist() == ((x.astype(int) - 3) @ (weights.astype(int) - [0, 5])).tolist()
