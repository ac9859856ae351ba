"""The recipes of a search: one for each candidate alone, and that of the export with the winner."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from onnxreg.converters.engine import steps
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.search.candidates import Candidate
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, RecipeFile, SearchRequest


def path_of(candidate: Candidate, request: SearchRequest) -> str:
    """The path of a candidate in a version."""
    base = PurePosixPath(request.output)
    return base.with_name(f"{base.stem}_{candidate.mark}{base.suffix}").as_posix()


def base_plan(plan: ExportPlan, request: SearchRequest) -> ExportPlan:
    """The plan of the file that candidates start from, alone."""
    return _alone(plan, (), {"step": request.input, "path": request.output})


def trial_plan(plan: ExportPlan, request: SearchRequest, candidate: Candidate) -> ExportPlan:
    """The plan of one candidate alone."""
    own_steps = candidate.steps(request.input)
    return _alone(plan, own_steps, {"step": own_steps[-1]["name"], "path": path_of(candidate, request)})


def final_plan(
    plan: ExportPlan, request: SearchRequest, candidate: Candidate, evaluation: EvaluationRequest
) -> ExportPlan:
    """The plan of the export with the winner among its outputs. Its evaluation is not planned yet.

    Raises InputError if the candidate does not fit the recipe, such as a step without its data.
    """
    path, own_steps = path_of(candidate, request), candidate.steps(request.input)
    winner = {"step": own_steps[-1]["name"], "path": path}
    if request.format is not None and candidate.mark == "int8":
        winner["format"] = request.format
    others = [output for output in plan.outputs if output.path != path]
    graphs = sum(not str(output.path).endswith(".ort") for output in others)
    outputs = [output.to_json() for output in others]
    limits = [{**check.to_json(), "output": path} for check in request.checks]
    limits += [check.to_json() for check in plan.recipe.checks if check.output != path]
    return _planned(
        plan, own_steps, [*outputs[:graphs], winner, *outputs[graphs:]], limits, evaluation.to_json()
    )


def _alone(plan: ExportPlan, own_steps: Iterable[Mapping[str, Any]], output: dict[str, Any]) -> ExportPlan:
    """The plan of one file without golden vectors, checks and evaluation; other files keep their names."""
    names = {item.step: steps.file_name(plan.nodes[item.step], item) for item in plan.outputs}
    alone = _planned(plan, own_steps, [{**output, "golden": 0}], [], None)
    return replace(alone, evaluation=None, file_names=names)


def _planned(
    plan: ExportPlan,
    own_steps: Iterable[Mapping[str, Any]],
    outputs: list[dict[str, Any]],
    checks: list[dict[str, Any]],
    evaluation: dict[str, Any] | None,
) -> ExportPlan:
    """The plan of a recipe for the same source with further steps, and without those that no output needs."""
    value = {**plan.recipe.to_json(), "outputs": outputs, "checks": checks, "evaluation": evaluation}
    all_steps = [*value["steps"], *own_steps]
    needed = _lineage(all_steps, (output["step"] for output in outputs))
    value["steps"] = [step for step in all_steps if step["name"] in needed]
    value = {key: item for key, item in value.items() if item is not None and key != "search"}
    recipe = RecipeFile.from_json(value, "search")
    nodes = steps.nodes(recipe, plan.directory)
    return replace(plan, recipe=recipe, nodes=nodes, outputs=steps.outputs(recipe, nodes))


def _lineage(all_steps: Iterable[Mapping[str, Any]], names: Iterable[str]) -> set[str]:
    """The names of steps, and of those whose results they take."""
    inputs = {step["name"]: step.get("input") for step in all_steps}
    needed: set[str] = set()
    for name in names:
        step: str | None = name
        while step is not None:
            needed.add(step)
            step = inputs[step]
    return needed
