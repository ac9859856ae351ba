"""Run a plan: load the source, run each step, and measure its result while the next steps run.

The subject of a plan is loaded by its task, or as much of it as the cache keeps.
"""

import io
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import TYPE_CHECKING, Any

from onnxreg.converters.engine import measure
from onnxreg.converters.engine.cache import Key, StepCache
from onnxreg.converters.engine.describe import FILES_DIRECTORY, SCRATCH_DIRECTORY, SUBJECT_DIRECTORY, draft_of
from onnxreg.converters.engine.measure import Outputs, counting
from onnxreg.converters.engine.plan import ExportPlan, pass_key
from onnxreg.converters.engine.step import StepFiles, StepResult, make
from onnxreg.converters.engine.steps import StepNode, file_name
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes.base import skip
from onnxreg.converters.passes.tools import samples, torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.runtime.first_load import FirstLoader
from onnxreg.converters.source.toolchain import tools
from onnxreg.converters.tasks.task import ExportSubject, Sample
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import ConversionError, HostError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.manifest.draft import Draft, DraftFile
from onnxreg.schema.manifest.manifest import Source

if TYPE_CHECKING:
    from onnxreg.converters.evaluation.judgement import JudgedArtifact

Results = Mapping[str, Future[StepResult]]

MEASURING_THREADS = 2
"""With two, an android export takes 3 % less time and 4 % more memory than with one; more were not measured."""

CRASHED = (
    "leave this output out, or make it by other passes; what the other steps made is kept for the next export"
)

SUBJECT_FILE, ARRAYS_FILE = "subject.json", "sample.npz"


def execute(
    plan: ExportPlan, workspace: Path, cache: StepCache | None = None, progress: Progress = SILENT
) -> Draft:
    """Run a plan into `workspace` and return the draft of a version. Steps whose result is in `cache` are not
    run.

    Raises what the task and the passes raise, and ConversionError if a graph does not load, gives NaN,
    differs from its parent, or is further from the source than a check allows. Then the workspace is not
    valid.
    """
    return Execution(plan, workspace, cache, progress).run()


