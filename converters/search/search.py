"""Find the winner of a search, and run the export that it leads to."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.engine import latency, run_plan, steps, subjects
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.evaluation.evaluate import Evaluation
from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan, plan_evaluation
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.search import candidates as catalog
from onnxreg.converters.search.candidates import Candidate
from onnxreg.converters.search.device_check import refuse_on
from onnxreg.converters.search.trial import Trial, nearest
from onnxreg.schema.core.errors import Advice, ConversionError, InputError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.recipe_file import Benchmark, EvaluationRequest, RecipeFile, SearchRequest
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.presets import preset

TIMED = Benchmark(runs=30, batches=(1,))
SCRATCH, TRIALS = ".search", "trials"
"""The directory of a search in its workspace, and that of the candidates in it."""


@dataclass(frozen=True)
class SearchPlan:
    """A checked search: the suite to choose on, the suite to confirm on, and the devices that must load the winner."""

    request: SearchRequest
    choose: EvaluationPlan
    confirm: EvaluationPlan
    devices: tuple[Device, ...]


def check_search(plan: ExportPlan) -> None:
    """Raise what the search of a plan would raise before any work, if the plan has one."""
    if plan.recipe.search is not None:
        _plan_search(plan, plan.recipe.search)


def execute(
    plan: ExportPlan, workspace: Path, cache: StepCache | None = None, progress: Progress = SILENT
) -> Draft:
    """Run a plan into `workspace`; if its recipe has a search, first find the winner.

    The winner is judged once on the suite to confirm on, and published whatever the verdict is.

    Raises what `run_plan.execute` raises, and ConversionError, listing the nearest misses, if no candidate passes on the
    suite to choose on; then nothing was made.
    """
    if plan.recipe.search is None:
        return run_plan.execute(plan, workspace, cache, progress)
    with _cache(workspace, cache) as steps_cache:
        search = Search(
            plan, _plan_search(plan, plan.recipe.search), workspace / SCRATCH, steps_cache, progress
        )
        final_plan = search.run()
        shutil.rmtree(workspace / SCRATCH / TRIALS, ignore_errors=True)
        draft = run_plan.execute(final_plan, workspace, steps_cache, progress)
    shutil.rmtree(workspace / SCRATCH, ignore_errors=True)
    return draft


@contextmanager
def _cache(workspace: Path, cache: StepCache | None) -> Iterator[StepCache]:
    """The cache, or one of this search alone: the steps that candidates share run once."""
    yield StepCache(workspace / SCRATCH / "cache") if cache is None else cache


def _plan_search(plan: ExportPlan, request: SearchRequest) -> SearchPlan:
    assert plan.evaluation is not None
    if request.input not in plan.nodes:
        raise InputError(f"the search begins with the step {request.input}, which is not there")
    own = plan.evaluation.request
    if request.confirm is None:
        halves = ("choose", "confirm")
        choose, confirm = (own.model_copy(update={"half": half, "seed": request.seed}) for half in halves)
    else:
        choose, confirm = own, own.model_copy(update={"suite": request.confirm})
    search = SearchPlan(
        request,
        _evaluation(plan, choose),
        _evaluation(plan, confirm),
        tuple(preset(name) for name in request.devices),
    )
    list(catalog.choose(request, True))
    _check_disjoint(search)
    return search


def _evaluation(plan: ExportPlan, request: EvaluationRequest) -> EvaluationPlan:
    plain = request.model_copy(update={"artifacts": ()})
    return plan_evaluation(plain, plan.task.id, plan.directory, ())


def _check_disjoint(search: SearchPlan) -> None:
    """Raise InputError if an item is in both suites: what was looked at confirms nothing."""
    evaluator = search.choose.evaluator
    chosen_by = {evaluator.identity(item) for item in search.choose.suite.items}
    common = sum(evaluator.identity(item) in chosen_by for item in search.confirm.suite.items)
    if common:
        raise InputError(
            f"{common} items are in both suites: a candidate may not be confirmed on what it was chosen by",
            Advice("other-confirm-suite"),
        )


class Search:
    """One search. Candidates are tried from the smallest estimate up, until one passes and no other can be smaller."""

    def __init__(
        self, plan: ExportPlan, search: SearchPlan, directory: Path, cache: StepCache, progress: Progress
    ) -> None:
        self._plan, self._search, self._request = plan, search, search.request
        self._directory, self._cache, self._progress = directory, cache, progress
        self._drafts: dict[str, Draft] = {}

    def run(self) -> ExportPlan:
        """Return the plan of the export with the winner; it records every candidate.

        Raises ConversionError if no candidate passes.
        """
        self._directory.mkdir(parents=True)
        trials = self._timed(list(self._trials()))
        winner = self._winner(trials)
        if winner is None:
            raise _none_passes(trials, self._search.choose)
        chosen = next(candidate for candidate, _ in self._ordered if candidate.name == winner.candidate)
        record = {
            "input": self._request.input,
            "objective": self._request.objective,
            "choose": str(self._search.choose.suite.digest),
            "confirm": str(self._search.confirm.suite.digest),
            "devices": list(self._request.devices),
            "candidates": [trial.to_json() for trial in trials],
            "tried": sum(trial.state != "untried" for trial in trials),
            "winner": winner.candidate,
        }
        return self._final(chosen, record)

    @cached_property
    def _base(self) -> tuple[Path, Any]:
        """The file that candidates start from, and its graph."""
        draft = self._execute(Candidate("base", ()))
        path = draft.root / draft.artifacts[0].path
        return path, load_onnx(path)

    @cached_property
    def _ordered(self) -> list[tuple[Candidate, float]]:
        """The candidates with their estimated bytes, the smallest first."""
        path, graph = self._base
        weights = catalog.measure_weights(graph, path.stat().st_size)
        pairs = [
            (candidate, candidate.estimate(weights))
            for candidate in catalog.choose(self._request, has_tables=weights.tables > 0)
        ]
        return sorted(pairs, key=lambda pair: pair[1])

    @cached_property
    def _evaluation(self) -> Evaluation:
        def load() -> Any:
            self._progress.step("running the source on the suite to choose on")
            return subjects.load(self._plan, self._directory / "subject", None)

        key = {"subject": self._plan.subject_key()}
        trusted = self._plan.task.trust_remote_code
        return Evaluation(self._search.choose, load, trusted, self._cache, key)

    def _trials(self) -> Iterator[Trial]:
        smallest = float("inf")
        for candidate, estimate in self._ordered:
            if self._request.objective == "bytes" and estimate >= smallest:
                yield Trial(candidate.name, "untried", reasons=("a smaller candidate passed",))
                continue
            trial = self._try(candidate)
            if trial.state == "certified" and trial.bytes is not None:
                smallest = min(smallest, trial.bytes)
            yield trial

    def _try(self, candidate: Candidate) -> Trial:
        self._progress.step(f"trying {candidate.name}")
        try:
            draft = self._execute(candidate)
        except ConversionError as error:
            return Trial.failed(candidate.name, error)
        (artifact,) = draft.artifacts
        if (reason := refuse_on(self._search.devices, draft)) is not None:
            return Trial(candidate.name, "unsupported", _size(draft), artifact.precision, (reason,))
        try:
            judged = self._evaluation.judge(artifact, draft.root / artifact.path)
        except ConversionError as error:
            return Trial.failed(candidate.name, error, _size(draft), artifact.precision)
        self._drafts[candidate.name] = draft
        return Trial.of(candidate.name, _size(draft), artifact.precision, judged)

    def _execute(self, candidate: Candidate) -> Draft:
        """Make one candidate, in a directory of its own."""
        output = {"step": self._last(candidate), "golden": 0, "path": self._path(candidate)}
        recipe = self._recipe(candidate, [output], {"checks": []})
        names = {item.step: steps.file_name(self._plan.nodes[item.step], item) for item in self._plan.outputs}
        plan = replace(_planned(self._plan, recipe), evaluation=None, file_names=names)
        workspace = self._directory / TRIALS / candidate.name
        workspace.mkdir(parents=True)
        return run_plan.execute(plan, workspace, self._cache, SILENT)

    def _path(self, candidate: Candidate) -> str:
        """The path of a candidate in a version."""
        base = PurePosixPath(self._request.output)
        return (
            base.with_name(f"{base.stem}_{candidate.mark}{base.suffix}").as_posix()
            if candidate.passes
            else str(base)
        )

    def _last(self, candidate: Candidate) -> str:
        own = candidate.steps(self._request.input)
        return str(own[-1]["name"]) if own else self._request.input

    def _recipe(
        self, candidate: Candidate, outputs: list[dict[str, Any]], more: Mapping[str, Any]
    ) -> RecipeFile:
        """The recipe with the steps of a candidate, and without those that no output needs."""
        value = {
            **self._plan.recipe.to_json(),
            "outputs": outputs,
            "search": None,
            "evaluation": None,
            **more,
        }
        value["steps"] = [*value["steps"], *candidate.steps(self._request.input)]
        needed = _lineage(value["steps"], (output["step"] for output in outputs))
        value["steps"] = [step for step in value["steps"] if step["name"] in needed]
        return RecipeFile.from_json({key: item for key, item in value.items() if item is not None}, "search")

    def _timed(self, trials: list[Trial]) -> list[Trial]:
        """Measure the latency of those that passed, if the objective asks for it."""
        if self._request.objective == "bytes":
            return trials
        self._progress.step("timing the candidates that pass")
        names = [trial.candidate for trial in trials if trial.state == "certified"]
        artifacts = [
            replace(artifact, path=f"{name}/{artifact.path}")
            for name in names
            for artifact in self._drafts[name].artifacts
        ]
        passed = Draft(self._plan.name, self._directory / TRIALS, tuple(artifacts))
        measured = latency.measure(passed, TIMED).latencies
        medians = {name: item.median for name, item in zip(names, measured, strict=True)}
        return [
            trial.timed(medians[trial.candidate]) if trial.candidate in medians else trial for trial in trials
        ]

    def _winner(self, trials: Iterable[Trial]) -> Trial | None:
        def cost(trial: Trial) -> tuple[float, int]:
            size = trial.bytes or 0
            return (trial.median_ms or 0.0, size) if self._request.objective == "latency" else (size, 0)

        return min((trial for trial in trials if trial.state == "certified"), key=cost, default=None)

    def _final(self, candidate: Candidate, record: dict[str, Any]) -> ExportPlan:
        path = self._path(candidate)
        outputs = [output for output in self._plan.recipe.to_json()["outputs"] if output.get("path") != path]
        own = {"step": self._last(candidate), "path": path}
        if self._request.format is not None and candidate.mark == "int8":
            own["format"] = self._request.format
        evaluation = self._search.confirm.request.to_json()
        count = sum(not str(output.get("path")).endswith(".ort") for output in outputs)
        limits = [{**check.to_json(), "output": path} for check in self._request.checks]
        limits += [check.to_json() for check in self._plan.recipe.checks if check.output != path]
        changes = {"evaluation": evaluation, "checks": limits}
        recipe = self._recipe(candidate, [*outputs[:count], own, *outputs[count:]], changes)
        plan = _planned(self._plan, recipe)
        paths = [str(output.path) for output in plan.outputs]
        assert recipe.evaluation is not None
        evaluation_plan = plan_evaluation(recipe.evaluation, plan.task.id, plan.directory, paths)
        return replace(plan, evaluation=evaluation_plan, search={**record, "output": path})


def _planned(plan: ExportPlan, recipe: RecipeFile) -> ExportPlan:
    """The plan of another recipe for the same source."""
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


def _size(draft: Draft) -> int:
    """Bytes of the artifact with its external data."""
    return sum((draft.root / path).stat().st_size for path in draft.paths() if not path.endswith(".json"))


def _none_passes(trials: list[Trial], choose: EvaluationPlan) -> ConversionError:
    misses = "; ".join(
        f"{trial.candidate} ({(trial.bytes or 0) / 1e6:.1f} MB): {trial.reasons[0]}"
        for trial in nearest(trials)
    )
    if not misses:
        misses = "; ".join(f"{trial.candidate}: {trial.reasons[0]}" for trial in trials if trial.reasons)[
            :600
        ]
    tried = sum(trial.state != "untried" for trial in trials)
    return ConversionError(
        f"none of {tried} candidates passes on the suite to choose on; the nearest: {misses}",
        Advice("no-candidate"),
    )
