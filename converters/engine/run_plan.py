"""Running an order: load the source, run each step, measure what it made beside the making of the next."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any

from onnxreg.converters.engine import measure, subjects
from onnxreg.converters.engine.cache import Key, StepCache
from onnxreg.converters.engine.describe import SCRATCH, SUBJECT, draft_of
from onnxreg.converters.engine.make_step import StepFiles, make
from onnxreg.converters.engine.measure import Outputs
from onnxreg.converters.engine.plan import ExportPlan, pass_key
from onnxreg.converters.engine.step_result import StepResult
from onnxreg.converters.engine.steps import StepNode, file_name
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes.base import skip
from onnxreg.converters.passes.tools import proof, samples, torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.source.toolchain import tools
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import HostError
from onnxreg.schema.manifest.draft import Draft

Report = Callable[[str], None]
Results = Mapping[str, Future[StepResult]]


def execute(
    order: ExportPlan, workspace: Path, cache: StepCache | None = None, report: Report = lambda step: None
) -> Draft:
    """Run an order into `workspace` and return the draft of a version. Steps whose result is in `cache` are not run.

    Raises what the task and the passes raise, and ConversionError where a graph does not load, gives NaN, is not its
    parent's, or is further from the source than a check allows. Then nothing in the workspace counts.
    """
    return Execution(order, workspace, cache, report).run()


class Execution:
    """One run of an order. Steps are made one after the other; a second thread measures what was made."""

    def __init__(self, order: ExportPlan, workspace: Path, cache: StepCache | None, report: Report) -> None:
        self._order = order
        self._workspace = workspace
        self._scratch = workspace / SCRATCH
        self._steps = self._scratch / "steps"
        self._cache = cache
        self._report = report
        self._names = {output.step: file_name(order.nodes[output.step], output) for output in order.outputs}
        self._loading = Lock()

    def run(self) -> Draft:
        self._steps.mkdir(parents=True)
        self._report("loading the source")
        self._subject = subjects.load(self._order, self._scratch / SUBJECT, self._cache)
        with ThreadPoolExecutor(max_workers=1) as beside:
            results = self._run_steps(beside)
        contract = self._order.contract
        if contract.keeps_source:
            self._loaded()
        else:
            self._subject = replace(self._subject, start=None, loaded=None)
        self._report("describing what was made")
        draft = draft_of(self._order, self._subject, results, self._workspace)
        if contract.finishing is not None:
            self._report(contract.finishing)
        draft = contract.finish(draft, self._subject, self._workspace)
        shutil.rmtree(self._scratch)
        return draft

    def _run_steps(self, beside: ThreadPoolExecutor) -> dict[str, StepResult]:
        made: dict[str, StepFiles] = {}
        results: dict[str, Future[StepResult]] = {}
        for name, node in self._order.nodes.items():
            parent = None if node.parent is None else made[node.parent.name]
            made[name], key = self._make(node, parent, results)
            results[name] = beside.submit(self._measure, node, made[name], key, dict(results))
        self._report("measuring what was made")
        return {name: future.result() for name, future in results.items()}

    def _make(
        self, node: StepNode, parent: StepFiles | None, before: Results
    ) -> tuple[StepFiles, Key | None]:
        """What a step made, and the key to keep it under; None for what was in the cache, or was skipped."""
        directory = self._steps / node.name
        if parent is not None and parent.step.skipped:
            return self._skipped(node, parent.step.skipped), None
        name = self._names.get(node.name) or file_name(node)
        key = self._key(node, parent, name)
        directory.mkdir()
        if self._cache is not None and self._cache.find("steps", key, directory):
            return StepFiles.read(directory, node), None
        self._report(f"running {node.name}")
        start = self._loaded().start if parent is None else None
        try:
            made = make(node, start, parent, directory, name, self._feed(node, before))
        except HostError as error:
            if not node.asked.optional:
                raise
            return self._skipped(node, error.message), None
        if isinstance(start, Path):
            self._order.check_unchanged()
        return made, key

    def _loaded(self) -> ExportSubject:
        """The subject with its start, which what came out of the cache does not have. Both threads may ask."""
        with self._loading:
            if self._subject.start is None:
                directory = Path(mkdtemp(dir=self._scratch)) / SUBJECT
                self._subject = subjects.load(self._order, directory, None)
            return self._subject

    def _feed(self, node: StepNode, before: Results) -> Feed | None:
        """Inputs for a pass that compares two forms of one file: such as its parent takes."""
        if node.kind.takes != "file":
            return None
        parent = node.parent
        feeds = self._subject.sample.feeds if parent is None else before[parent.name].result().feeds
        return next(iter(feeds), None)

    def _skipped(self, node: StepNode, reason: str) -> StepFiles:
        work = node.make() if node.kind.takes != "file" else node.make(feed={})
        return StepFiles(skip(node.name, work, node.asked.input or "", reason), self._steps / node.name, ())

    def _key(self, node: StepNode, parent: StepFiles | None, file: str) -> Key:
        before: Any = self._order.subject_key() if parent is None else dict(parent.digests)
        sample = str(samples.digest(self._subject.sample.feeds))
        return {"pass": pass_key(node), "input": before, "file": file, "sample": sample, "tools": tools()}

    def _measure(self, node: StepNode, made: StepFiles, key: Key | None, before: Results) -> StepResult:
        """Everything before it was measured already: this runs in one thread, in order."""
        above = [before[one.name].result() for one in node.above()[1:]]
        subject = self._subject
        tolerance = self._tolerance(node, made)
        result = StepResult(made, above, subject.sample, self._run_source, tolerance, subject.labelled)
        step = result.step
        if key is not None and self._cache is not None:
            made.write(step)
            self._cache.keep("steps", key, made.directory)
        return result

    def _tolerance(self, node: StepNode, made: StepFiles) -> float | None:
        """As the precision of the graph allows, which a pass that has a tolerance does not change."""
        if not made.files or getattr(node.kind, "tolerance", None) is None:
            return None
        return proof.tolerance_of(node.kind, load_onnx(made.main))

    def _run_source(self, feeds: Sequence[Feed]) -> Outputs:
        start = self._loaded().start
        if isinstance(start, TorchModel):
            return torch_model.run(start, feeds)
        return measure.run(start, feeds)
