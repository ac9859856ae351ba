"""Parts of a manifest: image preprocessing, facts read from a graph, the recorded recipe, checks and certification."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, Items, JsonObject, Table, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.vocabulary import CHANNELS, LOSS

Pixels = Annotated[Count, Field(gt=0)]
Tensor = tuple[str, tuple[int | None, ...]]
"""The element type of an input or output, and the size of each axis; None for a dynamic axis."""


class Preprocessing(Document):
    """The conversion of an image to a tensor.

    The image is scaled to `size` (height, width) in pixels; with `resize`, its shorter edge is scaled to `resize` pixels,
    and a rectangle of `size` is cropped from the centre. Pixel values are divided by full scale (0 to 1); then `mean` is
    subtracted, and the result divided by `std`: one number for each channel, in the order of `color`. `layout` is the order
    of the axes, `resample` Pillow's name of the filter. `sample` has the result for a drawn image, to test other programs.
    """

    size: tuple[Pixels, Pixels]
    mean: Items[float]
    std: Items[Annotated[float, Field(gt=0)]]
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR", "L"] = "RGB"
    resize: Pixels | None = None
    resample: Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"] | None = None
    sample: Items[float] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        channels = CHANNELS[self.color]
        if (len(self.mean), len(self.std)) != (channels, channels):
            raise ValueError(f"{self.color} has {channels} channels: mean and std need one value for each")
        if self.resize is not None and self.resize < max(self.size):
            raise ValueError("size cannot be cut out of an image whose shorter edge is smaller")
        return self

    @classmethod
    def of_input(cls, value: Mapping[str, Any], shape: tuple[int, int, int]) -> Self:
        """Read preprocessing that people write. Raise InputError unless it fits an input [channels, height, width]."""
        channels, *size = shape
        image = cls.from_json({"layout": "NCHW", "color": "RGB", **value, "size": size}, "preprocessing")
        if image.layout != "NCHW" or CHANNELS[image.color] != channels:
            raise InputError(f"the input has {channels} channels first, not {image.color} as {image.layout}")
        return image


class AudioPreprocessing(Document):
    """The conversion of a sound to a tensor. The sound is float32 samples between -1 and 1 of one channel.

    With `samples`, it is padded with zeros, or cut, to that number of samples. With `normalize`, its mean becomes 0 and its
    variance 1. With `mels`, `window` and `hop`, it becomes Whisper's logarithmic mel spectrogram, `[mels, samples / hop]`.
    """

    sampling_rate: Pixels
    normalize: bool = False
    samples: Pixels | None = None
    mels: Pixels | None = None
    window: Pixels | None = None
    hop: Pixels | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        stated = [key is not None for key in (self.mels, self.window, self.hop)]
        if any(stated) and not (all(stated) and self.samples):
            raise ValueError("a spectrogram needs mels, window, hop and samples")
        return self


class Dim(Document):
    """One axis of a tensor: `{"kind": "dynamic", "name": "batch"}` or `{"kind": "static", "value": 17}`.

    A dynamic axis that the graph does not name has the name "".
    """

    kind: Literal["dynamic", "static"]
    name: Text | None = None
    value: Count | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.kind == "static") != (self.value is not None):
            raise ValueError("a static axis has a value, a dynamic axis has none")
        return self


class TensorSpec(Document):
    """One input or output of a graph. `dtype` is numpy's name (`int64`, `float32`), `axes` has one label for each axis."""

    name: Text
    dtype: Text
    axes: Items[Text] = ()
    shape: Items[Dim] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.axes and len(self.axes) != len(self.shape):
            raise ValueError(f"{len(self.axes)} axes are named, the shape has {len(self.shape)}")
        return self

    @property
    def tensor(self) -> Tensor:
        return self.dtype, tuple(dim.value for dim in self.shape)

    @property
    def shape_text(self) -> str:
        """The shape as text, such as `[batch, 384]`; a dynamic axis without a name is `?`."""
        axes = (str(dim.value) if dim.kind == "static" else dim.name or "?" for dim in self.shape)
        return f"[{', '.join(axes)}]"


class Operator(Document):
    """One operator that an artifact needs, also in subgraphs and functions.

    `domain` is `ai.onnx` for the default domain; `opset` is the version that introduced the operator's definition; `inputs`
    and `outputs` map a position to the element types in the graph, as ONNX Runtime spells them (`float`, `int64_t`, ...).
    """

    domain: Text
    name: Text
    opset: Count
    inputs: Table[Items[str]] = {}
    outputs: Table[Items[str]] = {}


