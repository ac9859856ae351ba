"""Find the winner of a search, and run the export that it leads to."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.engine import latency, run_plan
from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.engine.plan import ExportPlan
from onnxreg.converters.evaluation.evaluate import FULL_PRECISION, SourceEvaluation
from onnxreg.converters.evaluation.judgement import EvaluationError
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.search import candidates as catalog
from onnxreg.converters.search.candidates import Candidate
from onnxreg.converters.search.search_plan import (
    SearchPlan,
    base_plan,
    final_plan,
    path_of,
    plan_search,
    trial_plan,
)
from onnxreg.converters.source.scrub import scrub
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.log.summary import summarize
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.query.device import Device

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
        weights = catalog.measure_weights(graph, path.stat().st_size)
        pairs = [
            (candidate, candidate.estimate(weights))
            for candidate in catalog.choose(self._request, has_tables=weights.tables > 0)
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
