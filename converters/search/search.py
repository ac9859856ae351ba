"""The search for the smallest artifact that passes an evaluation.

A `Candidate` is a line of passes. `plan_search` checks suites and candidates before any work; `Search` makes candidates,
judges them on one suite and picks the winner. The plan that it gives is an ordinary one, with the winner's steps and the
other suite, so a rebuild repeats the winner's path.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.engine import latency, run_plan, steps
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.evaluation.evaluate import (
    EvaluationPlan,
    SourceEvaluation,
    plan_evaluation,
)
from onnxreg.converters.evaluation.metric import EvaluationError
from onnxreg.converters.evaluation.row_task import content
from onnxreg.converters.onnx.elements import tensor_bytes
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes.tools.graph import factors
from onnxreg.converters.source.scrub import scrub
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import ConversionError, InputError, suggest
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.gates.statements import FULL_PRECISION
from onnxreg.schema.inputs.recipe_file import (
    Benchmark,
    EvaluationRequest,
    RecipeFile,
    SearchCandidate,
    SearchRequest,
)
from onnxreg.schema.log.summary import summarize
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.query.device import Device, preset

PRODUCTS = ("MatMul", "Gemm")
SCALE_BITS = 32
"""Bits of the scale of a block of weights."""
PREFIX = "search-"
"""Prefix of the names of a candidate's steps."""


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of a graph's float32 weights: of products, of embedding tables, and of the remainder of the file."""

    products: int
    tables: int
    remainder: int


@dataclass(frozen=True)
class Candidate:
    """A line of passes in JSON form, `{pass, params, data?}`, each taking the result of the one before.

    `mark` is put into the name of the file. `bits` are those of a weight of the result in products, in tables and in the
    remainder; none of a candidate of the user's own.
    """

    name: str
    passes: tuple[Mapping[str, Any], ...]
    mark: str = "small"
    bits: tuple[float, float, float] | None = None

    def estimate(self, weights: WeightBytes) -> float:
        """Estimate the bytes of the result; 0 for a candidate of the user's own, which is then tried first."""
        parts = (weights.products, weights.tables, weights.remainder)
        return sum(size * bits / 32 for size, bits in zip(parts, self.bits or (0, 0, 0), strict=True))

    def steps(self, start: str) -> list[dict[str, Any]]:
        """The recipe steps of this candidate, which begins with the result of the step `start`."""
        steps = []
        for number, work in enumerate(self.passes, start=1):
            name = f"{PREFIX}{self.name}" if len(self.passes) == 1 else f"{PREFIX}{self.name}-{number}"
            steps.append({"name": name, "input": start, **work})
            start = name
        return steps


def library(has_tables: bool, calibration: str | None) -> list[Candidate]:
    """The program's own candidates. Those that quantize embedding tables are left out for a graph without any.

    Args:
        calibration: rows for static quantization; left out without.
    """
    rows, halves = (_pass("EmbeddingQuantization"), _pass("OnnxFloatToFloat16", op_include_list=["Gather"]))
    four, four_bits = _blocks(4, 32), 4 + (SCALE_BITS + 4) / 32
    plain = [
        Candidate("fp16", (_pass("OnnxFloatToFloat16"),), "fp16", (16, 16, 16)),
        Candidate("int8", (_dynamic(*PRODUCTS),), "int8", (8, 32, 32)),
        Candidate("weights4", (four,), "int4", (four_bits, 32, 32)),
    ]
    tables = [
        Candidate("int8-int8-embeddings", (_dynamic(*PRODUCTS, "Gather"),), "int8", (8, 8, 32)),
        Candidate("weights4-int8-embeddings", (four, rows), "int4", (four_bits, 8, 32)),
    ]
    for size in (32, 64, 128):
        name, blocks, bits = f"weights8-{size}", _blocks(8, size), 8 + SCALE_BITS / size
        plain.append(Candidate(name, (blocks,), "int8", (bits, 32, 32)))
        tables.append(Candidate(f"{name}-int8-embeddings", (blocks, rows), "int8", (bits, 8, 32)))
        tables.append(Candidate(f"{name}-fp16-embeddings", (blocks, halves), "int8", (bits, 16, 32)))
    if calibration is not None:
        static = _pass("OnnxStaticQuantization", data=calibration)
        plain.append(Candidate("static-int8", (static,), "int8", (8, 32, 32)))
    return plain + tables if has_tables else plain


def choose_candidates(request: SearchRequest, has_tables: bool) -> Iterator[Candidate]:
    """Yield the candidates that a request asks for, in its order.

    Raises InputError for a name that is unknown, or two candidates of one name.
    """
    own = {candidate.name: candidate for candidate in library(True, request.calibration)}
    usable = {candidate.name for candidate in library(has_tables, request.calibration)}
    names = set()
    for choice in request.candidates or tuple(own):
        name = choice.name if isinstance(choice, SearchCandidate) else choice
        if name in names:
            raise InputError(f"two candidates are called {name}", "give each a name of its own")
        names.add(name)
        if isinstance(choice, SearchCandidate):
            steps = (step.to_json() for step in choice.steps)
            own_steps = (
                {key: value for key, value in step.items() if key not in ("name", "input")} for step in steps
            )
            yield Candidate(name, tuple(own_steps))
        elif name not in own:
            raise InputError(f"no candidate is called {name}", suggest(name, own))
        elif name in usable or request.candidates:
            yield own[name]


