"""Result of a step, with its outputs on the sample."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from onnxreg.converters.engine import measure
from onnxreg.converters.engine.make_step import StepFiles
from onnxreg.converters.onnx.facts import GraphFacts, inspect_model, inspect_ort
from onnxreg.converters.onnx.onnx_graph import check_model, load_onnx
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks.labelled_inputs import LabelledInputs
from onnxreg.converters.tasks.task import Sample
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.parts import Step


@dataclass(frozen=True)
class StepResult:
    """A step's result. `ancestors` are the results that it came from, its parent first.

    A graph with fixed axes that does not take the sample is measured on inputs drawn for it, and compared
    with the first graph that was made from the source; that first graph is compared with the source, which
    `run_source` runs. `tolerance` is the pass's own, see `GraphPass`. `is_checked` is False for decoders, whose operators
    only ONNX Runtime knows.
    """

    step_files: StepFiles
    ancestors: "Sequence[StepResult]"
    sample: Sample
    run_source: Callable[[Sequence[Feed]], measure.Outputs]
    tolerance: float | None = None
    labelled: LabelledInputs | None = None
    is_checked: bool = True

    @property
    def has_files(self) -> bool:
        return bool(self.step_files.files)

    @cached_property
    def facts(self) -> GraphFacts:
        """Facts of the graph, read back from its file. ConversionError if ONNX's checker refuses it."""
        main = self.step_files.main
        if main.suffix == ".ort":
            configs = (name for name in self.step_files.files if name.endswith(".config"))
            config = next(configs, None)
            return inspect_ort(main, None if config is None else main.with_name(config))
        model = load_onnx(main)
        try:
            if self.is_checked:
                check_model(model, main)
        except InputError as error:
            raise ConversionError(error.message) from error
        return inspect_model(model, main)

    def read_facts(self) -> None:
        """Read the facts in this thread, while another one runs the next step; `facts` keeps them."""
        _ = self.facts

    @cached_property
    def takes_sample(self) -> bool:
        feeds = self.sample.feeds
        return bool(feeds) and measure.can_run(self._session, feeds)

    @cached_property
    def _session(self) -> Any:
        """Session of the graph, loaded once and released after its run."""
        return load_session(self.step_files.main)

    @cached_property
    def feeds(self) -> Sequence[Feed]:
        if self.takes_sample or not self.sample.feeds:
            return self.sample.feeds
        graphs = [
            result.step_files.main
            for result in (self, *self.ancestors)
            if result.step_files.main.suffix == ".onnx"
        ]
        return measure.drawn_for(graphs[0], graphs[-1])

    @cached_property
    def _run_outputs(self) -> tuple[measure.Outputs, measure.Outputs]:
        """Outputs for the feeds and for the golden inputs, from one session."""
        golden = list(self.sample.golden.values()) if self.takes_sample else []
        feeds = [*self.feeds, *golden]
        run_outputs = measure.run_session(self._session, feeds, self.step_files.main.name)
        del self.__dict__["_session"]
        return run_outputs[: len(self.feeds)], run_outputs[len(self.feeds) :]

    @cached_property
    def outputs(self) -> measure.Outputs:
        """Outputs at the positions that count."""
        return self._counting(self._run_outputs[0])

    @cached_property
    def accuracy(self) -> Mapping[str, float]:
        """Accuracy on the task's labelled inputs by output; empty without labelled inputs."""
        return {} if self.labelled is None else measure.accuracy(self.step_files.main, self.labelled)

    @property
    def golden(self) -> Mapping[str, Mapping[str, Any]]:
        """Outputs for the golden inputs by case; empty if the graph does not take them."""
        return dict(zip(self.sample.golden, self._run_outputs[1], strict=False))

    @cached_property
    def expected(self) -> measure.Outputs:
        """Outputs of the source, or of the first graph that was made from it."""
        if self.takes_sample:
            return self._counting(self.sample.expected)
        if self.ancestors:
            return measure.run(self.ancestors[-1].step_files.main, self.feeds)
        return self.run_source(self.feeds)

    @cached_property
    def step(self) -> Step:
        """Record of the step, with the distance of its result from its parent.

        Raises ConversionError if it does not run, gives NaN, or differs from its parent; see `proof.compare`.
        """
        recorded = self.step_files.step.to_json()
        if not self.has_files or "parity" in recorded.get("result", {}) or not self.feeds:
            return self.step_files.step
        label = self.step_files.step.pass_
        parity = measure.parity(self._parents, self.outputs, self.feeds, label, self.tolerance)
        return Step.from_json({**recorded, "result": {**recorded.get("result", {}), "parity": parity}})

    @property
    def _parents(self) -> measure.Outputs:
        """Outputs of the parent for the feeds of this result."""
        if not self.ancestors:
            return self.expected
        parent = self.ancestors[0]
        both_take_sample = self.takes_sample and parent.takes_sample
        return parent.outputs if both_take_sample else measure.run(parent.step_files.main, self.feeds)

    def _counting(self, outputs: measure.Outputs) -> measure.Outputs:
        return measure.counting(outputs, self.sample) if self.takes_sample else outputs
