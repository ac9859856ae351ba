"""The search for the smallest artifact that passes an evaluation.

A `Candidate` is a sequence of passes. A `Search` makes candidates, judges them on a first suite and picks a winner. It
returns a plan with the winner's steps and a second suite, which confirms the winner.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from onnxreg.converters.engine import run_plan
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import ExportPlan, plan_outputs, plan_steps
from onnxreg.converters.evaluation.evaluate import BASE, time_judged
from onnxreg.converters.evaluation.latency import PAIRS, Latency, LatencyTable, Ratio
from onnxreg.converters.evaluation.metric import combine
from onnxreg.converters.evaluation.rows import content
from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_catalog import find
from onnxreg.converters.passes.quantization import find_tables
from onnxreg.converters.source.source_files import scrub
from onnxreg.schema.core.errors import ConversionError, InputError, suggest
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.gates.statements import FULL_PRECISION
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, RecipeFile, SearchRequest
from onnxreg.schema.manifest.draft import Draft

PRODUCTS = ("MatMul", "Gemm")
DYNAMIC = "OnnxDynamicQuantization"
SCALE_BITS = 32
INT8_ACTIVATIONS = 4
"""The `accuracy_level` with which MatMulNBits may round activations to int8."""
TABLES = "-embeddings"
"""The suffix in the names of candidates that also shrink embedding tables."""
MIXED, MIXED_BITS = ("mixed-int8", "mixed-stored8"), 8.1
"""The names of two mixed candidates, and a guess of their bits per weight.

A mixed candidate uses dynamic INT8 for the matrix products that tolerate it. The weights of all other products have 8
bits in blocks of 128. For these products, the first candidate rounds activations too, and the second does not.
"""
MAX_GROUPS = 12
"""The number of groups of products, the largest first, for which the effect of INT8 is measured. Others come last."""
ALPHA = 0.6
"""The share of the activations' range that smoothing moves into the weights."""
MAX_SIZE_RATIO = {"bytes": 1.0, "fast-enough": 1.01, "latency": inf}
"""For each objective, the largest size of the winner relative to the smallest candidate that passes."""
SCRATCH = ".search"
UNTRIED = "a smaller candidate passed"
SLOW = "it is slower than the file in full precision, and another passed"
MAX_NEAREST, MAX_REASONS_CHARS = 3, 600
NOTHING_PUBLISHED = "nothing was published; docs/certification.md says what to do after a refusal"


class WeightBytes(NamedTuple):
    """The bytes of a file: float32 weights of matrix products, float32 embedding tables, everything else."""

    products: int
    tables: int
    remainder: int


@dataclass
class Candidate:
    """A sequence of passes to try, in JSON form `{pass, params, data?}`.

    `mark` is a part of the file's name. `bits` are the bits per weight of products, tables and other weights; None for
    a user's candidate. If `is_default` is False, the candidate is tried only if the user names it. A search sets the
    other fields. `state` is `failed` if a pass or the file does not work, `untried` if another candidate passed, and
    otherwise the verdict.
    """

    name: str
    passes: tuple[Mapping[str, Any], ...]
    mark: str = "small"
    bits: tuple[float, float, float] | None = None
    is_default: bool = True
    state: str = "untried"
    reasons: Sequence[str] = (UNTRIED,)
    file: Path = Path()
    latencies: Sequence[Latency] = ()
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> list[Ratio]:
        return [item.ratio for item in self.latencies if item.ratio is not None]

    @property
    def excess(self) -> float:
        losses = (
            (one["loss"], one["limit"]) for one in self.figures.get("metrics", ()) if one["loss"] is not None
        )
        return max(((loss - limit) / (abs(limit) or 1.0) for loss, limit in losses), default=inf)

    def record(self) -> dict[str, Any]:
        return {"candidate": self.name, "state": self.state, "reasons": list(self.reasons), **self.figures}

    def estimate(self, weights: WeightBytes) -> float:
        """Estimate the bytes of the result: 0 for a user's candidate, which is therefore tried first."""
        return sum(size * bits / 32 for size, bits in zip(weights, self.bits or (0, 0, 0), strict=True))

    def steps(self, start: str) -> list[dict[str, Any]]:
        """Return the recipe steps of this candidate. The first step has the input `start`."""
        steps = []
        for number, work in enumerate(self.passes, start=1):
            name = f"search-{self.name}" if len(self.passes) == 1 else f"search-{self.name}-{number}"
            steps.append({"name": name, "input": start, **work})
            start = name
        return steps


