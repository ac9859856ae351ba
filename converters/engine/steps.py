"""Reads a recipe in YAML or JSON, also Olive's or Orchard's document; makes a tree of its steps, and checks them before any runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.passes import pass_catalog
from onnxreg.converters.passes.base import GraphPass, Pass
from onnxreg.converters.passes.model_builder import GRAPH as GENERATOR
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.bounds import MAX_TEXT_BYTES
from onnxreg.schema.core.errors import InputError, about, suggest
from onnxreg.schema.core.files import read_given, read_yaml
from onnxreg.schema.core.ref import check_distinct
from onnxreg.schema.inputs.recipe_file import RecipeFile, RecipeOutput, RecipeStep

GOLDEN_PREFIX = "golden-"
"""Prefix of the names of steps that write golden vectors; users' steps may not begin with this."""
PROFILE_KEYS = ("profile", "profile_version")
RESERVED_KEYS = (*PROFILE_KEYS, "translation")
"""Recipe keys that only onnxreg writes."""
FAMILY_KEY = "family"
"""Recipe key that only the document of a model family has."""


@dataclass(frozen=True)
class RecipeDocument:
    """The decoded content of a YAML or JSON file with a recipe or a family."""

    path: Path
    value: Any

    @classmethod
    def read(cls, path: Path) -> "RecipeDocument":
        """Read a file. Raises the errors of `read_document`."""
        return cls(path, read_document(path, "recipe"))

    @property
    def is_family(self) -> bool:
        return isinstance(self.value, dict) and FAMILY_KEY in self.value

    def recipe(self) -> RecipeFile:
        """Make a recipe. Raises InputError if the document is not a recipe, or has keys that only onnxreg writes."""
        reserved = RESERVED_KEYS if isinstance(self.value, dict) else ()
        if key := next((key for key in reserved if key in self.value), None):
            raise InputError(f"{self.path.name}: {key} is a reserved key", "remove it: the program writes it")
        return from_value(self.value, self.path.name)


def read_document(path: Path, label: str = "recipe") -> Any:
    """Read the value of a YAML or JSON file. The file cannot run code, and a repeated key is an error.

    Raises NotFoundError for a missing file, InputError if the file is neither YAML nor JSON; `label` names the kind of
    document.
    """
    return read_yaml(read_given(path, label, "check the path", MAX_TEXT_BYTES), path.name, "export")


def from_value(value: Any, label: str) -> RecipeFile:
    """Make a recipe from a decoded document. A document with `passes` is Olive's, one with `export` is Orchard's.

    Raises InputError, naming the wrong key.
    """
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
    """A step with its pass. `parent` is the step whose result this step takes; None if it takes the source.

    If the pass takes two graphs, `second` is the step of the other one.
    """

    step: RecipeStep
    kind: type[Pass[Any, Any]]
    parent: "StepNode | None"
    second: "StepNode | None" = None
    data: Sequence[samples.Feed] | None = None

    @property
    def name(self) -> str:
        return self.step.name

    def make(self, beside: Any = None) -> Pass[Any, Any]:
        """Make the pass with its parameters, the calibration data if the step has some, and the second graph `beside`."""
        given = {"data": self.data, "beside": beside}
        given = {name: value for name, value in given.items() if value is not None}
        return self.kind(**given, **self.step.params)

    @property
    def is_exact(self) -> bool:
        """True if the pass keeps full precision: it exports a module, or may not round."""
        return self.kind.takes == "module" or getattr(self.kind, "tolerance", None) is not None

    def lineage(self) -> "list[StepNode]":
        """List the steps from this one up to the source, this one first."""
        line = [self]
        while (parent := line[-1].parent) is not None:
            line.append(parent)
        return line


