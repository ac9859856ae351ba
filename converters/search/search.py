"""The search for the smallest artifact that passes an evaluation.

A `Candidate` is a sequence of passes. A `Search` makes candidates, judges them on a first suite and picks a winner. It
returns a plan with the winner's steps and a second suite, which confirms the winner.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from math import inf
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.engine import run_plan
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import ExportPlan, plan_outputs, plan_steps
from onnxreg.converters.evaluation.evaluate import BASE, time_judged
from onnxreg.converters.evaluation.latency import PAIRS, Latency, LatencyTable
from onnxreg.converters.evaluation.metric import combine
from onnxreg.converters.evaluation.rows import content
from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.pass_catalog import find
from onnxreg.converters.search import candidates
from onnxreg.converters.search.candidates import Candidate
from onnxreg.converters.source.source_files import scrub
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.gates.statements import FULL_PRECISION
from onnxreg.schema.inputs.recipe_file import EvaluationRequest, RecipeFile
from onnxreg.schema.manifest.draft import Draft

MAX_GROUPS = 12
"""The number of groups of products, the largest first, for which the effect of INT8 is measured. Others come last."""
MAX_SIZE_RATIO = {"bytes": 1.0, "fast-enough": 1.01, "latency": inf}
"""For each objective, the largest size of the winner relative to the smallest candidate that passes."""
SCRATCH = ".search"
SLOW = "it is slower than the file in full precision, and another passed"
MAX_NEAREST, MAX_REASONS_CHARS = 3, 600
NOTHING_PUBLISHED = "nothing was published; docs/certification.md says what to do after a refusal"


def _transformed(model: Any, passes: Sequence[Mapping[str, Any]]) -> Any:
    for work in passes:
        model, _ = run(work["pass"], find(work["pass"])(**work["params"]), model)
    return model


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
        final_plans = [self._final(candidate, confirm) for candidate in candidates.choose(request, True, "")]
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
        weights = candidates.measure_weights(model, self.base.stat().st_size)
        choices = candidates.choose(self._request, weights.tables > 0, candidates.last_product(model))
        self.candidates = sorted(choices, key=lambda candidate: candidate.estimate(weights))
        smallest, slow = inf, list[Candidate]()
        for number, candidate in enumerate(self.candidates, start=1):
            if candidate.estimate(weights) >= smallest * MAX_SIZE_RATIO[objective]:
                continue
            self._label = f"{number} of {len(self.candidates)}: {candidate.name}"
            if candidate.name.startswith(candidates.MIXED) and candidate.bits is not None:
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
        with suppress(ConversionError, InputError):
            return _transformed(models.load(self.base), candidates.SMOOTHING), candidates.SMOOTHING
        return models.load(self.base), ()

    @cached_property
    def _groups(self) -> list[list[str]]:
        """The groups of products. The first is the group whose dynamic INT8 changes the outputs least."""
        subject, _ = self._smoothed
        groups, distances = candidates.product_groups(subject), dict[int, float]()
        for number, group in enumerate(groups[:MAX_GROUPS]):
            self._progress.step(f"{self._label}, group {number + 1} of {len(groups)}")
            others = [other for other in groups if other is not group]
            trial = self._trial_file((candidates.dynamic_except(others),), f"group-{number}")
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
            passes = (candidates.dynamic_except(groups[count:]), *candidate.passes)
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
