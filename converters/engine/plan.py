"""Plan of an export: everything that the recipe needs is found, hashed and checked; nothing heavy is loaded.

A profile may promise more than its recipe: `ProfilePromises`.
"""

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
from onnxreg.converters.tasks.code.consent import Consent
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Task
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.inputs.recipe_file import LABELLED, RecipeFile, RecipeOutput, RecipeStep
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Source
from onnxreg.schema.manifest.parts import Step

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan
    from onnxreg.converters.evaluation.judgement import JudgedArtifact


@dataclass(frozen=True)
class ProfileOutput:
    """A graph to publish: its path in the workspace, its facts, and the steps that made it, its own last."""

    path: str
    files: tuple[str, ...]
    facts: GraphFacts
    steps: tuple[Step, ...]


class ProfilePromises:
    """The promises of a profile: by default none. A subclass makes some; the recipe's `profile` finds it.

    `keeps_source` is True if `finish` needs the loaded source; else its memory is freed before.
    """

    keeps_source = False

    def key(self) -> Mapping[str, Any]:
        """Return further facts that shape the draft."""
        return {}

    def check_source(self, source: LocatedSource) -> None:
        """Raise InputError for a source that no graph of the profile can be made of."""

    def check(self, output: ProfileOutput, subject: ExportSubject) -> None:
        """Raise ConversionError, naming the file, if a graph breaks a promise."""

    def fields(self, output: ProfileOutput) -> Mapping[str, Any]:
        """Return further keys of `manifest.Artifact` in JSON form, which override those read from the graph."""
        return {}

    def finish(
        self, draft: Draft, subject: ExportSubject, workspace: Path, judged: "Mapping[str, JudgedArtifact]"
    ) -> Draft:
        """Complete a draft. `judged` are the artifacts that an evaluation judged, by path."""
        return draft


