"""A model family as people write it (docs/families.md): a backbone, heads, a detector, variants, and limits.

Paths are relative to the file.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from onnxreg.schema.core.document import (
    Count,
    First,
    Items,
    JsonObject,
    ModelName,
    RelPath,
    Table,
    Text,
    WrittenDocument,
)
from onnxreg.schema.core.units import size
from onnxreg.schema.inputs.recipe_file import EvaluationRequest
from onnxreg.schema.manifest.family import ClassId
from onnxreg.schema.manifest.manifest import Description, Positive

TensorName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]{0,63}$")]
Share = Annotated[float, Field(ge=0, le=1)]
FACTORY_KEYS = frozenset({"factory", "arguments", "input"})  # they need a factory
Above0 = Annotated[float, Field(gt=0)]
Bytes = Annotated[Count, BeforeValidator(size), WithJsonSchema({"type": ["integer", "string"]})]


class BackboneSpec(WrittenDocument):
    """The backbone of a family. `checkpoint` is a directory that `save_pretrained` wrote.

    `classes` are the backbone's class ids in order, as in the checkpoint's config. `logits` and `embedding` name the
    outputs of the backbone's graphs. `file` is the path of the graphs without the ending: `backbone` gives
    `backbone-fp32.onnx`.

    If `save_pretrained` did not write the checkpoint, `factory` is a function (`module:function` or
    `file.py:function`), which is called with `arguments` and returns the module. Then `checkpoint` is a file of
    weights, and `input` is the shape (channels, height, width) of an image. The module returns a dict with both outputs
    by name, or a tuple (logits, embedding).
    """

    checkpoint: Text
    file: RelPath = "backbone"
    classes: Items[ClassId] | None = None
    logits: TensorName = "logits"
    embedding: TensorName = "embedding"
    factory: Text | None = None
    arguments: JsonObject = {}
    input: tuple[Positive, Positive, Positive] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.logits == self.embedding:
            raise ValueError("logits and embedding have one name")
        if self.factory is None and (given := sorted(self.model_fields_set & FACTORY_KEYS)):
            raise ValueError(f"{given[0]} goes with a factory only")
        missing = [key for key in ("classes", "input") if getattr(self, key) is None]
        if self.factory is not None and missing:
            raise ValueError(f"a factory needs {' and '.join(missing)} too")
        return self


class HeadsSpec(WrittenDocument):
    """The heads of a family. `folder` has a checkpoint for each class id of the backbone: `<id>.safetensors`.

    `none` lists the class ids without a head. `classes` maps a class id to the classes of its head, in order. They must
    equal the classes in the head's checkpoint, if it has any. `activation` is applied between the layers of a head.
    `file` is the path of the folder with the heads' graphs. `logits` is the name of the output of these graphs.
    """

    folder: Text
    none: Items[ClassId] = ()
    classes: Table[Items[ClassId]] = {}
    activation: Literal["Relu", "Tanh"] = "Relu"
    file: RelPath = "heads"
    logits: TensorName = "logits"


class DetectorSpec(WrittenDocument):
    """The detector of inputs out of distribution. Its data are `.npz` files with an array `input` or `embedding`.

    The detector is fitted to the data in `fit`. Its threshold is the `percentile` of the distances of the data in
    `calibrate`. `shrinkage` shrinks the covariance. The default is Ledoit and Wolf's estimate.
    """

    fit: Text
    calibrate: Text
    outliers: Text | None = None
    percentile: Annotated[float, Field(gt=50, lt=100)] = 95.0
    shrinkage: Share | None = None


class VariantsSpec(WrittenDocument):
    """The precisions to make for each role, besides float32."""

    backbone: Items[Literal["float16", "int8"]] = ("float16", "int8")
    head: Items[Literal["float16", "int8"]] = ("float16", "int8")


class ParityLimits(WrittenDocument):
    """The largest allowed difference of an output, by precision.

    For float32, this is the absolute difference from the checkpoint's output. For other precisions, the difference from
    the float32 output is divided by that output's largest absolute value or by 1, whichever is larger.
    """

    float32: Above0 | None = 0.01
    float16: Above0 | None = 0.02
    int8: Above0 | None = 0.1


class RoleSizes(WrittenDocument):
    """The maximum size of one file in bytes, for each precision: `1000000` or `32MB`, for example."""

    float32: Bytes | None = None
    float16: Bytes | None = None
    int8: Bytes | None = None


class SizeLimits(WrittenDocument):
    """The maximum sizes of files, by the role of their graph and by precision."""

    backbone: RoleSizes = RoleSizes()
    head: RoleSizes = RoleSizes()
    ood: RoleSizes = RoleSizes()


class FamilyLimits(WrittenDocument):
    """The limits that a family must meet to be published. The value null removes a limit.

    `ood_true_positive` is the minimum share of `outliers` that the detector must reject. `latency_p95` limits the time
    of backbone, head and detector together: the 95th percentile on the CPU, in milliseconds.
    """

    parity: ParityLimits = ParityLimits()
    size: SizeLimits = SizeLimits()
    ood_true_positive: Share | None = 0.9
    latency_p95: Above0 | None = 200.0


class FamilyFile(WrittenDocument):
    """A model family: backbone, heads, detector, variants and limits.

    `evaluation` is an `.npz` file of images that were not used for training (`input`: float32, `[n, channels, height,
    width]`). On these images precisions are compared, and the detector is measured. `preprocessing` is as in the
    manifest. `certify` maps a member, such as `backbone` or `head:<id>`, to a suite that judges its lower precisions
    against float32 (docs/certification.md).
    """

    family: First
    name: ModelName
    license: Text | None = None
    description: Description | None = None
    opset: Annotated[Count, Field(ge=17, le=23)] = 18
    backbone: BackboneSpec
    heads: HeadsSpec
    ood: DetectorSpec | None = None
    evaluation: Text | None = None
    preprocessing: JsonObject | None = None
    variants: VariantsSpec = VariantsSpec()
    limits: FamilyLimits = FamilyLimits()
    certify: Table[EvaluationRequest] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        limits, has_outliers = self.limits, self.ood is not None and self.ood.outliers is not None
        is_stated = "ood_true_positive" in limits.model_fields_set and limits.ood_true_positive is not None
        if is_stated and not has_outliers:
            raise ValueError("limits.ood_true_positive cannot be measured without ood.outliers")
        return self
