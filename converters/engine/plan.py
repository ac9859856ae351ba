"""Plan of an export: every input of the recipe is found, hashed and checked; nothing heavy is loaded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.converters.engine import steps
from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.passes import pass_catalog
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.source.source_files import digest_file, row_files
from onnxreg.converters.source.toolchain import distributions, package_versions, tools
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.code import Consent
from onnxreg.converters.tasks.saved import Saved
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, ExportSubject, LocatedSource, Task
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, RecipeFile, RecipeOutput
from onnxreg.schema.manifest.parts import Step

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.evaluate import EvaluationPlan


@dataclass(frozen=True)
class ProfileOutput:
    """A graph to publish: its path in the workspace, its facts, and the steps that made it, in order."""

    path: str
    facts: GraphFacts
    steps: tuple[Step, ...]


class Promises:
    """Promises of a profile about its outputs: none in this base class. `package` is the profile's distribution."""

    package: str | None = None

    def check_source(self, source: LocatedSource) -> None:
        """Raise InputError if the profile cannot use this source."""

    def check(self, output: ProfileOutput, subject: ExportSubject) -> None:
        """Raise ConversionError, naming the file, if a graph breaks a promise."""

    def fields(self, output: ProfileOutput) -> Mapping[str, Any]:
        """Return further keys of `manifest.Artifact` in JSON form, which override those read from the graph."""
        return {}


@dataclass(frozen=True)
class RecipeParts:
    """Steps, outputs, task and evaluation of a recipe, and the source as the user named it (`start`).

    `confirm` is the evaluation on the file to confirm the winner of a search on, if the recipe names one.
    """

    nodes: dict[str, steps.StepNode]
    outputs: list[RecipeOutput]
    task: Task
    evaluation: "EvaluationPlan | None"
    confirm: "EvaluationPlan | None"
    start: str


@dataclass(frozen=True)
class ExportPlan(RecipeParts):
    """A checked export. `name` is the model's name; `outputs` are the outputs to publish, in order; relative paths of
    the recipe begin at `directory`.

    `evaluation` judges outputs on a suite. `search` records the search that led to this plan; `file_names` has the file
    names of steps that this plan does not publish.
    """

    recipe: RecipeFile
    name: str
    source: LocatedSource
    profile: Promises
    directory: Path
    search: Mapping[str, Any] | None = None
    file_names: Mapping[str, str] = field(default_factory=dict)

    def warnings(self) -> Sequence[str]:
        """Warnings about the source and the evaluation, for people."""
        source = ["the checkpoint has no tokenizer: the version can be run on tensors only"]
        evaluation = () if self.evaluation is None else self.evaluation.warnings()
        return (*(source if self.source.lacks_tokenizer else ()), *evaluation)

    def key(self) -> dict[str, Any]:
        """Return everything that affects the draft: plans with equal keys give equal drafts."""
        search = self.recipe.search
        candidates = [] if search is None else search.candidates
        tried = [step for item in candidates if not isinstance(item, str) for step in item.steps]
        names = [] if search is None else [search.calibration, *(step.data for step in tried)]
        paths = [self.directory / name for name in names if name is not None]
        searched = [file for path in paths for file in row_files(path)]
        packages = _packages(type(self.profile))
        for step in tried:
            packages |= _packages(pass_catalog.find(step.pass_))
        named = [*self.source.packages, *filter(None, [self.profile.package])]
        return {
            "recipe": self.recorded_recipe(),
            "name": self.name,
            "subject": self.subject_key(),
            "passes": {name: pass_key(node) for name, node in self.nodes.items()},
            "packages": {**packages, **package_versions(named)},
            **({} if self.evaluation is None else {"evaluation": self.evaluation.key()}),
            **({} if self.search is None else {"search": dict(self.search)}),
            "searched": [str(digest_file(path)) for path in searched],
            **({} if self.confirm is None else {"confirm": self.confirm.recorded()}),
        }

    @cached_property
    def options(self) -> dict[str, Any]:
        """The task's options as recorded. Files in them are hashed once, so that all keys have equal digests."""
        return self.task.record(self.source)

    def check_unchanged(self) -> None:
        """Raise InputError if the source or a file of the options has changed; a source on a hub cannot change."""
        if self.source.files is None:
            return
        current = self.task.find(self.start)
        source = replace(self.source, digest=current.digest, described=current.described)
        if replace(self, source=source).subject_key() != self.subject_key():
            raise InputError(
                "the source was changed while it was read", "export again once nothing writes to it"
            )

    def subject_key(self) -> dict[str, Any]:
        """Return everything that affects the subject."""
        source = self.source
        return {
            "task": {"id": self.task.id, "options": self.options},
            "source": str(source.digest),
            "origin": None if source.origin is None else source.origin.to_json(),
            "name": self.name,
            "trusted": self.task.trust_remote_code,
            "described": None if source.described is None else str(source.described),
            "packages": package_versions(source.packages),
            "tools": tools(),
        }

    def recorded_recipe(self) -> dict[str, Any]:
        """Return the recipe as recorded: without paths, and with the digests of calibration data."""
        value = {key: item for key, item in self.recipe.to_json().items() if key not in ("source", "name")}
        value["options"] = dict(self.options)
        if self.evaluation is not None:
            value["evaluation"] = self.evaluation.recorded()
        for step in value["steps"]:
            step.update(_data_digests(self.nodes[step["name"]]))
        return value