def _pass(name: str, **params: Any) -> dict[str, Any]:
    return {"pass": name, "params": params}


def _blocks(bits: int, size: int, **more: Any) -> dict[str, Any]:
    symmetric = bits == 8
    return _pass(
        "OnnxBlockWiseRtnQuantization", bits=bits, block_size=size, is_symmetric=symmetric, gemm=True, **more
    )


def built_in(calibration: str | None = None, head: str = "") -> Iterator[Candidate]:
    """Yield the built-in candidates. Static quantization needs `calibration`, a file with rows.

    `head` is the name of the last matrix product. Candidates that repeat what other tools do are not tried by default.
    """
    yield Candidate("fp16", (_pass("OnnxFloatToFloat16"),), "fp16", (16, 16, 16))
    dynamic, tables = (_pass(DYNAMIC, op_types_to_quantize=[*PRODUCTS, *more]) for more in ((), ("Gather",)))
    for prefix, before in {"": (), "smooth-": (_pass("SmoothQuant", alpha=ALPHA),)}.items():
        yield Candidate(f"{prefix}int8", (*before, dynamic), "int8", (8, 32, 32))
        yield Candidate(f"{prefix}int8-int8{TABLES}", (*before, tables), "int8", (8, 8, 32))
    rows = ("int8", 8, _pass("EmbeddingQuantization"))
    halves = ("fp16", 16, _pass("OnnxFloatToFloat16", op_include_list=["Gather"]))
    four_bits = 4 + (SCALE_BITS + 4) / 32
    stored, coarse = (_pass("WeightQuantization", block_size=size) for size in (32, 128))
    fine = {size: _blocks(8, size, accuracy_level=INT8_ACTIVATIONS) for size in (16, 32, 64, 128)}
    methods = [("weights4", "int4", four_bits, _blocks(4, 32), [rows])]
    for size in (32, 64, 128):
        methods.append((f"weights8-{size}", "int8", 8 + SCALE_BITS / size, _blocks(8, size), [rows, halves]))
    methods.append(("stored8-32", "int8", 8 + SCALE_BITS / 32, stored, [rows]))
    for name, work in zip(MIXED, (fine[128], coarse), strict=True):
        methods.append((name, "int8", MIXED_BITS, work, [rows]))
    for size, work in fine.items():
        methods.append((f"w8a8-{size}", "int8", 8 + SCALE_BITS / size, work, [rows]))
    for name, mark, bits, work, additions in methods:
        yield Candidate(name, (work,), mark, (bits, 32, 32))
        for kind, table_bits, addition in additions:
            yield Candidate(f"{name}-{kind}{TABLES}", (work, addition), mark, (bits, table_bits, 32))
    clipped = {"calibrate_method": "Percentile", "percentile": 99.99}
    ranges: dict[str, dict[str, Any]] = {"": {}, "-percentile": clipped, "-mse": {"calibrate_method": "MSE"}}
    for suffix, params in ranges.items() if calibration is not None else ():
        static = {**_pass("OnnxStaticQuantization", **params), "data": calibration}
        yield Candidate(f"static-int8{suffix}", (static,), "int8", (8, 32, 32))
    optimized = _pass("OrtTransformersOptimization", opt_level=1, only_onnxruntime=True)
    plain, channels = (_pass("OrtDynamicQuantization", per_channel=one) for one in (False, True))
    body = (_blocks(4, 32, nodes_to_exclude=[head]), _blocks(8, 32))
    yield Candidate("weights4-int8-head", body, "int4", (four_bits, 32, 32), is_default=False)
    kernels = _pass("WeightQuantization", op_types_to_quantize=[*PRODUCTS, "Conv", "ConvTranspose"])
    yield Candidate("stored8-kernels", (kernels,), "int8", (9, 32, 9), is_default=False)
    peers = {"ort-dynamic": (plain,), "olive-dynamic": (optimized, plain), "optimum-arm64": (channels,)}
    for name, passes in (peers | {"optimum-avx512-vnni": (channels,)}).items():
        yield Candidate(name, passes, "int8", (8, 8, 32), is_default=False)


