"""Parts of a manifest: image preprocessing, what is read from a graph, the recorded recipe, checks and certification."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, Items, JsonObject, Table, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.vocabulary import CHANNELS, LOSS

Pixels = Annotated[Count, Field(gt=0)]
Tensor = tuple[str, tuple[int | None, ...]]
"""An input or output: its type, and the size of each axis, None if that is dynamic."""


class Preprocessing(Document):
    """The conversion of an image to numbers.

    The image is scaled to `size` (height, width) in pixels, its values as shares of full scale (0 to 1), minus `mean`
    and divided by `std` of each channel in the order of `color`, arranged as `layout`. With `resize` the shorter edge is
    first scaled to this number of pixels, and `size` is cropped from the centre.
    """

    size: tuple[Pixels, Pixels]
    mean: Items[float]
    std: Items[Annotated[float, Field(gt=0)]]
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR", "L"] = "RGB"
    resize: Pixels | None = None

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
        """Read preprocessing as people write it, for an input of (channels, height, width); InputError if it is another one."""
        channels, *size = shape
        image = cls.from_json({"layout": "NCHW", "color": "RGB", **value, "size": size}, "preprocessing")
        if image.layout != "NCHW" or CHANNELS[image.color] != channels:
            raise InputError(f"the input has {channels} channels first, not {image.color} as {image.layout}")
        return image


class Dim(Document):
    """One axis of a tensor: `{"kind": "dynamic", "name": "batch"}` or `{"kind": "static", "value": 17}`.

    A dynamic axis without a name in the graph has the name "".
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
    """One input or output of a graph. `dtype` is numpy's name (`int64`, `float32`), `axes` one label for each axis."""

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
        """`[batch, 384]`; a dynamic axis without a name is `?`."""
        axes = (str(dim.value) if dim.kind == "static" else dim.name or "?" for dim in self.shape)
        return f"[{', '.join(axes)}]"


class Operator(Document):
    """One operator that an artifact needs, subgraphs and functions included.

    `domain` is `ai.onnx` for the default one; `opset` is the since-version of the definition in force; `inputs` and
    `outputs` map a position to the element types seen there, as ONNX Runtime spells them (`float`, `int64_t`, ...).
    """

    domain: Text
    name: Text
    opset: Count
    inputs: Table[Items[str]] = {}
    outputs: Table[Items[str]] = {}


class WeightCount(Document):
    """The share of a graph's constant weights that a quantization reached; bytes are those of the file."""

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
    """The requested quantization and the measured result."""

    requested: JsonObject
    measured: WeightCount


class SemanticDigest(Document):
    """Digests of what a model computes, independent of how its file is written (docs/format.md).

    `graph` covers operators, attributes and the flow of values; `weights` the names, types, shapes and bytes of the
    stored tensors. Equal digests mean the same computation; different ones do not prove a difference.
    """

    graph: Digest
    weights: Digest


class KvCache(Document):
    """The memory of a decoder beside its weights: the keys and values of each token of a context of `max_tokens`."""

    bytes_per_token: Annotated[Count, Field(gt=0)]
    max_tokens: Annotated[Count, Field(gt=0)]


class Step(Document):
    """One pass that was applied, with its parameters and its result.

    `input` names the earlier step whose graph it read (absent: the source). `skipped` has the reason if the pass could
    not run and the profile allows that: a dependency, never data.
    """

    name: Text
    pass_: Annotated[Text, Field(alias="pass")]
    version: Count
    params: JsonObject
    input: Text | None = None
    result: JsonObject = {}
    skipped: Text | None = None


class Code(Document):
    """The function that made the model, `module:function`, which `--allow-code` allowed.

    It is bound by the `digest` of its Python file, or of all those of its package, or by its `distribution` and that
    one's `version`; `python` means Python's own.
    """

    name: Text
    digest: Digest | None = None
    distribution: Text | None = None
    version: Text | None = None


class Recipe(Document):
    """A profile with all its parameters, as it was run.

    `tools` has the versions of the tools that shape bytes (`isa`: the instruction-set class of the machine): a rebuild
    is promised for equal tools. `trust_remote_code` is for the code of a transformers checkpoint, `code` for the function
    that made the module.
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

    `value` is None if it could not be measured; `dataset` is the digest of the data; `interval` is a 95 % interval of the
    value; `direction` says which values are better.
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
        """The name, with the metric unless the name has it: each check with a direction names its metric."""
        is_named = self.direction is not None or self.name.startswith(self.metric)
        return self.name if is_named else f"{self.name}/{self.metric}"


class Evidence(Document):
    """The bytes that a verdict is bound to: artifact, full-precision parent, evaluation suite, report.

    `synthetic`: True if the suite says that its texts are synthetic; None if it does not say.
    """

    artifact: Digest
    parent: Digest | None = None
    suite: Digest | None = None
    report: Digest | None = None
    synthetic: bool | None = None


class ArtifactCertification(Document):
    """The state of an artifact, the rule, and the reasons."""

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
