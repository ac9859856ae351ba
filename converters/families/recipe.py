"""The recipe of a family: what it is made of, in which variants, and which limits a release must keep."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from onnxreg.converters.families.heads import Activation
from onnxreg.schema.errors import InputError
from onnxreg.schema.sizes import size

FORMAT = "onnxreg-family"
PLAIN, HALF, EIGHT = "float32", "float16", "int8"
Precision = Literal["float32", "float16", "int8"]
Bytes = Annotated[int, BeforeValidator(size)]
Share = Annotated[float, Field(ge=0, le=1)]


class Part(BaseModel):
    """A part of the recipe: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Backbone(Part):
    """`checkpoint` is the directory that `save_pretrained` wrote; `file` is how its graphs are called.

    `classes` are its class ids in order; the checkpoint must say the same.
    """

    checkpoint: str
    file: str = "swin-species"
    classes: tuple[str, ...] | None = None


class Heads(Part):
    """`folder` has a checkpoint for each class id: `<id>.safetensors`, `.npz` or `.pth`; `none` are the classes without one.

    `classes` are, for those heads whose order somebody relies on, their classes in order.
    """

    folder: str
    none: tuple[str, ...] = ()
    activation: Activation = "Relu"
    classes: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    output: str = "disease-heads"


class Ood(Part):
    """`fit`, `calibrate`, `outliers`: `.npz` files with `input` (images) or `embedding`; `shrinkage` absent: Ledoit and Wolf's."""

    fit: str
    calibrate: str
    outliers: str | None = None
    percentile: float = 95.0
    shrinkage: Share | None = None


class Variants(Part):
    """The precisions beside float32 of each role; of a fused graph, all precisions that are made."""

    backbone: tuple[Literal["float16", "int8"], ...] = (HALF, EIGHT)
    head: tuple[Literal["float16", "int8"], ...] = (HALF, EIGHT)
    ood: tuple[Literal["float16"], ...] = ()
    fused: tuple[Literal["float32", "int8"], ...] = ()


class Limits(Part):
    """What a release must keep; null lifts a limit.

    `parity` is the largest difference of an output to its parent: of float32 to the checkpoint, absolute; of the others to float32,
    in parts of the largest value (at least 1). `accuracy_loss` is of reduced precisions against float32. `size` is in bytes,
    `latency_p95` of backbone, head and detector together, in milliseconds. `ood_true_positive` is the least share of the outliers
    that is rejected.
    """

    parity: Mapping[Precision, float | None] = Field(
        default_factory=lambda: {PLAIN: 0.01, HALF: 0.02, EIGHT: 0.3}
    )
    accuracy_loss: Share | None = 0.01
    size: Mapping[Literal["backbone", "head", "ood", "fused"], Mapping[Precision, Bytes | None]] = Field(
        default_factory=lambda: {
            "backbone": {PLAIN: 120_000_000, HALF: 60_000_000, EIGHT: 32_000_000},
            "head": {PLAIN: 200_000, HALF: 200_000, EIGHT: 200_000},
        }
    )
    latency_p95: float | None = 200.0
    ood_true_positive: Share | None = 0.9


class FamilyRecipe(Part):
    """The whole of it. Paths are relative to the recipe's file.

    `evaluation` is an `.npz` file with `input` (float32 `[n, channels, height, width]`), `species` (class ids) and, for each head
    that can be judged, `head:<id>` (its classes, "" where a row is none of its).
    """

    format: Literal["onnxreg-family"]
    format_version: Literal[1]
    name: str
    license: str | None = None
    opset: Annotated[int, Field(ge=18, le=23)] = 18
    backbone: Backbone
    heads: Heads
    ood: Ood | None = None
    evaluation: str | None = None
    variants: Variants = Variants()
    limits: Limits = Limits()


def read_recipe(value: Any, what: str) -> FamilyRecipe:
    """Validate a decoded document; an InputError, naming `what`, has the path of the first field that is wrong."""
    try:
        return FamilyRecipe.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{what} at {where or 'the top'}: {first['msg']}", "docs/families.md has the keys") from error
