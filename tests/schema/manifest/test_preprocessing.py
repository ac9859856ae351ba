"""What is said of an image's way into a model."""

from typing import Any

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.parts import Preprocessing

IMAGENET = {"size": [224, 224], "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def test_the_defaults_are_colour_photographs_by_planes() -> None:
    found = Preprocessing.from_json(IMAGENET)
    assert (found.layout, found.color, found.resize) == ("NCHW", "RGB", None)
    assert Preprocessing.from_json({**IMAGENET, "size": [8, 8], "mean": [0.5], "std": [1.0], "color": "L"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": [0.5]}, "RGB has 3 channels"),
        ({"color": "L"}, "L has 1 channels"),
        ({"std": [1.0, 1.0, 0.0]}, "std.2"),
        ({"std": [1.0, 1.0, -1.0]}, "std.2"),
        ({"size": [0, 224]}, "size.0"),
        ({"size": [224]}, "size"),
        ({"resize": 100}, "cannot be cut out"),
        ({"layout": "CHW"}, "layout"),
        ({"color": "YUV"}, "color"),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocessing.from_json({**IMAGENET, **change})
