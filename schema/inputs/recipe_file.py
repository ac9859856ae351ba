"""A recipe as people write it (docs/recipes.md): a source, a tree of passes, outputs to publish, and limits on them.

`JobRow` is a row of a job file (docs/fleets.md).
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

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
from onnxreg.schema.core.errors import value_error
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.family import MemberName
from onnxreg.schema.manifest.manifest import Description, FormatName
from onnxreg.schema.manifest.vocabulary import check_license

StepName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
UpTo1024 = Annotated[Count, Field(gt=0, le=1_024)]
LEAST = frozenset({"min_cosine", "argmax_agreement"})  # these have a `min`: higher values are better


class RecipeStep(WrittenDocument):
    """One pass to run. It reads the result of the step `input` or, without `input`, the source.

    `data` is an `.npz` file or a directory of `.npz` files, which a pass reads for calibration. If a dependency of its
    pass is not installed, an `optional` step is skipped and recorded as skipped.
    """

    name: StepName
    pass_: Annotated[Text, Field(alias="pass")]
    input: StepName | None = None
    params: JsonObject = {}
    data: Text | None = None
    optional: bool = False


class RecipeOutput(WrittenDocument):
    """An output of the recipe: the result of a step, to be published. The default `format` is read from the graph.

    Golden vectors are recorded outputs, for tests in other runtimes. `golden` is their tolerance as a share of the
    largest output value. 0 means that no golden vectors are recorded. `member` is the artifact's name as a stage of a
    pipeline.
    """

    step: StepName
    path: RelPath | None = None
    format: FormatName | None = None
    golden: Annotated[float, Field(ge=0)] | None = None
    member: MemberName | None = None


class RecipeCheck(WrittenDocument):
    """A limit on a measurement of an output. If it is not met, nothing is published.

    `output` is a path, or `*` for all. The metric `bytes` is the size of the file. The other metrics compare the output
    with the source. If `share` is set, the limit of `max_abs_diff` is `share` times the source's largest value.
    """

    output: Text = "*"
    metric: Literal["max_abs_diff", "min_cosine", "argmax_agreement", "bytes"]
    max: float | None = None
    min: float | None = None
    share: float | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        limits = [name for name in ("max", "min", "share") if getattr(self, name) is not None]
        fits = ["min"] if self.metric in LEAST else ["max"]
        if self.metric == "max_abs_diff":
            fits.append("share")
        if len(limits) != 1 or limits[0] not in fits:
            raise ValueError(f"{self.metric} takes one limit: {' or '.join(fits)}")
        return self


class MetricLimit(WrittenDocument):
    """A metric that judges outputs. An output passes if its loss against the source is below `limit`.

    `settings` are for the metric's rule, such as `{min_gold_chars: 200}` for `character_recall`.
    """

    metric: Text
    limit: Annotated[float, Field(gt=0)] | None = None
    settings: JsonObject = {}


class EvaluationRequest(WrittenDocument):
    """An evaluation that judges outputs on a suite (docs/certification.md).

    `suite` is a path relative to the recipe. `name` is put before the metrics, as in `sts/spearman`. By default,
    `metrics` are all metrics of the task for which the suite has data, and `artifacts` are all outputs that are not
    float32. `item_scores` publishes scores of single items as sorted numbers. With `margin`, the whole interval of the
    loss must be below the limit. `label_map` maps a label of gold spans to a label of the model, or to null. Labels
    that map to null are not evaluated. `label_names: openmed` matches spellings that OpenMed treats as equal. `half` is
    one of two random halves of the suite's groups, drawn with `seed`. A search judges candidates on the half `choose`,
    and the winner on `confirm`.
    """

    suite: Text
    name: StepName | None = None
    metrics: Items[MetricLimit] = ()
    artifacts: Items[RelPath] = ()
    item_scores: bool = False
    margin: bool = False
    label_map: Table[Text | None] = {}
    label_names: Literal["openmed"] | None = None
    half: Literal["choose", "confirm"] | None = None
    seed: Count = 0


class SearchCandidate(WrittenDocument):
    """A candidate of a search: steps in order. The first step reads the result of the recipe's step that the search
    names as `input`.
    """

    name: StepName
    steps: Annotated[Items[RecipeStep], Field(min_length=1, max_length=8)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        for step, before in zip(self.steps, [None, *(step.name for step in self.steps)], strict=False):
            if step.input not in (None, before):
                raise ValueError(f"the step {step.name} has an input: it takes the result of the one before")
        return self


class SearchRequest(WrittenDocument):
    """A search for the smallest artifact that passes the recipe's evaluation (docs/certification.md).

    Candidates start from the result of the step `input`, and are judged on the suite of `evaluation`. The winner is
    judged once more on the suite `confirm`. Without `confirm`, the random seed `seed` splits the groups of the suite
    into two halves. The candidates are judged on one half, and the winner on the other. The default `candidates` are
    all built-in candidates. `objective` is `bytes`, `latency`, or `fast-enough`: the fewest bytes with at most 1.1
    times the latency of full precision on this machine. `output` is the winner's path without its precision:
    `model.onnx` gives `model_int8.onnx`. `calibration` has rows (`.npz`) for static quantization. The winner must meet
    `checks`, whose `output` is ignored.
    """

    input: StepName
    output: RelPath = "model.onnx"
    format: FormatName | None = None
    confirm: Text | None = None
    seed: Count = 0
    candidates: Items[StepName | SearchCandidate] = ()
    objective: Literal["fast-enough", "bytes", "latency"] = "fast-enough"
    calibration: Text | None = None
    checks: Items[RecipeCheck] = ()


class Benchmark(WrittenDocument):
    """A benchmark of the outputs on the CPU (docs/vision.md). For each batch size in `batches`, the number of timed
    runs is `runs`.
    """

    runs: Annotated[Count, Field(gt=0, le=100_000)] = 100
    threads: UpTo1024 = 1
    batches: Annotated[Items[UpTo1024], Field(min_length=1, max_length=8)] = (1, 8)


class FieldTranslation(WrittenDocument):
    """One field of another tool's document, its `value`, and what it `became` in the recipe.

    If the recipe does not use the field, `value` may be null.
    """

    field: Text
    value: Any
    became: Text


class ModelStatements(WrittenDocument):
    """A model's licence (an SPDX expression or a name that the Hub uses), and its description in one line."""

    license: Annotated[str, AfterValidator(value_error(check_license))] | None = None
    description: Description | None = None

    @property
    def statements(self) -> dict[str, str]:
        """The licence and the description, if they are set, by their keys in the manifest: `license`, `description`."""
        return self.model_dump(include={"license", "description"}, exclude_none=True)