def nodes(recipe: RecipeFile, directory: Path) -> dict[str, StepNode]:
    """Map names to steps: parents before children, otherwise in the recipe's order.

    Raises InputError, naming the step, for a repeated or reserved name, a missing parent, a cycle, an unknown pass or
    invalid parameters, and data that cannot be read.

    Args:
        directory: base of the paths of calibration data.
    """
    names = [step.name for step in recipe.steps]
    inputs: dict[str, list[str]] = {}
    for step in recipe.steps:
        if step.name in inputs:
            raise InputError(f"two steps are called {step.name}", "give each step a name of its own")
        if step.name.startswith(GOLDEN_PREFIX):
            raise InputError(
                f"step {step.name}: names that begin with {GOLDEN_PREFIX} are those of golden vectors",
                "give it another name",
            )
        with about(f"step {step.name}"):
            second = step.params.get(pass_catalog.find(step.pass_).second or "")
            inputs[step.name] = [name for name in (step.input, second) if isinstance(name, str)]
            if missing := next((name for name in inputs[step.name] if name not in names), None):
                raise InputError(f"there is no step called {missing}", suggest(missing, names))
    sorter = TopologicalSorter(inputs)
    try:
        sorter.prepare()
    except CycleError as error:
        raise InputError(
            f"steps are each other's input: {' <- '.join(reversed(error.args[1]))}",
            "the first step of a line has no `input`: it takes the source",
        ) from None
    nodes_by_name: dict[str, StepNode] = {}
    while ready := sorter.get_ready():
        for step in recipe.steps:
            if step.name in ready:
                with about(f"step {step.name}"):
                    nodes_by_name[step.name] = _node(step, nodes_by_name, directory)
        sorter.done(*ready)
    return nodes_by_name


def _node(step: RecipeStep, nodes_by_name: Mapping[str, StepNode], directory: Path) -> StepNode:
    """Make the node of a step. Parameters and files are checked now, because a run may take hours."""
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


def outputs(recipe: RecipeFile, steps: Mapping[str, StepNode]) -> list[RecipeOutput]:
    """List the outputs with their paths. If the recipe names none: the result of each step that no other step takes.

    Raises InputError if an output's step is missing or has two outputs; if a path is hidden, is used twice, or cannot be
    written by the pass; if a check names a missing output, or two checks limit one metric of an output.
    """
    taken = [one for node in steps.values() for one in (node.parent, node.second) if one is not None]
    taken_steps = {node.name for node in taken}
    output_specs = recipe.outputs or [RecipeOutput(step=name) for name in steps if name not in taken_steps]
    step_names = [output.step for output in output_specs]
    for step in step_names:
        if step not in steps:
            raise InputError(f"an output names the step {step}, which is not there", suggest(step, steps))
        if step_names.count(step) > 1:
            raise InputError(f"two outputs name the step {step}", "a step is published once: leave one out")
    paths = []
    for output in output_specs:
        folder = PurePosixPath(output.path or "").parent
        paths.append((folder / file_name(steps[output.step], output)).as_posix())
    if hidden := next((path for path in paths if path.startswith(".")), None):
        raise InputError(
            f"an output cannot be at {hidden}: names that begin with a dot are the program's own",
            "give it another path",
        )
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


def file_name(node: StepNode, output: RecipeOutput | None = None) -> str:
    """Return the name of the main file of a step's result, without its directory.

    Raises InputError, naming the step, if an output requests a name that its pass cannot write.
    """
    requested = None if output is None or output.path is None else PurePosixPath(output.path).name
    suffix = ".ort" if node.kind.takes == "file" else ".onnx"
    name = GENERATOR if node.kind.takes == "checkpoint" else f"{node.name}{suffix}"
    if requested is None or requested == name:
        return name
    if node.kind.takes != "checkpoint" and requested.endswith(suffix):
        return requested
    ending = name if name == GENERATOR else f"a name that ends in {suffix}"
    raise InputError(
        f"step {node.name}: {node.kind.id} cannot write {requested}", f"its file has {ending}: path: {name}"
    )
