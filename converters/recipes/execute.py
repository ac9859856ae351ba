"""Running an order: load the source, run each step, measure what it made beside the making of the next."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.passes import samples
from onnxreg.converters.passes.base import skip
from onnxreg.converters.recipes import subjects
from onnxreg.converters.recipes.cache import Cache, Key
from onnxreg.converters.recipes.drafting import draft_of
from onnxreg.converters.recipes.making import Made, make
from onnxreg.converters.recipes.order import Order, pass_key, tools
from onnxreg.converters.recipes.result import Result
from onnxreg.converters.recipes.tree import Node
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import HostError

Report = Callable[[str], None]


def execute(
    order: Order, workspace: Path, cache: Cache | None = None, report: Report = lambda step: None
) -> Draft:
    """Run an order into `workspace` and return the draft of a version. Steps whose result is in `cache` are not run.

    Raises what the task and the passes raise, and ConversionError where a graph does not load, gives NaN, is not its
    parent's, or is further from the source than a check allows. Then nothing in the workspace counts.
    """
    return Execution(order, workspace, cache, report).run()


class Execution:
    """One run of an order. Steps are made one after the other; a second thread measures what was made."""

    def __init__(self, order: Order, workspace: Path, cache: Cache | None, report: Report) -> None:
        self._order = order
        self._workspace = workspace
        self._scratch = workspace / ".steps"
        self._cache = cache
        self._report = report
        self._paths = {output.step: output.path or f"{output.step}.onnx" for output in order.outputs}

    def run(self) -> Draft:
        self._scratch.mkdir()
        self._report("loading the source")
        self._subject = subjects.load(self._order, self._scratch / "subject", self._cache)
        with ThreadPoolExecutor(max_workers=1) as beside:
            results = self._run_steps(beside)
        contract = self._order.contract
        if contract.keeps_source:
            self._load_again()
        else:
            self._subject = replace(self._subject, start=None, loaded=None)
        self._report("describing what was made")
        draft = draft_of(self._order, self._subject, results, self._workspace)
        draft = contract.finish(draft, self._subject, self._workspace)
        shutil.rmtree(self._scratch)
        return draft

    def _run_steps(self, beside: ThreadPoolExecutor) -> dict[str, Result]:
        made: dict[str, Made] = {}
        results: dict[str, Future[Result]] = {}
        for name, node in self._order.nodes.items():
            parent = None if node.parent is None else made[node.parent.name]
            made[name], key = self._make(node, parent)
            results[name] = beside.submit(self._measure, node, made[name], key, dict(results))
        return {name: future.result() for name, future in results.items()}

    def _make(self, node: Node, parent: Made | None) -> tuple[Made, Key | None]:
        """What a step made, and the key to keep it under; None for what was in the cache, or was skipped."""
        directory = self._scratch / node.name
        if parent is not None and parent.step.skipped:
            return self._skipped(node, parent.step.skipped), None
        file = Path(self._paths.get(node.name, "model.onnx")).name
        key = self._key(node, parent, file)
        directory.mkdir()
        if self._cache is not None and self._cache.find("steps", key, directory):
            return Made.read(directory, node), None
        self._report(f"running {node.name}")
        if parent is None:
            self._load_again()
        feeds = self._subject.sample.feeds
        try:
            return make(node, self._subject.start, parent, directory, file, next(iter(feeds), None)), key
        except HostError as error:
            if not node.asked.optional:
                raise
            return self._skipped(node, error.message), None

    def _load_again(self) -> None:
        """A step needs the source itself, and all that is here came out of the cache."""
        if self._subject.start is None:
            self._subject = subjects.load(self._order, self._scratch / "loaded", None)

    def _skipped(self, node: Node, reason: str) -> Made:
        work = node.make() if node.kind.takes != "file" else node.make(feed={})
        return Made(skip(node.name, work, node.asked.input or "", reason), self._scratch / node.name, ())

    def _key(self, node: Node, parent: Made | None, file: str) -> Key:
        before: Any = self._order.subject_key() if parent is None else parent.digests()
        sample = str(samples.digest(self._subject.sample.feeds))
        return {"pass": pass_key(node), "input": before, "file": file, "sample": sample, "tools": tools()}

    def _measure(self, node: Node, made: Made, key: Key | None, before: dict[str, Future[Result]]) -> Result:
        """Everything before it was measured already: this runs in one thread, in order."""
        above = [before[one.name].result() for one in node.above()[1:]]
        result = Result(made, above, self._subject, getattr(node.kind, "tolerance", None))
        step = result.step
        if key is not None and self._cache is not None:
            made.write(step)
            self._cache.keep("steps", key, made.directory)
        return result