def measure_weights(graph: Any, size: int) -> WeightBytes:
    """Measure the constant weights of a graph (`onnx.ModelProto`) in a file of `size` bytes."""
    weights = factors(graph, frozenset(PRODUCTS))
    products = sum(tensor_bytes(tensor) for tensor in weights.values())
    read = {node.input[0] for node in graph.graph.node if node.op_type == "Gather"}
    tables = sum(
        tensor_bytes(tensor)
        for tensor in graph.graph.initializer
        if tensor.name in read and tensor.data_type == tensor.FLOAT and len(tensor.dims) == 2
    )
    return WeightBytes(products, tables, max(size - products - tables, 0))


def _pass(name: str, data: str | None = None, **params: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"pass": name, "params": params}
    return value if data is None else {**value, "data": data}


def _dynamic(*operators: str) -> dict[str, Any]:
    return _pass("OnnxDynamicQuantization", op_types_to_quantize=list(operators))


def _blocks(bits: int, size: int) -> dict[str, Any]:
    return _pass(
        "OnnxBlockWiseRtnQuantization", bits=bits, block_size=size, is_symmetric=bits == 8, gemm=True
    )


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
    plans = [final_plan(plan, request, candidate, confirm) for candidate in choose_candidates(request, True)]
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


MAX_NEAREST = 3
"""Near misses that an error lists."""


@dataclass(frozen=True)
class Trial:
    """A candidate with its figures on the suite that the search may look at.

    States: those of a verdict; `failed` (a pass or the file does not work), `unsupported` (a device does not load it),
    `untried` (a smaller one passed).
    """

    candidate: str
    state: str
    bytes: int | None = None
    precision: str | None = None
    reasons: tuple[str, ...] = ()
    metrics: tuple[Mapping[str, Any], ...] = ()
    median_ms: float | None = None

    @property
    def excess(self) -> float:
        """The largest loss in parts of its limit: below 1 it passes."""
        losses = [figure["loss"] / figure["limit"] for figure in self.metrics if figure["loss"] is not None]
        return max(losses, default=float("inf"))

    def to_json(self) -> dict[str, Any]:
        lists = {"metrics": list(self.metrics), "reasons": list(self.reasons)}
        numbers = {"bytes": self.bytes, "precision": self.precision, "median_ms": self.median_ms}
        return {
            "candidate": self.candidate,
            "state": self.state,
            **{key: value for key, value in (numbers | lists).items() if value not in (None, [])},
        }


TIMED = Benchmark(runs=30, batches=(1,))
SCRATCH, BASE, TRIALS = ".search", "base", "trials"
"""The directory of a search in its workspace, and in it those of the file that candidates start from and of candidates."""
MAX_REASONS_CHARS = 600
"""Characters of the reasons in an error, if no candidate was judged."""


def check_search(plan: ExportPlan) -> None:
    """Raise what the search of a plan would raise before any work, if the plan has one."""
    if plan.recipe.search is not None:
        plan_search(plan, plan.recipe.search)