@dataclass(frozen=True)
class ExportPlan:
    """A checked export. `name` is the model's; `outputs` are published, in order; `directory` is the
    recipe's; `start` is the source as the user named it.

    `document` and `package` belong to a profile of another package. `evaluation` judges outputs on a suite.
    `search` records the search that led to this plan; `file_names` are those of steps that are not published here.
    """

    recipe: RecipeFile
    name: str
    task: Task
    source: LocatedSource
    nodes: dict[str, steps.StepNode]
    outputs: list[RecipeOutput]
    promises: ProfilePromises
    directory: Path
    start: str
    document: Path | None = None
    package: str | None = None
    evaluation: "EvaluationPlan | None" = None
    search: Mapping[str, Any] | None = None
    file_names: Mapping[str, str] = field(default_factory=dict)

    def recorded_as(self, origin: Source | None) -> "ExportPlan":
        """Return the same plan with its source recorded under another id and revision; the digest stays that
        of its files.
        """
        if origin is None:
            return self
        source = origin.model_copy(update={"digest": self.source.digest})
        return replace(self, source=replace(self.source, origin=source))

    def without_code(self) -> "ExportPlan":
        """Return the same plan as it was recorded before recipes named the function that made the module."""
        return replace(self, source=replace(self.source, code=None))

    def warnings(self) -> Sequence[str]:
        """Warnings about the source and the evaluation, for people."""
        evaluation = () if self.evaluation is None else self.evaluation.warnings()
        return (*self.task.warnings(self.source), *evaluation)

    def key(self) -> dict[str, Any]:
        """Everything that shapes the draft: equal keys, equal drafts."""
        return {
            "recipe": self.recorded_recipe(),
            "name": self.name,
            "subject": self.subject_key(),
            "passes": {name: pass_key(node) for name, node in self.nodes.items()},
            "contract": dict(self.promises.key()),
            "packages": self.packages(),
            "tools": tools(),
            **({} if self.evaluation is None else {"evaluation": self.evaluation.key()}),
            **({} if self.search is None else {"search": dict(self.search)}),
            "searched": [str(digest_file(path)) for path in self._search_files() if path.is_file()],
        }

    def _search_files(self) -> list[Path]:
        """The files that the recipe's search names, and their directories."""
        search = self.recipe.search
        names = [] if search is None else [search.confirm, search.calibration]
        return self._files([*names, *_step_files(self._candidate_steps())])

    def _candidate_steps(self) -> list[RecipeStep]:
        """The steps of the candidates that the recipe defines."""
        candidates = () if self.recipe.search is None else self.recipe.search.candidates
        return [step for item in candidates if not isinstance(item, str) for step in item.steps]

    def _files(self, names: Iterable[str | None]) -> list[Path]:
        """Files and directories that the recipe names, and the rows in the directories."""
        paths = [self.directory / name for name in names if name is not None]
        return [
            *paths,
            *(path for folder in paths if folder.is_dir() for path in row_files(folder)),
        ]

    def packages(self) -> dict[str, str | None]:
        """Map third-party packages to versions: those of passes, of the task, of the profile and of code of
        the source.
        """
        kinds = [node.kind for node in self.nodes.values()]
        kinds += [pass_catalog.find(step.pass_) for step in self._candidate_steps()]
        parts = [type(self.task), type(self.promises), *kinds]
        brought = {name: version for part in parts for name, version in _packages(part).items()}
        profile_packages = [] if self.package is None else [self.package]
        return {**brought, **package_versions([*self.source.packages, *profile_packages])}

    @cached_property
    def options(self) -> dict[str, Any]:
        """The task's options as recorded; files that they name are hashed once, so all keys agree."""
        return self.task.record(self.source)

    def check_unchanged(self) -> None:
        """Raise InputError if the source or a file of the options has changed; a source of a hub never does."""
        if self.source.files is None:
            return
        current = self.task.find(self.start)
        source = replace(self.source, digest=current.digest, described=current.described)
        if replace(self, source=source).subject_key() != self.subject_key():
            raise InputError(
                "the source was changed while it was read", "export again once nothing writes to it"
            )

    def reads(self) -> list[Path] | None:
        """List every file that shapes the plan, and each directory whose names do; None if the task cannot
        tell.
        """
        if self.source.files is None:
            return None
        paths = self._files([*_step_files(self.recipe.steps), self.recipe.source])
        documents = [] if self.document is None else [self.document]
        documents += [] if self.evaluation is None else [self.evaluation.path]
        return [*self.source.files, *paths, *documents, *self._search_files()]

    def subject_key(self) -> dict[str, Any]:
        """Everything that shapes the subject."""
        task = {
            "id": self.task.id,
            "version": self.task.version,
            "options": self.options,
        }
        trusted = self.task.trust_remote_code
        origin = None if self.source.origin is None else self.source.origin.to_json()
        identity = {
            "source": str(self.source.digest),
            "origin": origin,
            "name": self.name,
            "trusted": trusted,
        }
        described = None if self.source.described is None else str(self.source.described)
        packages = package_versions(self.source.packages)
        return {"task": task, **identity, "described": described, "packages": packages, "tools": tools()}

    def recorded_recipe(self) -> dict[str, Any]:
        """Return the recipe as recorded: without paths, calibration data by digest."""
        value = self.recipe.to_json()
        value.pop("source", None)
        value.pop("name", None)
        value["options"] = dict(self.options)
        if self.evaluation is not None:
            value["evaluation"] = self.evaluation.recorded()
        for step, node in zip(value["steps"], self.recipe.steps, strict=True):
            data = self.nodes[node.name].data
            if data is not None:
                step["data"] = str(samples.digest(data))
            scales = self.nodes[node.name].scales
            if scales is not None:
                step["scales_from"] = scales.digest
        return value