class WeightCount(Document):
    """The number of a graph's constant weights, and their bytes in the file: of quantized weights, and of all."""

    weights_quantized: Count
    weights_total: Count
    bytes_quantized: Count
    bytes_total: Count

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.weights_quantized > self.weights_total or self.bytes_quantized > self.bytes_total:
            raise ValueError("more is quantized than there is")
        return self


class Quantization(Document):
    """The quantization that the recipe requested, and the quantized weights that the file has."""

    requested: JsonObject
    measured: WeightCount


class SemanticDigest(Document):
    """Digests of the computation of a model, independent of how its file is written (docs/format.md).

    `graph` is over operators, attributes and the flow of values; `weights` over names, types, shapes and bytes of the stored
    tensors. Equal digests mean the same computation; different digests do not prove a difference.
    """

    graph: Digest
    weights: Digest


class KvCache(Document):
    """The size of a decoder's cache of keys and values: the bytes for each token of context, and the most tokens."""

    bytes_per_token: Annotated[Count, Field(gt=0)]
    max_tokens: Annotated[Count, Field(gt=0)]


class Step(Document):
    """One pass that was applied, with its parameters and its result.

    `input` names the earlier step whose result this step read (absent: the source). `skipped` is set if an optional pass
    did not run: the reason, which is always a missing dependency.
    """

    name: Text
    pass_: Annotated[Text, Field(alias="pass")]
    version: Count
    params: JsonObject
    input: Text | None = None
    result: JsonObject = {}
    skipped: Text | None = None


class Code(Document):
    """The function that made the model, `module:function`, which the user allowed by `--allow-code`.

    `digest` is over the function's Python file or all files of its package. For an installed package, `distribution` and
    `version` name it instead; the distribution `python` is Python itself.
    """

    name: Text
    digest: Digest | None = None
    distribution: Text | None = None
    version: Text | None = None


class Recipe(Document):
    """The recipe that was run, with all its parameters.

    `tools` has the versions of the tools that affect the bytes, and as `isa` the machine's class of instruction set: with
    equal tools, a rebuild gives the same bytes. `trust_remote_code` is True if code of a transformers checkpoint was run;
    `code` is the function that made the module.
    """

    profile: Text
    profile_version: Count
    steps: Items[Step]
    tools: Table[str]
    parameters: JsonObject = {}
    trust_remote_code: bool = False
    code: Code | None = None


class Check(Document):
    """A measured claim.

    `value` is None if it could not be measured; `dataset` is the digest of the test data; `interval` is the 95 % interval of
    `value`; `direction` says if higher or lower values are better.
    """

    name: Text
    metric: Text
    value: float | None
    verdict: Literal["pass", "fail", "unknown", "info"]
    limit: float | None = None
    samples: Count | None = None
    dataset: Digest | None = None
    interval: tuple[float, float] | None = None
    direction: Literal["higher", "lower"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError("the interval ends before it begins")
        value, limit = self.value, self.limit
        is_above = value is not None and limit is not None and value > limit
        if self.name == LOSS and self.verdict == "pass" and is_above:
            raise ValueError(f"{LOSS} is {value:g}, its limit {limit:g}, and its verdict is pass")
        return self

    @property
    def label(self) -> str:
        """The name and the metric; the name alone for a check with a direction, whose name includes the metric."""
        is_named = self.direction is not None or self.name.startswith(self.metric)
        return self.name if is_named else f"{self.name}/{self.metric}"


class Evidence(Document):
    """The digests behind a verdict: artifact, full-precision parent, evaluation suite and report.

    `synthetic` is True if the suite states that its texts are synthetic, None if the suite states nothing.
    """

    artifact: Digest
    parent: Digest | None = None
    suite: Digest | None = None
    report: Digest | None = None
    synthetic: bool | None = None


class ArtifactCertification(Document):
    """The state of an artifact, the rule that decided, and the reasons."""

    state: Literal["certified", "refused", "unknown"]
    rule: Text | None = None
    reasons: Items[Text] = ()
    evidence: Evidence | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key in ("artifact", "parent", "suite") if self.state == "certified" else ():
            if getattr(self.evidence, key, None) is None:
                raise ValueError(f"certified without evidence of the {key}")
        return self