def plan_export(
    recipe: RecipeFile,
    source: str | None = None,
    name: str | None = None,
    directory: Path = Path(),
    trust_remote_code: bool = False,
    profile: Promises | None = None,
    label: str = "",
    allow_code: Iterable[str] | Consent = (),
) -> ExportPlan:
    """Check a recipe, and find its source.

    Raises InputError for a recipe that cannot be run, NotFoundError or RemoteError if the source cannot be read.

    Args:
        source: replaces the recipe's own source.
        name: the model's name; by default the recipe's name, or the hub id.
        directory: base of the recipe's relative paths.
        label: the recipe's name in messages; may be empty.
        allow_code: the factories that may run: `module:function` for an installed module,
            `file.py:function` or `file.py` for a file.
    """
    consent = allow_code if isinstance(allow_code, Consent) else Consent.of(allow_code)
    parts = read_parts(recipe, source, directory, trust_remote_code, consent, label)
    task, start = parts.task, parts.start
    if label and task.id != "onnx" and Path(start).suffix == ".onnx" and Path(start).is_file():
        raise InputError(
            f"{label}: its task is {recipe.task}, and {start} is an ONNX file", "write `task: onnx` there"
        )
    located, profile = task.find(start), profile or Promises()
    profile.check_source(located)
    for judged in filter(None, (parts.evaluation, parts.confirm)):
        if located.lacks_tokenizer:
            reason = "the checkpoint has no tokenizer, so the texts of an evaluation cannot be read"
            raise InputError(reason, SAVE_TOKENIZER)
        judged.evaluator.check_source(judged.suite, located.location)
    hub_name = None if located.origin is None else located.origin.id.lower()
    model_name = name or recipe.name or hub_name
    if model_name is None:
        raise InputError("a source on this machine has no model name of its own", "pass --name NAME")
    own: dict[str, Any] = {"recipe": recipe, "name": check_name(model_name), "source": located}
    return ExportPlan(**vars(parts), **own, profile=profile, directory=directory)


def read_parts(
    recipe: RecipeFile,
    source: str | None,
    directory: Path,
    trust_remote_code: bool,
    consent: Consent,
    label: str,
) -> RecipeParts:
    """Find everything that a recipe names, without reading the source. Messages call the recipe `label`.

    Raises InputError for a recipe that cannot be run, NotFoundError for a missing suite.
    """
    start = recipe.source if source is None else source
    if source is None and start is not None and (directory / start).exists():
        start = str(directory / start)
    with about(label):
        nodes = steps.nodes(recipe, directory)
        outputs = steps.outputs(recipe, nodes)
        passes = {node.kind.id for node in nodes.values()}
        kind = task_catalog.of_source(task_catalog.find(recipe.task), start or "", recipe.options, passes)
        task = kind(directory, trust_remote_code, consent, **recipe.options)
        paths = [str(output.path) for output in outputs]

        def planned(request: EvaluationRequest) -> "EvaluationPlan":
            from onnxreg.converters.evaluation.evaluate import plan_evaluation

            plan = plan_evaluation(request, task.id, directory, paths)
            if not plan.suite.items:
                message = f"the suite {request.suite} has no items: nothing can be judged on it"
                raise InputError(message, "docs/certification.md shows the items of each task")
            return plan

        request, search = recipe.evaluation, recipe.search
        evaluation = confirm = None
        if request is not None:
            from onnxreg.converters.evaluation.evaluate import nothing_to_judge

            evaluation = planned(request)
            lines = (node for output in outputs for node in nodes[output.step].lineage())
            is_named = search is not None or request.artifacts
            if isinstance(task, Saved) and not is_named and all(node.is_exact for node in lines):
                raise nothing_to_judge()
            if search is not None and search.confirm is not None:
                confirm = planned(request.model_copy(update={"suite": search.confirm}))
    if start is None:
        raise InputError(
            "there is nothing to export", "name a source: reg export SOURCE, or `source` in the recipe"
        )
    return RecipeParts(nodes, outputs, task, evaluation, confirm, start)


def pass_key(node: steps.StepNode) -> dict[str, Any]:
    """Make the cache key of a pass: version, parameters with all defaults, and versions of third-party packages."""
    params, packages = node.kind.read(node.step.params).model_dump(mode="json"), _packages(node.kind)
    key = {"pass": node.kind.id, "version": node.kind.version, "params": params, **_data_digests(node)}
    return {**key, "package": packages} if packages else key


def _data_digests(node: steps.StepNode) -> dict[str, str]:
    """Return the digests of the files that a step names, by the step's keys."""
    return {} if node.data is None else {"data": str(samples.digest(node.data))}


def _packages(part: type) -> dict[str, str | None]:
    """Map the third-party packages that define a class to their versions; empty for onnxreg's own classes."""
    top = part.__module__.partition(".")[0]
    return {} if top == "onnxreg" else package_versions(sorted(distributions().get(top, ())))
