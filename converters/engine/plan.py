"""Plan an export: read the recipe; find, hash and check every input. Nothing heavy is loaded."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.passes import pass_catalog, samples
from onnxreg.converters.passes.base import GraphPass, Pass
from onnxreg.converters.passes.model_builder import GRAPH as GENERATOR
from onnxreg.converters.source.source_files import digest_file, row_files
from onnxreg.converters.source.toolchain import package_versions, tools
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.checkpoint import Saved
from onnxreg.converters.tasks.code import Consent
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, ExportSubject, LocatedSource, Task
from onnxreg.schema.core.bounds import MAX_TEXT_BYTES
from onnxreg.schema.core.errors import InputError, about, suggest
from onnxreg.schema.core.files import read_given, read_yaml
from onnxreg.schema.core.ref import check_distinct, check_name
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.inputs.recipe_file import RecipeFile, RecipeOutput, RecipeStep
from onnxreg.schema.manifest.manifest import Step

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.evaluate import EvaluationPlan


GOLDEN_PREFIX = "golden-"
"""The names of steps that write golden vectors begin with this prefix; names of a user's steps may not."""
OWN_RECIPE = RecipeFile.model_fields["profile"].default
"""The value of the key `profile` in a recipe of a user. A profile's recipe has the name of the profile."""
PROFILE_KEYS = ("profile", "profile_version")
RESERVED_KEYS = (*PROFILE_KEYS, "translation")
"""The keys that a user's recipe must not have, because onnxreg itself writes them into a recipe."""


def read_recipe(path: Path, name: str | None = None) -> RecipeFile | FamilyFile:
    """Read a family's document (if it has the key `family`) or a recipe. `name` replaces the family's name.

    Raises the errors of `read_document`. Raises InputError if the document is invalid or has `RESERVED_KEYS`.
    """
    value = read_document(path)
    if isinstance(value, dict):
        if "family" in value:
            return FamilyFile.from_json(value if name is None else {**value, "name": name}, path.name)
        if key := next((key for key in RESERVED_KEYS if key in value), None):
            raise InputError(f"{path.name}: {key} is a reserved key", "remove it: the program writes it")
    return from_value(value, path.name)


def read_document(path: Path, label: str = "recipe") -> Any:
    """Read a YAML or JSON file. A repeated key is an error. `label` is the kind of file in messages.

    Raises NotFoundError if the file is missing, and InputError if it is invalid.
    """
    return read_yaml(read_given(path, label, "check the path", MAX_TEXT_BYTES), path.name, "export")


def from_value(value: Any, label: str) -> RecipeFile:
    """Make a recipe from a document of onnxreg, Olive or Orchard. Raise InputError for a wrong key or value."""
    if not isinstance(value, dict):
        raise InputError(f"{label} is not a recipe: it has no keys")
    if "input_model" in value or "passes" in value or "export" in value:
        from onnxreg.converters.engine import foreign

        is_orchard = "export" in value and not {"input_model", "passes"} & value.keys()
        with about(label):
            value = (foreign.translate_orchard if is_orchard else foreign.translate_olive)(value)
    return RecipeFile.from_json(value, label)


@dataclass(frozen=True)
class StepNode:
    """A step with its pass. `parent` is the step whose result it takes, or None if it takes the source itself.

    `second` is the other step if the pass takes two graphs. `data` is calibration data.
    """

    step: RecipeStep
    kind: type[Pass[Any, Any]]
    parent: "StepNode | None"
    second: "StepNode | None" = None
    data: Sequence[samples.Feed] | None = None

    @property
    def name(self) -> str:
        return self.step.name

    def make(self, second_graph: Any = None) -> Pass[Any, Any]:
        """Make the pass from the step's parameters. A pass that takes two graphs needs `second_graph`."""
        return self.kind(self.data, second_graph, **self.step.params)

    @property
    def is_exact(self) -> bool:
        """True if the pass keeps full precision."""
        return self.kind.takes == "module" or self.kind.tolerance is not None

    def lineage(self) -> "list[StepNode]":
        """Return this step, its parent, and so on up to a step that takes the source."""
        line = [self]
        while (parent := line[-1].parent) is not None:
            line.append(parent)
        return line

    def data_digests(self) -> dict[str, str]:
        """Return `{"data": DIGEST}`, or {} if the step has no calibration data."""
        return {} if self.data is None else {"data": str(samples.digest(self.data))}

    @property
    def identity(self) -> dict[str, Any]:
        """The entries of the pass in a cache key: version, parameters with defaults, and calibration data."""
        params = self.kind.read(self.step.params).model_dump(mode="json")
        return {"pass": self.kind.id, "version": self.kind.version, "params": params, **self.data_digests()}

    def file_name(self, output: RecipeOutput | None = None) -> str:
        """Return the name of the step's main file. Raise InputError if the pass cannot name it as `output` requests."""
        requested = None if output is None or output.path is None else PurePosixPath(output.path).name
        suffix = ".ort" if self.kind.takes == "file" else ".onnx"
        name = GENERATOR if self.kind.takes == "checkpoint" else f"{self.name}{suffix}"
        if requested is None or requested == name:
            return name
        if self.kind.takes != "checkpoint" and requested.endswith(suffix):
            return requested
        ending = name if name == GENERATOR else f"a name that ends in {suffix}"
        hint = f"its file has {ending}: path: {name}"
        raise InputError(f"step {self.name}: {self.kind.id} cannot write {requested}", hint)