def choose_candidates(request: SearchRequest, has_tables: bool, head: str) -> Iterator[Candidate]:
    """Yield the requested candidates. If none is named, yield the default candidates that fit the graph.

    `has_tables` is True if the graph has embedding tables. `head` is the name of its last matrix product. Raises
    InputError if a name is unknown or repeated.
    """
    own = {candidate.name: candidate for candidate in built_in(request.calibration, head)}
    usable = [
        one.name for one in own.values() if one.is_default and (has_tables or not one.name.endswith(TABLES))
    ]
    names = set()
    for choice in request.candidates or usable:
        name = choice if isinstance(choice, str) else choice.name
        if name in names:
            raise InputError(f"two candidates are called {name}", "give each a name of its own")
        names.add(name)
        if not isinstance(choice, str):
            works = (step.to_json().items() for step in choice.steps)
            passes = ({key: item for key, item in work if key not in ("name", "input")} for work in works)
            own[name] = Candidate(name, tuple(passes))
        elif name not in own:
            raise InputError(f"no candidate is called {name}", suggest(name, own))
        yield own[name]


def measure_weights(model: Any, size: int) -> WeightBytes:
    products = sum(value.const_value.nbytes for value in models.factors(model, PRODUCTS))
    tables = sum(value.const_value.nbytes for value in find_tables(model))
    return WeightBytes(products, tables, max(size - products - tables, 0))


def product_groups(model: Any) -> list[list[str]]:
    """Make groups of matrix products. A group has the products with one role, such as the queries of all layers.

    Returns the names of each group's products, the group with the largest weights first. Names in a group differ only
    in numbers: `/encoder/layer.0/query/MatMul`. If a product has no name, returns [].
    """
    groups, sizes = dict[str, list[str]](), Counter[str]()
    for node, weight in _products(model):
        if not node.name:
            return []
        key = re.sub(r"\d+", "#", f"{node.name} {weight.name}") + str(weight.shape)
        groups.setdefault(key, []).append(node.name)
        sizes[key] += weight.nbytes
    return [groups[key] for key, _ in sizes.most_common()]


def head_of(model: Any) -> str:
    """Return the name of the last product with a constant weight; "" if there is none."""
    return next((str(node.name) for node, _ in reversed([*_products(model)])), "")


