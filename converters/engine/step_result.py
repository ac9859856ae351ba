"""What a step made, with what it gives on the sample."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from onnxreg.converters.engine import measure
from onnxreg.converters.engine.make_step import StepFiles
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks.labelled_inputs import LabelledInputs
from onnxreg.converters.tasks.task import Sample
from onnxreg.schema.manifest.recorded_recipe import Step


@dataclass(frozen=True)
class StepResult:
    """A step's result. `above` are those that it came from, its parent first.

    A graph that takes other shapes than the sample, since its axes were fixed, is measured on inputs drawn for it, and
    held against the first graph that was made from the source; where it is that itself, against the source, which
    `run_source` runs. `tolerance` is the pass's own, see `GraphPass`.
    """

    made: StepFiles
    above: "Sequence[StepResult]"
    sample: Sample
    run_source: Callable[[Sequence[Feed]], measure.Outputs]
    tolerance: float | None = None
    labelled: LabelledInputs | None = None

    @property
    def is_there(self) -> bool:
        return bool(self.made.files)

    @cached_property
    def takes_sample(self) -> bool:
        feeds = self.sample.feeds
        return bool(feeds) and measure.fits(self._session, feeds)

    @cached_property
    def _session(self) -> Any:
        """The graph, loaded once; given back when it has run."""
        return load_session(self.made.main)

    @cached_property
    def feeds(self) -> Sequence[Feed]:
        if self.takes_sample or not self.sample.feeds:
            return self.sample.feeds
        graphs = [result.made.main for result in (self, *self.above) if result.made.main.suffix == ".onnx"]
        return measure.drawn_for(graphs[0], graphs[-1])

    @cached_property
    def _given(self) -> tuple[measure.Outputs, measure.Outputs]:
        """The outputs for the feeds, and those for the golden inputs: one session for both."""
        golden = list(self.sample.golden.values()) if self.takes_sample else []
        feeds = [*self.feeds, *golden]
        found = measure.run_session(self._session, feeds, self.made.main.name)
        del self.__dict__["_session"]
        return found[: len(self.feeds)], found[len(self.feeds) :]

    @cached_property
    def outputs(self) -> measure.Outputs:
        """The positions that count."""
        return self._counting(self._given[0])

    @cached_property
    def accuracy(self) -> Mapping[str, float]:
        """The share of the task's labelled inputs whose class is right, by output; none where there are no such."""
        return {} if self.labelled is None else measure.accuracy(self.made.main, self.labelled)

    @property
    def golden(self) -> Mapping[str, Mapping[str, Any]]:
        """The outputs for the golden inputs, by case; none where the graph does not take these."""
        return dict(zip(self.sample.golden, self._given[1], strict=False))

    @cached_property
    def expected(self) -> measure.Outputs:
        """What the source gives, or the first graph that was made from it."""
        if self.takes_sample:
            return self._counting(self.sample.expected)
        if self.above:
            return measure.run(self.above[-1].made.main, self.feeds)
        return self.run_source(self.feeds)

    @cached_property
    def step(self) -> Step:
        """The record of the step, with how far what it made is from its parent.

        Raises ConversionError where it does not run, gives NaN, or is not its parent's; see `proof.compare`.
        """
        recorded = self.made.step.to_json()
        if not self.is_there or "parity" in recorded.get("result", {}) or not self.feeds:
            return self.made.step
        what = self.made.step.pass_
        found = measure.parity(self._parents, self.outputs, self.feeds, what, self.tolerance)
        return Step.from_json({**recorded, "result": {**recorded.get("result", {}), "parity": found}})

    @property
    def _parents(self) -> measure.Outputs:
        """What the parent gives for the feeds of this result."""
        if not self.above:
            return self.expected
        parent = self.above[0]
        both = self.takes_sample and parent.takes_sample
        return parent.outputs if both else measure.run(parent.made.main, self.feeds)

    def _counting(self, outputs: measure.Outputs) -> measure.Outputs:
        return measure.counting(outputs, self.sample) if self.takes_sample else outputs