def run_with_search(
    plan: ExportPlan, workspace: Path, cache: StepCache | None = None, progress: Progress = SILENT
) -> Draft:
    """Find the winner of the search of a plan's recipe, and run the plan that it leads to into `workspace`.

    The winner is judged once on the suite to confirm on, and published whatever the verdict is.

    Raises what `run_plan.execute` raises, and ConversionError, listing the nearest misses, if no candidate passes on the
    suite to choose on; then nothing was made.
    """
    request = plan.recipe.search
    assert request is not None, "callers look"
    search_plan = plan_search(plan, request)
    if cache is None:  # one of this search alone: the steps that candidates share run once
        cache = StepCache(workspace / SCRATCH / "cache")
    search = Search(plan, search_plan, workspace / SCRATCH, cache, progress)
    final_plan = search.run()
    search.clear()
    draft = run_plan.execute(final_plan, workspace, cache, progress, search.subject)
    shutil.rmtree(workspace / SCRATCH, ignore_errors=True)
    return draft


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
        certified = (trial for trial in trials if trial.state == "certified")
        winner = min(certified, key=lambda trial: (trial.median_ms or 0.0, trial.bytes or 0), default=None)
        if winner is None:
            raise _none_passes(trials)
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
        return self._final(chosen, winner, record)

    def clear(self) -> None:
        """Remove the files of the candidates."""
        for name in (BASE, TRIALS):
            shutil.rmtree(self._directory / name, ignore_errors=True)

    @cached_property
    def _base(self) -> tuple[Path, Any]:
        """The file that candidates start from, and its graph."""
        draft = self._execute(base_plan(self._plan, self._request), BASE)
        path = draft.root / draft.artifacts[0].path
        return path, load_onnx(path)

    @cached_property
    def _ordered(self) -> list[tuple[Candidate, float]]:
        """The candidates with their estimated bytes, the smallest first."""
        path, graph = self._base
        weights = measure_weights(graph, path.stat().st_size)
        pairs = [
            (candidate, candidate.estimate(weights))
            for candidate in choose_candidates(self._request, has_tables=weights.tables > 0)
        ]
        return sorted(pairs, key=lambda pair: pair[1])

    @cached_property
    def _evaluation(self) -> SourceEvaluation:
        key, trusted = {"subject": self._plan.subject_key()}, self._plan.task.trust_remote_code
        return SourceEvaluation(self._search.choose, lambda: self.subject, trusted, self._cache, key)

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
        """Make and judge one candidate. Raises EvaluationError: then no other candidate can be judged either."""
        self._progress.step(f"trying {candidate.name}")
        try:
            plan = trial_plan(self._plan, self._request, candidate)
            draft = self._execute(plan, f"{TRIALS}/{candidate.name}")
        except (ConversionError, InputError) as error:
            return Trial(candidate.name, "failed", reasons=(self._published(error.message),))
        (artifact,) = draft.artifacts
        precision = artifact.precision
        paths = (artifact.path, *(sidecar.path for sidecar in artifact.sidecars))
        size = sum((draft.root / path).stat().st_size for path in paths)
        if (reason := refuse_on(self._search.devices, draft)) is not None:
            return Trial(candidate.name, "unsupported", size, precision, (reason,))
        try:
            judged = self._evaluation.judge(artifact, draft.root / artifact.path)
        except EvaluationError:
            raise
        except ConversionError as error:
            return Trial(candidate.name, "failed", size, precision, (self._published(error.message),))
        self._drafts[candidate.name] = draft
        figures = tuple(
            {
                "metric": judgement.metric.id,
                "value": judgement.value,
                "loss": judgement.loss,
                "limit": judgement.limit,
                "state": judgement.state,
                **({} if judgement.interval is None else {"interval": list(judgement.interval)}),
            }
            for judgement in judged.judgements
        )
        return Trial(candidate.name, judged.state, size, precision, judged.reasons, figures)

    def _execute(self, plan: ExportPlan, directory: str) -> Draft:
        workspace = self._directory / directory
        workspace.mkdir(parents=True)
        return run_plan.execute(plan, workspace, self._cache, SILENT, self.subject)

    @cached_property
    def subject(self) -> ExportSubject:
        return run_plan.load_subject(self._plan, self._directory / "subject")

    def _published(self, message: str) -> str:
        """A message without the directories of this machine: it is published with the version."""
        folders = (self._directory.parent, self._plan.directory, Path(self._plan.start))
        return str(scrub(message, "", *folders)[0])

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
        return [replace(trial, median_ms=medians.get(trial.candidate)) for trial in trials]

    def _final(self, candidate: Candidate, winner: Trial, record: dict[str, Any]) -> ExportPlan:
        """The plan of the export: the outputs of the recipe and the winner, judged on the suite to confirm on."""
        assert self._plan.evaluation is not None
        path, artifacts = path_of(candidate, self._request), self._plan.evaluation.request.artifacts
        if artifacts or winner.precision == FULL_PRECISION:
            artifacts = tuple(dict.fromkeys((*artifacts, path)))
        request = self._search.confirm.request.model_copy(update={"artifacts": artifacts})
        evaluation = replace(self._search.confirm, request=request, artifacts=artifacts or None)
        plan = final_plan(self._plan, self._request, candidate, request)
        return replace(plan, evaluation=evaluation, search={**record, "output": path})


def _none_passes(trials: list[Trial]) -> ConversionError:
    """The error that lists the trials which miss their limits by the least, refused or unclear."""
    missed = [
        trial
        for trial in trials
        if trial.state == "refused" or (trial.reasons and trial.reasons[0].startswith("unclear"))
    ]
    misses = "; ".join(
        f"{trial.candidate} ({(trial.bytes or 0) / 1e6:.1f} MB): {trial.reasons[0]}"
        for trial in sorted(missed, key=lambda trial: trial.excess)[:MAX_NEAREST]
    )
    reasons = (f"{trial.candidate}: {trial.reasons[0]}" for trial in trials if trial.reasons)
    misses = misses or "; ".join(reasons)[:MAX_REASONS_CHARS]
    tried = sum(trial.state != "untried" for trial in trials)
    return ConversionError(
        f"none of {tried} candidates passes on the suite to choose on; the nearest: {misses}",
        "nothing was published; docs/certification.md says what to do after a refusal",
    )


def refuse_on(devices: Sequence[Device], draft: Draft) -> str | None:
    """The reason for which a device does not load the only artifact of a draft; None if all load it.

    Args:
        devices: presets, which are full builds: no operator set is read.
    """
    if not devices:
        return None
    paths = {path: draft.root / path for path in draft.paths()}
    measured = {name: Descriptor(digest_file(path), path.stat().st_size) for name, path in paths.items()}
    summary = summarize(draft.manifest(measured), Digest.of(b""), 0)
    artifact = summary.artifacts[0]
    for device in devices:
        for miss in device.requirements(lambda _: ())(artifact, artifact.size):
            return f"{device.name or device.ort}: {miss.detail}"
    return None