def plan_steps(recipe: RecipeFile, directory: Path) -> dict[str, StepNode]:
    """Return the steps by name, parents before children. Paths are relative to `directory`.

    Raises InputError about a step with an invalid name, parent, pass, parameter or file.
    """
    names = [step.name for step in recipe.steps]
    inputs: dict[str, list[str]] = {}
    for step in recipe.steps:
        if step.name in inputs:
            raise InputError(f"two steps are called {step.name}", "give each step a name of its own")
        if step.name.startswith(GOLDEN_PREFIX):
            message = f"step {step.name}: names that begin with {GOLDEN_PREFIX} are those of golden vectors"
            raise InputError(message, "give it another name")
        with about(f"step {step.name}"):
            second = step.params.get(pass_catalog.find(step.pass_).second or "")
            inputs[step.name] = [name for name in (step.input, second) if isinstance(name, str)]
            if missing := next((name for name in inputs[step.name] if name not in names), None):
                raise InputError(f"there is no step called {missing}", suggest(missing, names))
    sorter = TopologicalSorter(inputs)
    try:
        sorter.prepare()
    except CycleError as error:
        message = f"steps are each other's input: {' <- '.join(reversed(error.args[1]))}"
        raise InputError(message, "the first step of a line has no `input`: it takes the source") from None
    nodes_by_name: dict[str, StepNode] = {}
    while ready := sorter.get_ready():
        for step in recipe.steps:
            if step.name in ready:
                with about(f"step {step.name}"):
                    nodes_by_name[step.name] = _node(step, nodes_by_name, directory)
        sorter.done(*ready)
    return nodes_by_name


def _node(step: RecipeStep, nodes_by_name: Mapping[str, StepNode], directory: Path) -> StepNode:
    kind, data = pass_catalog.find(step.pass_), None
    parent = None if step.input is None else nodes_by_name[step.input]
    if step.data is not None:
        if not (directory / step.data).exists():
            raise InputError(f"no file exists at {step.data}", "paths are relative to the recipe")
        data = samples.read(directory / step.data)
        if not issubclass(kind, GraphPass):
            raise InputError(f"{kind.id} takes no data", "leave `data` out")
    params = kind.read(step.params)
    second = None if kind.second is None else nodes_by_name[getattr(params, kind.second)]
    return StepNode(step, kind, parent, second, data)


def plan_outputs(recipe: RecipeFile, steps: Mapping[str, StepNode]) -> list[RecipeOutput]:
    """Return the outputs with their paths. By default, the outputs are the steps whose results no other step takes.

    Raises InputError if an output or a check is invalid.
    """
    taken = {one.name for node in steps.values() for one in (node.parent, node.second) if one is not None}
    output_specs = recipe.outputs or [RecipeOutput(step=name) for name in steps if name not in taken]
    step_names = [output.step for output in output_specs]
    for step in step_names:
        if step not in steps:
            raise InputError(f"an output names the step {step}, which is not there", suggest(step, steps))
        if step_names.count(step) > 1:
            raise InputError(f"two outputs name the step {step}", "a step is published once: leave one out")
    paths = []
    for output in output_specs:
        folder = PurePosixPath(output.path or "").parent
        paths.append((folder / steps[output.step].file_name(output)).as_posix())
    if hidden := next((path for path in paths if path.startswith(".")), None):
        message = f"an output cannot be at {hidden}: names that begin with a dot are the program's own"
        raise InputError(message, "give it another path")
    with about("outputs", hint="give each a path of its own"):
        check_distinct(paths)
    limited = [(check.output, check.metric) for check in recipe.checks]
    for name, metric in limited:
        if name not in ("*", *paths):
            raise InputError(f"a check is about {name}, which is not an output", suggest(name, paths))
        if limited.count((name, metric)) > 1:
            raise InputError(f"two checks limit {metric} of {name}", "state one limit")
    pairs = zip(output_specs, paths, strict=True)
    return [output.model_copy(update={"path": path}) for output, path in pairs]