class Execution:
    """One run of a plan. Steps run one after the other; other threads measure their results."""

    def __init__(
        self, plan: ExportPlan, workspace: Path, cache: StepCache | None, progress: Progress
    ) -> None:
        self._plan = plan
        self._workspace = workspace
        self._scratch = workspace / SCRATCH_DIRECTORY
        self._steps = self._scratch / "steps"
        self._cache = cache
        self._progress = progress
        self._outputs = {output.step for output in plan.outputs}
        outputs = {output.step: file_name(plan.nodes[output.step], output) for output in plan.outputs}
        self._names = {**plan.file_names, **outputs}
        limited = [
            plan.nodes[output.step]
            for output in plan.outputs
            if not measure.is_bounded(measure.limits_of(plan.recipe.checks, str(output.path)))
        ]
        self._unbounded = {ancestor.name for node in limited for ancestor in node.lineage()}
        self._loading = Lock()
        self._first_loader = FirstLoader()
        self._keeps_source = plan.promises.keeps_source or plan.evaluation is not None
        self._starts = [node.name for node in plan.nodes.values() if node.parent is None]

    def run(self) -> Draft:
        self._steps.mkdir(parents=True)
        self._progress.step("loading the source")
        self._subject = load_subject(self._plan, self._scratch / SUBJECT_DIRECTORY, self._cache)
        with self._first_loader, ThreadPoolExecutor(MEASURING_THREADS) as executor:
            results = self._run_steps(executor)
        promises, evaluation = self._plan.promises, self._plan.evaluation
        if self._keeps_source:
            self._loaded()
        self._progress.step("describing what was made")
        draft = draft_of(self._plan, self._subject, results, self._workspace)
        judged: Mapping[str, JudgedArtifact] = {}
        if evaluation is not None:
            from onnxreg.converters.evaluation.evaluate import evaluate

            trusted = self._plan.task.trust_remote_code
            key = {"subject": self._plan.subject_key()}
            draft, judged = evaluate(
                evaluation, draft, self._subject, trusted, self._progress, self._cache, key
            )
        draft = promises.finish(draft, self._subject, self._workspace, judged)
        shutil.rmtree(self._scratch)
        return draft

    def _run_steps(self, executor: ThreadPoolExecutor) -> dict[str, StepResult]:
        step_files: dict[str, StepFiles] = {}
        results: dict[str, Future[StepResult]] = {}
        for name, node in self._plan.nodes.items():
            parent = None if node.parent is None else step_files[node.parent.name]
            step_files[name], key = self._make(node, parent, results)
            results[name] = executor.submit(self._measure, node, step_files[name], key, dict(results))
        self._progress.step("measuring what was made")
        return {name: future.result() for name, future in results.items()}

    def _make(
        self, node: StepNode, parent: StepFiles | None, previous: Results
    ) -> tuple[StepFiles, Key | None]:
        """Run a step; return its files and its cache key, which is None for a cached or skipped result."""
        directory = self._steps / node.name
        if parent is not None and parent.step.skipped:
            return self._skipped(node, parent.step.skipped), None
        name = self._names.get(node.name) or file_name(node)
        key = self._key(node, parent, name)
        directory.mkdir()
        if self._cache is not None and self._cache.find("steps", key, directory):
            return StepFiles.read(directory, node), None
        self._progress.step(f"running {node.name}")
        start = self._loaded().start if parent is None else None
        try:
            step_files = make(node, start, parent, directory, name, self._feed(node, previous))
        except HostError as error:
            if not node.step.optional:
                raise
            return self._skipped(node, error.message), None
        if isinstance(start, Path):
            self._plan.check_unchanged()
        return step_files, key

    def _loaded(self) -> ExportSubject:
        """Load the subject with its start, which a cached subject lacks. Any thread may call this."""
        with self._loading:
            if self._subject.start is None:
                directory = Path(mkdtemp(dir=self._scratch)) / SUBJECT_DIRECTORY
                self._subject = load_subject(self._plan, directory, None)
            return self._subject

    def _feed(self, node: StepNode, previous: Results) -> Feed | None:
        """Return inputs of the parent's kind for a pass that compares two forms of one file."""
        if node.kind.takes != "file":
            return None
        parent = node.parent
        feeds = self._subject.sample.feeds if parent is None else previous[parent.name].result().feeds
        return next(iter(feeds), None)

    def _skipped(self, node: StepNode, reason: str) -> StepFiles:
        work = node.make() if node.kind.takes != "file" else node.make(feed={})
        return StepFiles(skip(node.name, work, node.step.input or "", reason), self._steps / node.name, ())

    def _key(self, node: StepNode, parent: StepFiles | None, file: str) -> Key:
        input_key: Any = self._plan.subject_key() if parent is None else dict(parent.digests)
        sample = str(samples.digest(self._subject.sample.feeds))
        return {"pass": pass_key(node), "input": input_key, "file": file, "sample": sample, "tools": tools()}

    def _measure(
        self, node: StepNode, step_files: StepFiles, key: Key | None, previous: Results
    ) -> StepResult:
        """Measure a step once those that it comes from are measured."""
        if key is not None and step_files.files and node.kind.takes != "checkpoint":
            label = f"{step_files.main.name}, which {node.kind.id} made"
            self._first_loader.load(step_files.main, label, CRASHED)
        ancestors = [previous[ancestor.name].result() for ancestor in node.lineage()[1:]]
        subject = self._subject
        tolerance = self._tolerance(node, step_files)
        result = StepResult(
            step_files,
            ancestors,
            subject.sample,
            self._run_source,
            tolerance,
            is_checked=node.kind.takes != "checkpoint",
            is_bounded=node.name not in self._unbounded,
        )
        step = result.step
        if key is not None and self._cache is not None:
            step_files.write(step)
            self._cache.keep("steps", key, step_files.directory, step_files.digests)
        if node.name == self._starts[-1] and not self._keeps_source:
            for name in self._starts[:-1]:
                previous[name].result()
            self._release()
        if node.name in self._outputs and result.has_files:
            result.read_facts()
        return result

    def _release(self) -> None:
        """Free the memory of the source: every step that takes it is made and measured."""
        with self._loading:
            self._subject = replace(self._subject, start=None, loaded=None)

    def _tolerance(self, node: StepNode, step_files: StepFiles) -> float | None:
        """Return the tolerance for the graph's precision, if its pass has one."""
        if not step_files.files or getattr(node.kind, "tolerance", None) is None:
            return None
        return samples.tolerance_of(node.kind, load_onnx(step_files.main))

    def _run_source(self, feeds: Sequence[Feed]) -> Outputs:
        start = self._loaded().start
        if isinstance(start, TorchModel):
            return torch_model.run(start, feeds)
        return measure.run(start, feeds)