class RecipeFile(ModelStatements):
    """A recipe: the source's task, the steps, their outputs and the limits.

    `options` are for the task. `translation` has the fields of another tool's document. A file for `reg export
    --recipe` must not have `profile`, `profile_version` or `translation`, because only the program sets these keys.
    """

    recipe: First = 1
    profile: Text = "recipe"
    profile_version: Count = 1
    name: ModelName | None = None
    source: Text | None = None
    task: Text
    options: JsonObject = {}
    steps: Annotated[Items[RecipeStep], Field(min_length=1, max_length=1_000)]
    outputs: Items[RecipeOutput] = ()
    checks: Items[RecipeCheck] = ()
    evaluation: EvaluationRequest | None = None
    search: SearchRequest | None = None
    benchmark: Benchmark | None = None
    translation: Items[FieldTranslation] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len({output.member is None for output in self.outputs}) > 1:
            raise ValueError("some outputs have a member, and others have none")
        if self.search is not None and self.evaluation is None:
            raise ValueError("a search needs an `evaluation`, whose suite it chooses on")
        return self


class JobRow(ModelStatements):
    """One export of `reg export --batch`. Paths are relative to the job file.

    A row has one of `profile` (a built-in recipe), `recipe` (a file) and `task`. `options` are for the profile or the
    task. The default `version` is the next patch, or 0.1.0. The default `name` comes from the recipe or the Hub.
    """

    source: Text | None = None
    name: ModelName | None = None
    version: Annotated[Text, AfterValidator(value_error(lambda text: str(Version.parse(text))))] | None = None
    profile: Text | None = None
    recipe: Text | None = None
    task: Text | None = None
    options: JsonObject = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.recipe is not None and self.options:
            raise ValueError("a recipe says its options itself")
        if self.source is None and self.recipe is None:
            raise ValueError("there is no source")
        return self