@dataclass(frozen=True)
class ProfileOutput:
    """A graph to publish: its path in the workspace, its facts, and the steps that made it, in order."""

    path: str
    facts: GraphFacts
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Profile:
    """A named recipe. A subclass may override its public methods.

    `name` is the name of the profile's entry point. `modules` must be installed.
    """

    document: Path
    name: str | None = None
    modules: ClassVar[tuple[str, ...]] = ()

    def option_names(self) -> tuple[str, ...]:
        """Return the names of the profile's options: by default only `checkpoint`, the file of a module's weights."""
        return ("checkpoint",)

    def recipe_for(self, options: Mapping[str, Any], suite: Path | None, is_search: bool) -> RecipeFile:
        """Return the recipe with `options`. A subclass may choose other steps if there is a suite or a search."""
        recipe = self.recipe()
        return recipe.model_copy(update={"options": {**recipe.options, **options}})

    def check_source(self, source: LocatedSource) -> None:
        """Raise InputError if the profile cannot use this source."""

    def check(self, output: ProfileOutput, subject: ExportSubject) -> None:
        """Raise ConversionError, with the file's name, if a graph breaks a promise of the profile."""

    def fields(self, output: ProfileOutput) -> Mapping[str, Any]:
        """Return fields of `manifest.Artifact` in JSON form. They replace what was read from the graph."""
        return {}

    def text(self) -> str:
        """Return the recipe's text for a user to edit, without the keys that only a profile may have."""
        lines = self.document.read_text("utf-8").splitlines()
        return "\n".join(line for line in lines if line.partition(":")[0] not in PROFILE_KEYS)

    def recipe(self) -> RecipeFile:
        recipe = from_value(read_document(self.document), self.document.name)
        return recipe if self.name is None else recipe.model_copy(update={"profile": self.name})


@dataclass(frozen=True)
class RecipeParts:
    """A recipe's steps, outputs, task and evaluation. `start` is the source as the user named it.

    `confirm` is a second evaluation, which judges the winner of a search.
    """

    nodes: dict[str, StepNode]
    outputs: list[RecipeOutput]
    task: Task
    evaluation: "EvaluationPlan | None"
    confirm: "EvaluationPlan | None"
    start: str


@dataclass(frozen=True)
class ExportPlan(RecipeParts):
    """A checked recipe with its source, ready to run. `name` is the model's name.

    Paths in the recipe are relative to `directory`. `search` is the record of the search that chose this plan.
    `file_names` has the file names of steps whose results are not published.
    """

    recipe: RecipeFile
    name: str
    source: LocatedSource
    profile: Profile | None
    directory: Path
    search: Mapping[str, Any] | None = None
    file_names: Mapping[str, str] = field(default_factory=dict)

    def warnings(self) -> Sequence[str]:
        source = ["the checkpoint has no tokenizer: the version can be run on tensors only"]
        evaluation = () if self.evaluation is None else self.evaluation.warnings()
        return (*(source if self.source.lacks_tokenizer else ()), *evaluation)

    def key(self) -> dict[str, Any]:
        """Return all that affects the draft: plans with equal keys give equal drafts."""
        search = self.recipe.search
        candidates = [] if search is None else search.candidates
        tried = [step for item in candidates if not isinstance(item, str) for step in item.steps]
        names = [] if search is None else [search.calibration, *(step.data for step in tried)]
        paths = [self.directory / name for name in names if name is not None]
        searched = [file for path in paths for file in row_files(path)]
        return {
            "recipe": self.recorded_recipe(),
            "subject": self.subject,
            "passes": {name: node.identity for name, node in self.nodes.items()},
            "metrics": {} if self.evaluation is None else self.evaluation.versions,
            **({} if self.search is None else {"search": dict(self.search)}),
            "searched": [str(digest_file(path)) for path in searched],
            **({} if self.confirm is None else {"confirm": self.confirm.recorded()}),
        }

    @cached_property
    def options(self) -> dict[str, Any]:
        """The task's options as a manifest records them: digests instead of files."""
        return self.task.record(self.source)

    def check_unchanged(self) -> None:
        """Raise InputError if the source or a file of the options has changed since planning."""
        if self.source.files is None:
            return
        current = self.task.find(self.start)
        source = replace(self.source, digest=current.digest, described=current.described)
        if replace(self, source=source).subject != self.subject:
            hint = "export again once nothing writes to it"
            raise InputError("the source was changed while it was read", hint)

    @property
    def subject(self) -> dict[str, Any]:
        """The entries of the source in a cache key."""
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
        """Return the recipe as the manifest records it: digests instead of paths."""
        value = {key: item for key, item in self.recipe.to_json().items() if key not in ("source", "name")}
        value["options"] = dict(self.options)
        if self.evaluation is not None:
            value["evaluation"] = self.evaluation.recorded()
        for step in value["steps"]:
            step.update(self.nodes[step["name"]].data_digests())
        return value


