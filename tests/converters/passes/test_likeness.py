"""Outputs that follow the input no better than chance are refused, rounded ones are not."""

from typing import Any

import numpy as np
import pytest

from onnxreg.converters.passes.tools.samples import compare
from onnxreg.schema.core.errors import ConversionError

DRAW = np.random.default_rng(0)
BIAS = np.array([5.0, -3.0, 2.0, 0.5])
SHAPES = {
    "rows": [(1, 4), (2, 4), (8, 4)],
    "tokens": [(1, 8, 4), (2, 12, 4)],
    "one number": [(16, 1), (16, 1)],
    "images": [(3, 2, 5, 4)] * 2,
}


def outputs(shapes: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    return [{"y": DRAW.normal(size=shape) + BIAS[: shape[-1]]} for shape in shapes]


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_chance_is_never_passed(shapes: list[tuple[int, ...]]) -> None:
    """A bias makes the plain cosine of any two outputs high."""
    parent = outputs(shapes)
    mean = np.concatenate([one["y"].reshape(-1, shapes[0][-1]) for one in parent]).mean(axis=0)
    constant = [
        {"y": np.broadcast_to(mean, one["y"].shape) + 1e-3 * DRAW.normal(size=one["y"].shape)}
        for one in parent
    ]
    for child in (constant, *(outputs(shapes) for _ in range(50))):
        with pytest.raises(ConversionError):
            compare(parent, child, "the pass")
        assert compare(parent, child, "the pass", is_bounded=False)["y"]["max_abs_diff"] > 0


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_rounding_is_passed(shapes: list[tuple[int, ...]], noise: float) -> None:
    parent = outputs(shapes)
    child = [{"y": one["y"] + noise * DRAW.normal(size=one["y"].shape)} for one in parent]
    assert compare(parent, child, "the pass")["y"]["cosine"] > 0.9


def test_few_vectors_have_their_largest_value_anywhere() -> None:
    """Embeddings of 5 texts, whose INT8 has a cosine of .96: no value of 384 is a class."""
    for _ in range(400):
        parent = DRAW.normal(size=(5, 384))
        child = parent + 0.3 * DRAW.normal(size=parent.shape)
        assert compare([{"y": parent}], [{"y": child}], "the pass")["y"]["cosine"] > 0.9


def test_a_parent_that_hardly_varies_may_be_rounded() -> None:
    """An untrained model, or one that is sure: what varies is smaller than the rounding of what does not."""
    parent = [{"y": BIAS + 1e-3 * DRAW.normal(size=(9, 4))}]
    child = [{"y": BIAS + 1e-2 * DRAW.normal(size=(9, 4))}]
    assert compare(parent, child, "the pass")["y"]["cosine"] > 0.99


@pytest.mark.parametrize(
    "array", [np.ones((1, 4)), np.array(3.0), np.zeros((0, 4)), np.ones(3), np.zeros((2, 4))]
)
def test_an_output_that_does_not_vary(array: Any) -> None:
    assert compare([{"y": array}], [{"y": array}], "the pass")["y"]["max_abs_diff"] == 0
