"""The plan of a search: its suites, candidates and devices, checked before any work; and the plans of its exports."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from onnxreg.converters.engine import steps
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan, plan_evaluation
from onnxreg.converters.evaluation.tasks.labelled_rows import content
from onnxreg.converters.search import candidates as catalog
from onnxreg.converters.search.candidates import Candidate
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, RecipeFile, SearchRequest
from onnxreg.schema.query.device import Device, preset


@dataclass(frozen=True)
class SearchPlan:
    """A checked search: the suite to choose on, the suite to confirm on, and the devices that must load the winner."""

    request: SearchRequest
    choose: EvaluationPlan
    confirm: EvaluationPlan
    devices: tuple[Device, ...]


def plan_search(plan: ExportPlan, request: SearchRequest) -> SearchPlan:
    """Read both suites, and check candidates and devices.

    Raises InputError or NotFoundError for what would stop the search later: a step, candidate, device or file that does
    not exist, a candidate that does not fit the recipe, a suite without items, suites that allow different metrics or
    have an item in common, rows for calibration that are in the suite to confirm on.
    """
    assert plan.evaluation is not None
    if request.input not in plan.nodes:
        raise InputError(f"the search begins with the step {request.input}, which is not there")
    own = plan.evaluation.request
    if request.confirm is None:
        choose, confirm = (
            own.model_copy(update={"half": half, "seed": request.seed}) for half in ("choose", "confirm")
        )
    else:
        choose, confirm = own, own.model_copy(update={"suite": request.confirm})
    plans = [final_plan(plan, request, candidate, confirm) for candidate in catalog.choose(request, True)]
    devices = tuple(preset(name) for name in request.devices)
    search = SearchPlan(request, _evaluation(plan, choose), _evaluation(plan, confirm), devices)
    _check(search, plans)
    return search


def _evaluation(plan: ExportPlan, request: EvaluationRequest) -> EvaluationPlan:
    plain = request.model_copy(update={"artifacts": ()})
    return plan_evaluation(plain, plan.task.id, plan.directory, ())


def _check(search: SearchPlan, plans: Iterable[ExportPlan]) -> None:
    """Raise InputError unless both suites have items of their own and one set of metrics: what was looked at, or
    calibrated on, confirms nothing.
    """
    choose, confirm, is_split = search.choose, search.confirm, search.request.confirm is None
    for purpose, evaluation in (("choose", choose), ("confirm", confirm)):
        if not evaluation.suite.items:
            raise InputError(
                f"the {'half of the suite' if is_split else 'suite'} to {purpose} on has no items",
                "a search needs items to choose on, and others to confirm on",
            )
    first, second = ([judged.metric.id for judged in one.metrics] for one in (choose, confirm))
    if first != second:
        raise InputError(
            f"the suite to choose on is judged by {', '.join(first)}, that to confirm on by {', '.join(second)}",
            "name the metrics in the recipe: evaluation: {metrics: [...]}",
        )
    identity, items = confirm.evaluator.identity, confirm.suite.items
    chosen_by = {identity(item) for item in choose.suite.items}
    if common := sum(identity(item) in chosen_by for item in items):
        raise InputError(
            f"{common} items are in both {'halves of the suite' if is_split else 'suites'}: a candidate may not be "
            "confirmed on what it was chosen by",
            "give equal items one `group`"
            if is_split
            else "leave them out of one, or leave --confirm-suite out: then one suite is split",
        )
    feeds = [feed for plan in plans for node in plan.nodes.values() for feed in node.data or ()]
    calibrated_on = {content(feed) for feed in feeds}
    if common := sum(identity(item) in calibrated_on for item in items):
        raise InputError(
            f"{common} rows for calibration are in the suite to confirm on: a candidate may not be made with what it is "
            "confirmed on",
            "calibrate on other rows, such as those of the suite to choose on",
        )


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
    replaced = next((output for output in plan.outputs if output.path == path), None)
    if replaced is not None and replaced.format is not None:
        winner["format"] = replaced.format
    if request.format is not None and candidate.mark == "int8":
        winner["format"] = request.format
    others = [output for output in plan.outputs if output is not replaced]
    graphs = sum(not str(output.path).endswith(".ort") for output in others)
    outputs = [output.to_json() for output in others]
    limits = [{**check.to_json(), "output": path} for check in request.checks]
    limits += [check.to_json() for check in plan.recipe.checks if check.output != path]
    return _plan_of(
        plan, own_steps, [*outputs[:graphs], winner, *outputs[graphs:]], limits, evaluation.to_json()
    )


def _alone(plan: ExportPlan, own_steps: Iterable[Mapping[str, Any]], output: dict[str, Any]) -> ExportPlan:
    """The plan of one file without golden vectors, checks and evaluation; other files keep their names."""
    names = {item.step: steps.file_name(plan.nodes[item.step], item) for item in plan.outputs}
    alone = _plan_of(plan, own_steps, [{**output, "golden": 0}], [], None)
    return replace(alone, evaluation=None, file_names=names)


def _plan_of(
    plan: ExportPlan,
    own_steps: Iterable[Mapping[str, Any]],
    outputs: list[dict[str, Any]],
    checks: list[dict[str, Any]],
    evaluation: dict[str, Any] | None,
) -> ExportPlan:
    """The plan of a recipe for the same source with further steps, and without those that no output needs."""
    value = {**plan.recipe.to_json(), "outputs": outputs, "checks": checks, "evaluation": evaluation}
    all_steps = [*value["steps"], *own_steps]
    inputs, needed = {step["name"]: step.get("input") for step in all_steps}, set()
    for output in outputs:
        name: str | None = output["step"]
        while name is not None:
            needed.add(name)
            name = inputs[name]
    value["steps"] = [step for step in all_steps if step["name"] in needed]
    value = {key: item for key, item in value.items() if item is not None and key != "search"}
    recipe = RecipeFile.from_json(value, "search")
    nodes = steps.nodes(recipe, plan.directory)
    return replace(plan, recipe=recipe, nodes=nodes, outputs=steps.outputs(recipe, nodes))