def plan_export(
    recipe: RecipeFile,
    source: str | None = None,
    name: str | None = None,
    directory: Path = Path(),
    trust_remote_code: bool = False,
    profile: Profile | None = None,
    label: str = "",
    allow_code: Iterable[str] | Consent = (),
) -> ExportPlan:
    """Check a recipe, and find its source. Paths in the recipe are relative to `directory`.

    Raises InputError for a recipe that cannot be run, NotFoundError or RemoteError if the source cannot be read.

    Args:
        source: replaces the recipe's source.
        name: the model's name; by default the recipe's name, or the hub id.
        label: the recipe's name in messages.
        allow_code: the code that may run to make a model: `module:function`, `file.py:function` or `file.py`.
    """
    parts = read_parts(recipe, source, directory, trust_remote_code, allow_code, label)
    task, start = parts.task, parts.start
    if label and task.id != "onnx" and Path(start).suffix == ".onnx" and Path(start).is_file():
        message = f"{label}: its task is {recipe.task}, and {start} is an ONNX file"
        raise InputError(message, "write `task: onnx` there")
    located = task.find(start)
    if profile is not None:
        profile.check_source(located)
    if parts.evaluation is not None and located.lacks_tokenizer:
        reason = "the checkpoint has no tokenizer, so the texts of an evaluation cannot be read"
        raise InputError(reason, SAVE_TOKENIZER)
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
    allow_code: Iterable[str] | Consent,
    label: str,
) -> RecipeParts:
    """Find all files that a recipe names. The source is not read. Messages call the recipe `label`.

    Raises InputError for a recipe that cannot be run, and NotFoundError for a missing suite.
    """
    start = recipe.source if source is None else source
    if source is None and start is not None and (directory / start).exists():
        start = str(directory / start)
    with about(label):
        nodes = plan_steps(recipe, directory)
        outputs = plan_outputs(recipe, nodes)
        passes = {node.kind.id for node in nodes.values()}
        kind = task_catalog.of_source(task_catalog.find(recipe.task), start or "", recipe.options, passes)
        task = kind(directory, trust_remote_code, Consent.of(allow_code), **recipe.options)
        paths = [str(output.path) for output in outputs]

        request, search = recipe.evaluation, recipe.search
        evaluation = confirm = None
        if request is not None:
            from onnxreg.converters.evaluation.evaluate import nothing_to_judge, plan_evaluation

            def planned(suite: str) -> "EvaluationPlan":
                on_suite = request.model_copy(update={"suite": suite})
                try:
                    plan = plan_evaluation(on_suite, task.id, directory, paths)
                except InputError as error:
                    if recipe.profile != OWN_RECIPE:
                        profile, noun = recipe.profile, task.head.description or task.id
                        way = f"{profile} judges {noun}; for another model: --task TASK --quantize in place of --profile"
                        error.hint = "; ".join(filter(None, (error.hint, way)))
                    raise
                if not plan.suite.items:
                    message = f"the suite {suite} has no items: nothing can be judged on it"
                    raise InputError(message, "docs/certification.md shows the items of each task")
                return plan

            evaluation = planned(request.suite)
            lines = (node for output in outputs for node in nodes[output.step].lineage())
            is_named = search is not None or request.artifacts
            if isinstance(task, Saved) and not is_named and all(node.is_exact for node in lines):
                raise nothing_to_judge()
            if search is not None and search.confirm is not None:
                confirm = planned(search.confirm)
    if start is None:
        hint = "name a source: reg export SOURCE, or `source` in the recipe"
        raise InputError("there is nothing to export", hint)
    return RecipeParts(nodes, outputs, task, evaluation, confirm, start)
