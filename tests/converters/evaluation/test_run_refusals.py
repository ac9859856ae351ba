"""Answers to images and sounds of graphs that do not fit their labels, or their words."""

from typing import Any

import numpy as np
import pytest

from onnxreg.converters.evaluation.answers import run_numbers
from onnxreg.schema.core.errors import ConversionError, InputError

LOGITS, BOXES, PIXELS, FRAMES = (
    np.ones((1, 5, 3)),
    np.ones((1, 5, 4)),
    np.ones((1, 3, 4, 4)),
    np.ones((1, 7, 3)),
)


@pytest.mark.parametrize(
    ("outputs", "labels", "words", "error"),
    [
        ({"logits": LOGITS, "pred_boxes": BOXES}, 0, {}, ConversionError),
        ({"logits": PIXELS}, 0, {}, ConversionError),
        ({"logits": PIXELS}, 2, {}, ConversionError),
        ({"logits": PIXELS[None]}, 3, {}, InputError),
        ({"logits": FRAMES}, 0, {"eng": {"a": 1}}, InputError),
        ({"logits": FRAMES}, 0, {}, InputError),
        ({"names": np.array([["a"]])}, 0, {}, InputError),
        ({"names": np.zeros((0, 4))}, 0, {}, InputError),
    ],
)
def test_outputs_without_their_labels_or_words_are_refused(
    outputs: Any, labels: int, words: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"g\.onnx gives"):
        run_numbers(outputs, [str(number) for number in range(labels)], {}, "g.onnx", words)


def test_a_box_for_each_row_makes_objects() -> None:
    (first, *_) = run_numbers({"logits": 5 * LOGITS, "pred_boxes": BOXES}, "abc", {}, "g.onnx", {})["objects"]
    assert (first["label"], first["box"]) == ("a", [0.5, 0.5, 1.5, 1.5])
