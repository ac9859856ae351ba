"""The preprocessing of an image before it becomes the input of a model."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from onnxreg.schema.core.document import Count, Items, RuledDocument
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.rules import CHANNELS, PreprocessingRules

Pixels = Annotated[Count, Field(gt=0)]


class Preprocessing(PreprocessingRules, RuledDocument):
    """The conversion of an image to numbers.

    The image is scaled to `size` (height, width) in pixels, its values as shares of full scale (0 to 1),
    minus `mean` and divided by `std` of each channel in the order of `color`, arranged as `layout`.

    `resize`: the shorter edge is first scaled to this number of pixels, and `size` is cropped from the
    centre.
    """

    size: tuple[Pixels, Pixels]
    mean: Items[float]
    std: Items[Annotated[float, Field(gt=0)]]
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR", "L"] = "RGB"
    resize: Pixels | None = None

    @classmethod
    def of_input(cls, value: Mapping[str, Any], shape: tuple[int, int, int]) -> Self:
        """Read preprocessing as people write it, for an input of (channels, height, width), and add the input's size.

        InputError if the two contradict each other.
        """
        channels, *size = shape
        preprocessing = cls.from_json(
            {"layout": "NCHW", "color": "RGB", **value, "size": size}, "preprocessing"
        )
        if preprocessing.layout != "NCHW" or CHANNELS[preprocessing.color] != channels:
            raise InputError(
                f"the input has {channels} channels first, not {preprocessing.color} as {preprocessing.layout}"
            )
        return preprocessing
