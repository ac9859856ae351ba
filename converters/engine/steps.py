"""The steps of a recipe as a tree, checked before anything runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.passes import pass_catalog
from onnxreg.converters.passes.base import Pass
from onnxreg.converters.passes.graph_pass import GraphPass
from onnxreg.converters.passes.model_builder import GRAPH as GENERATOR
from onnxreg.converters.passes.tools import samples
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.paths import check_distinct
from onnxreg.schema.core.suggest import suggest
from onnxreg.schema.inputs.recipe_file import AskedCheck, AskedOutput, AskedStep, RecipeFile

GOLDEN = "golden-"
"""How the name of a step begins that writes the golden vectors of another."""


@dataclass(frozen=True)
class StepNode:
    """A step with the pass that it names; `parent` is the step whose result it takes, None for the source."""

    asked: AskedStep
    kind: type[Pass[Any, Any]]
    parent: "StepNode | None"
    data: Sequence[samples.Feed] | None = None

    @property
    def name(self) -> str:
        return self.asked.name

    def make(self, **extra: Any) -> Pass[Any, Any]:
        """The pass with its parameters, and with the data where there is some."""
        if self.data is not None:
            extra["data"] = self.data
        return self.kind(**extra, **self.asked.params)

    def above(self) -> "list[StepNode]":
        """The steps from this one up to the source, this one first."""
        line = [self]
        while (parent := line[-1].parent) is not None:
            line.append(parent)
        return line


def nodes(recipe: RecipeFile, directory: Path) -> dict[str, StepNode]:
    """The steps by name, parents before children, each otherwise in the recipe's order.

    Raises InputError, naming the step, for a repeated name or one of ours, a parent that is not there, a cycle, a pass
    that is unknown or whose parameters are not valid, and data that cannot be read.

    Args:
        directory: what the paths of calibration data are relative to.
    """
    asked: dict[str, AskedStep] = {}
    for step in recipe.steps:
        if step.name in asked:
            raise InputError(f"two steps are called {step.name}", "give each step a name of its own")
        if step.name.startswith(GOLDEN):
            raise InputError(
                f"step {step.name}: names that begin with {GOLDEN} are those of golden vectors",
                "give it another name",
            )
        asked[step.name] = step
    found: dict[str, StepNode] = {}
    for step in recipe.steps:
        for each in reversed(_line(step, asked, found)):
            found[each.name] = _node(each, found, directory)
    return {
        step.name: found[step.name] for step in sorted(recipe.steps, key=lambda s: len(found[s.name].above()))
    }


def _line(step: AskedStep, asked: Mapping[str, AskedStep], found: Mapping[str, StepNode]) -> list[AskedStep]:
    """The steps that are not yet found, from this one up, this one first."""
    line: dict[str, AskedStep] = {}
    name: str | None = step.name
    while name is not None and name not in found:
        if name in line:
            raise InputError(
                f"steps are each other's input: {' <- '.join((*line, name))}",
                "the first step of a line has no `input`: it takes the source",
            )
        line[name] = asked[name]
        above = asked[name].input
        if above is not None and above not in asked:
            raise InputError(f"step {name}: there is no step called {above}", suggest(above, asked))
        name = above
    return list(line.values())


def _node(step: AskedStep, found: Mapping[str, StepNode], directory: Path) -> StepNode:
    parent = None if step.input is None else found[step.input]
    node = StepNode(step, _kind(step), parent, _data(step, directory))
    _check(node)
    return node


def _kind(step: AskedStep) -> type[Pass[Any, Any]]:
    with about(f"step {step.name}"):
        return pass_catalog.find(step.pass_)


def _data(step: AskedStep, directory: Path) -> Sequence[samples.Feed] | None:
    if step.data is None:
        return None
    path = directory / step.data
    if not path.exists():
        raise InputError(
            f"step {step.name}: there is no data at {step.data}", "paths are relative to the recipe"
        )
    return samples.read(path)


def _check(node: StepNode) -> None:
    """What is asked for wrongly is told before hours of work."""
    with about(f"step {node.name}"):
        node.kind.read(node.asked.params)
    if node.data is not None and not issubclass(node.kind, GraphPass):
        raise InputError(f"step {node.name}: {node.kind.id} takes no data", "leave `data` out")


def outputs(recipe: RecipeFile, steps: Mapping[str, StepNode]) -> list[AskedOutput]:
    """What to publish: what the recipe names, else the result of each step that no other one takes; with their paths.

    Raises InputError for a step that is not there or is named twice, a path that its pass cannot write or that two
    outputs have, a check of an output that is not there, and two checks of one metric of it.
    """
    asked = list(recipe.outputs)
    if not asked:
        taken = {node.asked.input for node in steps.values()}
        asked = [AskedOutput(step=name) for name in steps if name not in taken]
    named = [output.step for output in asked]
    for step in named:
        if step not in steps:
            raise InputError(f"an output names the step {step}, which is not there", suggest(step, steps))
        if named.count(step) > 1:
            raise InputError(f"two outputs name the step {step}", "a step is published once: leave one out")
    found = [output.model_copy(update={"path": _path(steps[output.step], output)}) for output in asked]
    paths = [str(output.path) for output in found]
    _check_paths(paths)
    _check_limits(recipe.checks, paths)
    return found


def _check_limits(checks: Sequence[AskedCheck], paths: Sequence[str]) -> None:
    limited = [(check.output, check.metric) for check in checks]
    for output, metric in limited:
        if output not in ("*", *paths):
            raise InputError(f"a check is about {output}, which is no output", suggest(output, paths))
        if limited.count((output, metric)) > 1:
            raise InputError(f"two checks limit {metric} of {output}", "state one limit")


def file_name(node: StepNode, output: AskedOutput | None = None) -> str:
    """What the main file of a step's result is called, without its directory.

    Raises InputError, naming the step, where an output asks for a name that its pass does not give.
    """
    asked = None if output is None or output.path is None else PurePosixPath(output.path).name
    if node.kind.takes == "checkpoint":
        name = GENERATOR
    else:
        suffix = ".ort" if node.kind.takes == "file" else ".onnx"
        name = asked if asked is not None and asked.endswith(suffix) else f"{node.name}{suffix}"
    if asked not in (None, name):
        ending = name if name == GENERATOR else f"a name that ends in {PurePosixPath(name).suffix}"
        raise InputError(
            f"step {node.name}: {node.kind.id} cannot write {asked}", f"its file has {ending}: path: {name}"
        )
    return name


def _path(node: StepNode, output: AskedOutput) -> str:
    folder = PurePosixPath(output.path or "").parent
    return (folder / file_name(node, output)).as_posix()


def _check_paths(paths: Sequence[str]) -> None:
    if hidden := next((path for path in paths if path.startswith(".")), None):
        raise InputError(
            f"an output cannot lie at {hidden}: names that begin with a dot are the program's own",
            "give it another path",
        )
    try:
        check_distinct(paths)
    except ValueError as error:
        raise InputError(f"outputs: {error}", "give each a path of its own") from error