def plan_export(
    recipe: RecipeFile,
    source: str | None = None,
    name: str | None = None,
    directory: Path = Path(),
    trust_remote_code: bool = False,
    promises: ProfilePromises | None = None,
    label: str = "",
    allow_code: Iterable[str] | Consent = (),
) -> ExportPlan:
    """Check a recipe, and find its source.

    Raises InputError for a recipe that cannot be run, NotFoundError or RemoteError if the source cannot be
    read.

    Args:
        source: in place of the recipe's own.
        name: the model's name; by default the recipe's, or the hub id.
        directory: base of the recipe's relative paths.
        label: name of the recipe in messages, if it has one.
        allow_code: the factories that may run: `module:function` of an installed one,
            `file.py:function` or `file.py` of any other.
    """
    consent = allow_code if isinstance(allow_code, Consent) else Consent.of(allow_code)
    with about(label):
        nodes = steps.nodes(recipe, directory)
        outputs = steps.outputs(recipe, nodes)
        task = task_catalog.find(recipe.task)(directory, trust_remote_code, consent, **recipe.options)
        evaluation = evaluation_of(recipe, directory)
    start = start_of(recipe, source, directory)
    _check_metrics(recipe, task)
    located = task.find(start)
    promises = promises or ProfilePromises()
    promises.check_source(located)
    if evaluation is not None:
        task.check_evaluation(located)
    model_name = _check_name(name or recipe.name or located.name)
    return ExportPlan(
        recipe,
        model_name,
        task,
        located,
        nodes,
        outputs,
        promises,
        directory,
        start,
        evaluation=evaluation,
    )


def evaluation_of(recipe: RecipeFile, directory: Path) -> "EvaluationPlan | None":
    """The plan of a recipe's evaluation, if it has one.

    Raises NotFoundError or InputError if its suite cannot be read, or does not fit the task.

    Args:
        directory: base of the recipe's relative paths.
    """
    if recipe.evaluation is None:
        return None
    from onnxreg.converters.evaluation.evaluation_plan import plan_evaluation

    outputs = steps.outputs(recipe, steps.nodes(recipe, directory))
    task = task_catalog.find(recipe.task).id
    return plan_evaluation(recipe.evaluation, task, directory, [str(output.path) for output in outputs])


def start_of(recipe: RecipeFile, source: str | None, directory: Path) -> str:
    """Return the source that the user names, else that of the recipe; InputError if neither names one."""
    start = source or (None if recipe.source is None else _beside(recipe.source, directory))
    if start is None:
        raise InputError(
            "there is nothing to export", "name a source: reg export SOURCE, or `source` in the recipe"
        )
    return start


def pass_key(node: steps.StepNode) -> dict[str, Any]:
    """Make the cache key of a pass: version, parameters with all defaults, and the versions of third-party
    packages.
    """
    key: dict[str, Any] = {"pass": node.kind.id, "version": node.kind.version}
    key["params"] = node.kind.read(node.step.params).model_dump(mode="json")
    if node.data is not None:
        key["data"] = str(samples.digest(node.data))
    if node.scales is not None:
        key["scales"] = node.scales.digest
    if packages := _packages(node.kind):
        key["package"] = packages
    return key


def _step_files(steps: Iterable[RecipeStep]) -> list[str]:
    """The files that steps name."""
    return [name for step in steps for name in (step.data, step.scales_from) if name is not None]


def _check_name(name: str | None) -> str:
    if name is None:
        raise InputError("a source on this machine has no model name of its own", "pass --name NAME")
    return check_name(name)


def _check_metrics(recipe: RecipeFile, task: Task) -> None:
    """Report a check that cannot be measured before hours of work."""
    metric = next((check.metric for check in recipe.checks if check.metric in LABELLED), None)
    if metric is not None and not task.has_dataset:
        raise InputError(
            f"a check of {metric} needs a dataset with labels", "name one: options: {dataset: FILE.npz}"
        )


def _beside(source: str, directory: Path) -> str:
    """Resolve a path that a recipe names against the recipe's directory; keep other sources."""
    path = directory / source
    return str(path) if path.exists() else source


def _packages(part: type) -> dict[str, str | None]:
    """Map the third-party packages of a class to their versions; empty for onnxreg's own."""
    top = part.__module__.partition(".")[0]
    return {} if top == "onnxreg" else package_versions(sorted(distributions().get(top, ())))
