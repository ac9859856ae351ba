"""The plan of a search: its suites, candidates and devices, checked before any work."""

from collections.abc import Iterable
from dataclasses import dataclass

from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan, plan_evaluation
from onnxreg.converters.evaluation.tasks.labelled_rows import content
from onnxreg.converters.search import candidates as catalog
from onnxreg.converters.search.recipes import final_plan
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, SearchRequest
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
    _check_items(search)
    _check_metrics(search)
    _check_disjoint(search)
    _check_calibration(search, plans)
    return search


def _evaluation(plan: ExportPlan, request: EvaluationRequest) -> EvaluationPlan:
    plain = request.model_copy(update={"artifacts": ()})
    return plan_evaluation(plain, plan.task.id, plan.directory, ())


def _check_items(search: SearchPlan) -> None:
    for purpose, evaluation in (("choose", search.choose), ("confirm", search.confirm)):
        if not evaluation.suite.items:
            suite = "half of the suite" if evaluation.request.half else "suite"
            raise InputError(
                f"the {suite} to {purpose} on has no items",
                "a search needs items to choose on, and others to confirm on",
            )


def _check_metrics(search: SearchPlan) -> None:
    first, second = (
        [judged.metric.id for judged in evaluation.metrics] for evaluation in (search.choose, search.confirm)
    )
    if first != second:
        raise InputError(
            f"the suite to choose on is judged by {', '.join(first)}, that to confirm on by {', '.join(second)}",
            "name the metrics in the recipe: evaluation: {metrics: [...]}",
        )


def _check_disjoint(search: SearchPlan) -> None:
    """Raise InputError if an item is in both suites: what was looked at confirms nothing."""
    evaluator = search.choose.evaluator
    chosen_by = {evaluator.identity(item) for item in search.choose.suite.items}
    common = sum(evaluator.identity(item) in chosen_by for item in search.confirm.suite.items)
    if common:
        is_split = search.request.confirm is None
        raise InputError(
            f"{common} items are in both {'halves of the suite' if is_split else 'suites'}: a candidate may not be "
            "confirmed on what it was chosen by",
            "give equal items one `group`" if is_split else Advice("other-confirm-suite"),
        )


def _check_calibration(search: SearchPlan, plans: Iterable[ExportPlan]) -> None:
    """Raise InputError if a candidate is calibrated on rows of the suite to confirm on."""
    feeds = [feed for plan in plans for node in plan.nodes.values() for feed in node.data or ()]
    calibrated_on = {content(feed) for feed in feeds}
    evaluator = search.confirm.evaluator
    common = sum(evaluator.identity(item) in calibrated_on for item in search.confirm.suite.items)
    if common:
        raise InputError(
            f"{common} rows for calibration are in the suite to confirm on: a candidate may not be made with what it is "
            "confirmed on",
            "calibrate on other rows, such as those of the suite to choose on",
        )