def load_subject(plan: ExportPlan, directory: Path, cache: StepCache | None) -> ExportSubject:
    """Load the subject, its companions below `directory / "files"`. From the cache it has no `start` and
    nothing loaded.

    Raises what the task's `load` raises, and InputError if the source was changed meanwhile.
    """
    directory.mkdir()
    key = plan.subject_key()
    if cache is not None and cache.find("subjects", key, directory):
        (directory / FILES_DIRECTORY).mkdir(exist_ok=True)
        return _read_subject(directory)
    (directory / FILES_DIRECTORY).mkdir()
    subject = plan.task.load(plan.source, plan.name, directory / FILES_DIRECTORY)
    plan.check_unchanged()
    _refuse_no_numbers(subject.sample)
    if cache is not None:
        _write_subject(subject, directory)
        cache.keep("subjects", key, directory)
    return subject


def _refuse_no_numbers(sample: Sample) -> None:
    """Raise ConversionError for NaN or infinity in the source's outputs: nothing can be compared with them."""
    import numpy as np

    for outputs in counting(sample.expected, sample):
        for name, array in outputs.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ConversionError(
                    f"the source itself gives NaN or infinity in {name}", "check its weights"
                )


def _write_subject(subject: ExportSubject, directory: Path) -> None:
    import numpy as np

    sample = subject.sample
    parts = {"feeds": sample.feeds, "expected": sample.expected, "golden": list(sample.golden.values())}
    arrays = {
        f"{part}/{index}/{name}": array.astype(str) if array.dtype == object else array
        for part, runs in parts.items()
        for index, run in enumerate(runs)
        for name, array in run.items()
    }
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    (directory / ARRAYS_FILE).write_bytes(buffer.getvalue())
    note = {
        "origin": subject.origin.to_json(),
        "per_token": sorted(sample.per_token),
        "golden": list(sample.golden),
        "companions": [[file.role, file.path] for file in subject.companions],
        "fields": dict(subject.fields),
        "got": dict(subject.resolved_options),
    }
    (directory / SUBJECT_FILE).write_bytes(canonical.encode(note, SUBJECT_FILE))


def _read_subject(directory: Path) -> ExportSubject:
    import numpy as np

    note = canonical.decode((directory / SUBJECT_FILE).read_bytes(), SUBJECT_FILE)
    with np.load(directory / ARRAYS_FILE, allow_pickle=False) as arrays:
        runs = _runs({name: arrays[name] for name in arrays.files})
    golden = dict(zip(note["golden"], runs.get("golden", ()), strict=True))
    sample = Sample(runs.get("feeds", ()), runs.get("expected", ()), frozenset(note["per_token"]), golden)
    companions = tuple(DraftFile(role, path) for role, path in note["companions"])
    origin = Source.from_json(note["origin"])
    return ExportSubject(origin, sample, None, companions, note["fields"], note["got"])


def _runs(arrays: Mapping[str, Any]) -> dict[str, Sequence[dict[str, Any]]]:
    """Group arrays named `<part>/<run>/<name>` as `{part: [{name: array}]}`."""
    parts: dict[str, dict[int, dict[str, Any]]] = {}
    for key, array in arrays.items():
        part, index, name = key.split("/", 2)
        parts.setdefault(part, {}).setdefault(int(index), {})[name] = array
    return {part: [runs[index] for index in sorted(runs)] for part, runs in parts.items()}
