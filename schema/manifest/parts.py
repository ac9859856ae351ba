"""Parts of a manifest that other documents share: certification, the recorded recipe, and image preprocessing."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import (
    Count,
    Document,
    FrozenDict,
    Items,
    JsonObject,
    RuledDocument,
    Table,
    Text,
)
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.rules import CHANNELS, ArtifactCertificationRules, CheckRules, PreprocessingRules

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


class Step(Document):
    """One pass that was applied, with its parameters and its result.

    `input` names the earlier step whose graph it read (absent: the source). `skipped` has the reason if the
    pass could not run and the profile allows that; the reason names a dependency, never data.
    """

    name: Text
    pass_: Annotated[Text, Field(alias="pass")]
    version: Count
    params: JsonObject
    input: Text | None = None
    result: JsonObject = Field(default_factory=FrozenDict)
    skipped: Text | None = None


class Code(Document):
    """The function that made the model, `module:function`, which `--allow-code` allowed.

    A function of a Python file is bound by `digest`: that of the file, or of all Python files of its package
    as a directory. An installed function is bound by its `distribution` and that distribution's `version`;
    `python` means Python's own.
    """

    name: Text
    digest: Digest | None = None
    distribution: Text | None = None
    version: Text | None = None


class Recipe(Document):
    """A profile with all its parameters, as it was run.

    `tools` maps a tool's name to its version, for the tools (and, as `isa`, the instruction-set class of the
    machine) that shape bytes: the promise of a rebuild holds for equal tools. `trust_remote_code` is for the
    code of a transformers checkpoint, `code` for the function that made the module.
    """

    profile: Text
    profile_version: Count
    steps: Items[Step]
    tools: Table[str]
    parameters: JsonObject = Field(default_factory=FrozenDict)
    trust_remote_code: bool = False
    code: Code | None = None


class Check(CheckRules, RuledDocument):
    """A measured claim.

    `value` is None if it could not be measured; `dataset` is the digest of the data it was measured on;
    `interval` is a 95 % interval of the value, if one was computed; `direction` says which values are better.
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


class Evidence(Document):
    """The bytes that a verdict is bound to: artifact, full-precision parent, evaluation suite, report.

    `synthetic`: True if the suite says that its texts are synthetic; None if it does not say.
    """

    artifact: Digest
    parent: Digest | None = None
    suite: Digest | None = None
    report: Digest | None = None
    synthetic: bool | None = None


class ArtifactCertification(ArtifactCertificationRules, RuledDocument):
    """The certification of an artifact: its state, the rule, and the reasons."""

    state: Literal["certified", "refused", "unknown"]
    rule: Text | None = None
    reasons: Items[Text] = ()
    evidence: Evidence | None = None