def _products(model: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each product (`onnx_ir.Node`) with a constant weight, and the weight."""
    weights = models.factors(model, PRODUCTS)
    for node in model.graph:
        weight = next((value for value in node.inputs if value in weights), None)
        if node.op_type in PRODUCTS and weight is not None:
            yield node, weight.const_value


def _transformed(model: Any, passes: Sequence[Mapping[str, Any]]) -> Any:
    for work in passes:
        model, _ = run(work["pass"], find(work["pass"])(**work["params"]), model)
    return model


def _dynamic_except(groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    return _pass(DYNAMIC, nodes_to_exclude=sorted(name for group in groups for name in group))


def run_judged(
    plan: ExportPlan, workspace: Path, cache: StepCache | None = None, progress: Progress = SILENT
) -> tuple[Draft, LatencyTable]:
    """Run a plan with an evaluation. If the recipe asks for a search, search first, and add the winner to the plan.

    The winner is judged once on the second suite, and returned even if it fails. Then all judged artifacts are timed.
    Raises the errors of `run_plan.execute`, and ConversionError if no candidate passes.
    """
    scratch, base, tried = workspace / SCRATCH, None, dict[str, Sequence[Latency]]()
    if plan.recipe.search is None:
        assert plan.evaluation is not None, "callers look"
        progress.step("loading the source")
        subject = run_plan.load_subject(plan, scratch)
        timed = judge = run_plan.prepare(plan, plan.evaluation, subject, cache)
    else:
        search = Search(plan)
        if cache is None:  # a cache for this search alone, so that steps that candidates share run once
            cache = StepCache(scratch / "cache")
        plan = search.run(scratch, cache, progress)
        subject, timed, judge, base = search.subject, search.evaluation, search.confirmation, search.base
        tried = {one.name: one.latencies for one in search.candidates if one.latencies}
    draft = run_plan.execute(plan, workspace, cache, progress, subject, judge)
    latencies = time_judged(timed, draft, base, progress)
    table = LatencyTable(PAIRS, tuple(latencies), tried)
    shutil.rmtree(scratch, ignore_errors=True)
    return draft, table


class Search:
    """Tries candidates in the order of their estimated size. After a candidate passes, larger candidates are skipped.

    With the objective `fast-enough`, a candidate that is slower than the full-precision file (`base`) is judged only if
    no other candidate passes. `evaluation` judges on the first suite, `confirmation` on the second.
    """

    def __init__(self, plan: ExportPlan) -> None:
        """Check suites and candidates. Raise InputError or NotFoundError if the search cannot run or cannot certify."""
        request, evaluation = plan.recipe.search, plan.evaluation
        assert request is not None and evaluation is not None, "callers look"
        if plan.task.members:
            message = f"a search makes one graph, and {plan.task.id} has {len(plan.task.members)}"
            raise InputError(message, "leave --certify out: --eval-suite judges the graphs of --quantize")
        self._plan, self._request, self._judged = plan, request, evaluation.request.artifacts
        part, parts, suites = "suite", "suites", (evaluation, plan.confirm)
        hint = "leave them out of one, or leave --confirm-suite out: then one suite is split"
        if plan.confirm is None:
            part, parts, hint = "half of the suite", "halves of the suite", "give equal items one `group`"
            suites = evaluation.half("choose", request.seed), evaluation.half("confirm", request.seed)
        self._choose, self._confirm = (
            replace(one, request=one.request.model_copy(update={"artifacts": ()})) for one in suites if one
        )
        halves = {f"the {part} to choose on": self._choose, f"the {part} to confirm on": self._confirm}
        if empty := next((name for name, one in halves.items() if not one.suite.items), None):
            raise InputError(f"{empty} has no items", "a search chooses on some items and confirms on others")
        confirm = self._confirm.request
        final_plans = [self._final(candidate, confirm) for candidate in choose_candidates(request, True, "")]
        first, second = ([metric.id for metric in one.metrics] for one in halves.values())
        if first != second:
            raise InputError(
                f"the suite to choose on is judged by {', '.join(first)}, that to confirm on by {', '.join(second)}",
                "name the metrics in the recipe: evaluation: {metrics: [...]}",
            )
        identities, chosen_by = self._confirm.suite.identities, set(self._choose.suite.identities)
        if common := sum(identity in chosen_by for identity in identities):
            raise InputError(
                f"{common} items are in both {parts}: a candidate may not be confirmed on what it was chosen by",
                hint,
            )
        nodes = (node for final_plan in final_plans for node in final_plan.nodes.values())
        calibrated_on = {content(feed) for node in nodes for feed in node.data or ()}
        if common := sum(identity in calibrated_on for identity in identities):
            raise InputError(
                f"{common} rows for calibration are in the suite to confirm on: a candidate may not be made with what it "
                "is confirmed on",
                "calibrate on other rows, such as those of the suite to choose on",
            )
        for name, one in halves.items():
            if obstacle := next(one.obstacles(), None):
                raise InputError(f"{name} proves nothing: {obstacle}", "give it more items, of each label")

    def run(self, directory: Path, cache: StepCache, progress: Progress) -> ExportPlan:
        """Return the plan with the winner's steps and a record. Raise ConversionError if no candidate can pass."""
        directory.mkdir(parents=True)
        self._directory, self._cache, self._progress, self._passed = directory, cache, progress, set[int]()
        self.subject = run_plan.load_subject(self._plan, directory / "subject")
        self.confirmation = run_plan.prepare(self._plan, self._confirm, self.subject, cache)
        self.evaluation = run_plan.prepare(self._plan, self._choose, self.subject, cache)
        progress.step("judging the source")
        records = (one.record for one in self.evaluation.judge(None))
        # "refused" is not a doubt: a metric whose limit demands a gain refuses the source itself
        doubts = [why for one in records if one.state == "unknown" for why in one.reasons]
        if doubts:
            more = f"; and {len(doubts) - MAX_NEAREST} reasons more" if len(doubts) > MAX_NEAREST else ""
            reasons = "; ".join(doubts[:MAX_NEAREST])
            message = f"no candidate can pass on the suite to choose on: {reasons}{more}"
            raise ConversionError(message, NOTHING_PUBLISHED)
        base = self._alone((), self._request.input, self._request.output, "base")
        self.base = base.root / base.artifacts[0].path
        model, objective = models.load(self.base), self._request.objective
        weights = measure_weights(model, self.base.stat().st_size)
        candidates = choose_candidates(self._request, weights.tables > 0, head_of(model))
        self.candidates = sorted(candidates, key=lambda candidate: candidate.estimate(weights))
        smallest, slow = inf, list[Candidate]()
        for number, candidate in enumerate(self.candidates, start=1):
            if candidate.estimate(weights) >= smallest * MAX_SIZE_RATIO[objective]:
                continue
            self._label = f"{number} of {len(self.candidates)}: {candidate.name}"
            if candidate.name.startswith(MIXED) and candidate.bits is not None:
                self._mix(candidate)
            with self._trying(candidate):
                self._make(candidate)
                if objective == "fast-enough" and any(ratio.is_slow for ratio in candidate.ratios):
                    slow.append(candidate)
                elif self._passes(candidate):
                    smallest = min(smallest, candidate.figures["bytes"])
        for candidate in sorted(slow, key=lambda one: one.figures["bytes"]) if smallest == inf else ():
            with self._trying(candidate):
                if self._passes(candidate):
                    break
        winner = self._winner()
        shutil.rmtree(directory / "trials", ignore_errors=True)
        path, artifacts = self._path_of(winner), self._judged
        if artifacts or winner.figures["precision"] == FULL_PRECISION:
            artifacts = tuple(dict.fromkeys((*artifacts, path)))
        request = self._confirm.request.model_copy(update={"artifacts": artifacts})
        record = {
            "input": self._request.input,
            "objective": objective,
            "choose": str(self._choose.suite.digest),
            "confirm": str(self._confirm.suite.digest),
            "candidates": [candidate.record() for candidate in self.candidates],
            "tried": sum(candidate.state != "untried" for candidate in self.candidates),
            "winner": winner.name,
            "output": path,
        }
        self.confirmation.plan = replace(self._confirm, request=request)
        return replace(self._final(winner, request), evaluation=self.confirmation.plan, search=record)

    @cached_property
    def _smoothed(self) -> tuple[Any, tuple[Mapping[str, Any], ...]]:
        passes = (_pass("SmoothQuant", alpha=ALPHA),)
        with suppress(ConversionError, InputError):
            return _transformed(models.load(self.base), passes), passes
        return models.load(self.base), ()

    @cached_property
    def _groups(self) -> list[list[str]]:
        """The groups of products. The first is the group whose dynamic INT8 changes the outputs least."""
        subject, _ = self._smoothed
        groups, distances = product_groups(subject), dict[int, float]()
        for number, group in enumerate(groups[:MAX_GROUPS]):
            self._progress.step(f"{self._label}, group {number + 1} of {len(groups)}")
            others = [other for other in groups if other is not group]
            trial = self._trial_file((_dynamic_except(others),), f"group-{number}")
            with suppress(ConversionError, InputError), trial as file:
                distances[number] = self.evaluation.distance(file, self.base)
        order = sorted(range(len(groups)), key=lambda number: distances.get(number, inf))
        return [groups[number] for number in order]

    @contextmanager
    def _trial_file(self, passes: Sequence[Mapping[str, Any]], name: str) -> Iterator[Path]:
        file = self._directory / f"{name}.onnx"
        models.save(_transformed(self._smoothed[0].clone(), passes), file)
        yield file
        file.unlink()

    def _mix(self, candidate: Candidate) -> None:
        """Try dynamic INT8 for the least sensitive groups of products: all groups but one, then fewer."""
        groups, (_, smooth) = self._groups, self._smoothed
        counts = self._passed or {len(groups) - 1, len(groups) - 2, len(groups) // 2}
        for count in sorted((count for count in counts if count > 0), reverse=True):
            self._progress.step(f"{self._label}, {count} of {len(groups)} groups")
            passes = (_dynamic_except(groups[count:]), *candidate.passes)
            trial = self._trial_file(passes, f"{candidate.name}-{count}")
            with suppress(ConversionError, InputError), trial as file:  # a pass may not fit these groups
                state, _ = combine([one.record for one in self.evaluation.judge(file)])
                if state == "certified":
                    self._passed, candidate.passes = {count}, (*smooth, *passes)
                    return

    @contextmanager
    def _trying(self, candidate: Candidate) -> Iterator[None]:
        try:
            yield
        except (ConversionError, InputError) as error:
            folders = (self._directory.parent, self._plan.directory, Path(self._plan.start))
            # the reason is published with the version, so it names no directory of this machine
            candidate.state, candidate.reasons = "failed", [str(scrub(error.message, "", *folders)[0])]

    def _make(self, candidate: Candidate) -> None:
        self._progress.step(self._label)
        own_steps, path = candidate.steps(self._request.input), self._path_of(candidate)
        draft = self._alone(own_steps, own_steps[-1]["name"], path, f"trials/{candidate.name}")
        (artifact,) = draft.artifacts
        files = (artifact.path, *(sidecar.path for sidecar in artifact.sidecars))
        size = sum((draft.root / file).stat().st_size for file in files)
        candidate.figures |= {"bytes": size, "precision": artifact.precision}
        candidate.file, candidate.reasons = draft.root / artifact.path, (SLOW,)
        candidate.latencies = self.evaluation.time(path, candidate.file, BASE, self.base)

    def _passes(self, candidate: Candidate) -> bool:
        records = [one.record for one in self.evaluation.judge(candidate.file)]
        keys = ("metric", "value", "loss", "limit", "state", "interval")
        figures = (one.to_json() for one in records)
        candidate.figures["metrics"] = [{key: one[key] for key in keys if key in one} for one in figures]
        candidate.state, candidate.reasons = combine(records)
        return candidate.state == "certified"

    def _winner(self) -> Candidate:
        """Return the fastest passing candidate that is at most `MAX_SIZE_RATIO` times as large as the smallest one."""
        objective = self._request.objective
        passed = [candidate for candidate in self.candidates if candidate.state == "certified"]
        if not passed:
            near = [one for one in self.candidates if one.reasons[0].startswith("unclear")]
            near += [one for one in self.candidates if one.state == "refused"]
            misses = "; ".join(
                f"{one.name} ({one.figures['bytes'] / 1e6:.1f} MB): {one.reasons[0]}"
                for one in sorted(near, key=lambda one: one.excess)[:MAX_NEAREST]
            )
            reasons = "; ".join(f"{one.name}: {one.reasons[0]}" for one in self.candidates)
            raise ConversionError(
                f"none of {len(self.candidates)} candidates passes on the suite to choose on; the nearest: "
                f"{misses or reasons[:MAX_REASONS_CHARS]}",
                NOTHING_PUBLISHED,
            )
        most = MAX_SIZE_RATIO[objective] * min(one.figures["bytes"] for one in passed)

        def rank(candidate: Candidate) -> tuple[float, int]:
            ratios = () if objective == "bytes" else candidate.ratios
            slowest = max((1.0 if one.is_noisy else one.value for one in ratios), default=0.0)
            return slowest, candidate.figures["bytes"]

        return min((one for one in passed if one.figures["bytes"] <= most), key=rank)

    def _path_of(self, candidate: Candidate) -> str:
        base = PurePosixPath(self._request.output)
        return base.with_name(f"{base.stem}_{candidate.mark}{base.suffix}").as_posix()

    def _final(self, candidate: Candidate, evaluation: EvaluationRequest) -> ExportPlan:
        path, own_steps = self._path_of(candidate), candidate.steps(self._request.input)
        replaced = next((output for output in self._plan.outputs if output.path == path), None)
        form = replaced.format if replaced is not None else None
        if self._request.format is not None and candidate.mark == "int8":
            form = self._request.format
        own = {"step": own_steps[-1]["name"], "path": path, **({} if form is None else {"format": form})}
        others = [output for output in self._plan.outputs if output is not replaced]
        graphs = sum(not str(output.path).endswith(".ort") for output in others)
        outputs = [output.to_json() for output in others]
        outputs.insert(graphs, own)
        checks = [{**check.to_json(), "output": path} for check in self._request.checks]
        checks += [check.to_json() for check in self._plan.recipe.checks if check.output != path]
        return self._with(own_steps, outputs, checks=checks, evaluation=evaluation.to_json())

    def _alone(self, own_steps: Sequence[Mapping[str, Any]], step: str, path: str, directory: str) -> Draft:
        """Run only the steps that the output at `path` needs, without checks and evaluation."""
        plan = self._plan
        names = {item.step: plan.nodes[item.step].file_name(item) for item in plan.outputs}
        alone = self._with(own_steps, [{"step": step, "path": path, "golden": 0}])
        alone = replace(alone, evaluation=None, file_names=names)
        workspace = self._directory / directory
        workspace.mkdir(parents=True)
        return run_plan.execute(alone, workspace, self._cache, SILENT, self.subject)

    def _with(
        self, own_steps: Sequence[Mapping[str, Any]], outputs: list[dict[str, Any]], **fields: Any
    ) -> ExportPlan:
        """Return the plan with additional steps, these outputs and other fields. Unneeded steps are removed."""
        value = {**self._plan.recipe.to_json(), "outputs": outputs}
        value["steps"] = [*value["steps"], *own_steps]
        value = {key: item for key, item in value.items() if key not in ("search", "checks", "evaluation")}
        recipe = RecipeFile.from_json(value | fields, "search")
        nodes = plan_steps(recipe, self._plan.directory)
        needed = {node.name for output in outputs for node in nodes[output["step"]].lineage()}
        recipe = recipe.model_copy(
            update={"steps": tuple(step for step in recipe.steps if step.name in needed)}
        )
        nodes = {name: node for name, node in nodes.items() if name in needed}
        return replace(self._plan, recipe=recipe, nodes=nodes, outputs=plan_outputs(recipe, nodes))
