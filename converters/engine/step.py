"""One step: its files in a directory of its own, its graph's outputs on the sample, and its distance from its parent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.engine import measure
from onnxreg.converters.engine.steps import StepNode
from onnxreg.converters.onnx.facts import GraphFacts, inspect_model, inspect_ort
from onnxreg.converters.onnx.onnx_graph import check_model, load_onnx
from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.model_builder import sample_steps
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import GENAI_CONFIG, digest_file
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.parts import Step


@dataclass
class LoadedSource:
    """The subject of an export. Its `start` and `loaded` are dropped once nothing takes them."""

    subject: ExportSubject


@dataclass(frozen=True)
class Runs:
    """Inputs of a graph and its outputs for them, at the positions that count; `golden` are those of the golden inputs."""

    feeds: Sequence[Feed]
    takes_sample: bool
    outputs: measure.Outputs
    golden: Mapping[str, Mapping[str, Any]]


@dataclass
class StepResult:
    """The result of a step in `directory`: `files`, the one that runs first, and its record. A skipped step has no files.

    `ancestors` are the results that it came from, its parent first. `reproducible` is False if a second run is known to give
    other bytes.
    """

    node: StepNode
    directory: Path
    step: Step
    files: tuple[str, ...]
    reproducible: bool
    ancestors: "tuple[StepResult, ...]"
    source: LoadedSource

    @property
    def main(self) -> Path:
        return self.directory / self.files[0]

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of each file by name."""
        return {name: str(digest_file(self.directory / name)) for name in self.files}

    @cached_property
    def facts(self) -> GraphFacts:
        """Facts of the graph, read back from its file. ConversionError if ONNX's checker refuses it."""
        if self.main.suffix == ".ort":
            return inspect_ort(self.main)
        model = load_onnx(self.main)
        try:
            if self.node.kind.takes != "checkpoint":  # whose operators only ONNX Runtime knows
                check_model(model, self.main)
        except InputError as error:
            raise ConversionError(error.message) from error
        return inspect_model(model, self.main)

    @cached_property
    def runs(self) -> Runs:
        """One run on the sample; a graph with fixed axes that does not take it gets inputs drawn for it."""
        sample, session = self.source.subject.sample, load_session(self.main)
        takes_sample = bool(sample.feeds) and measure.can_run(session, sample.feeds)
        feeds: Sequence[Feed] = sample.feeds
        if not sample.feeds:
            origin = self.ancestors[-1] if self.ancestors else self
            is_decoder = origin is not self and GENAI_CONFIG in origin.files
            feeds = sample_steps(origin.main, session.get_inputs()) if is_decoder else ()
        elif not takes_sample:
            graphs = [item.main for item in (self, *self.ancestors) if item.main.suffix == ".onnx"]
            feeds = measure.drawn_for(graphs[0], graphs[-1])
        golden = sample.golden if takes_sample else {}
        arrays = measure.run_session(session, [*feeds, *golden.values()], self.main.name)
        outputs = arrays[: len(feeds)]
        return Runs(
            feeds,
            takes_sample,
            measure.counting(outputs, sample) if takes_sample else outputs,
            dict(zip(golden, arrays[len(feeds) :], strict=True)),
        )

    @cached_property
    def expected(self) -> measure.Outputs:
        """Outputs of the source for the same inputs, or of the first graph that was made from it."""
        if self.runs.takes_sample:
            sample = self.source.subject.sample
            return measure.counting(sample.expected, sample)
        if not self.runs.feeds:  # a decoder, which its pass compares
            return ()
        if self.ancestors:
            return measure.run(self.ancestors[-1].main, self.runs.feeds)
        start = self.source.subject.start
        run = conversion.run if isinstance(start, conversion.TorchModel) else measure.run
        return run(start, self.runs.feeds)

    def compare(self, is_bounded: bool) -> None:
        """Record the distance from the parent, unless that is on record.

        Raises ConversionError if the graph does not run, gives NaN, or differs from its parent: see `samples.compare`.
        """
        recorded = self.step.to_json()
        if not self.files or "parity" in recorded.get("result", {}) or not self.runs.feeds:
            return
        parent = self.ancestors[0] if self.ancestors else None
        if parent is None:
            parents = self.expected
        elif self.runs.takes_sample and parent.runs.takes_sample:
            parents = parent.runs.outputs
        else:
            parents = measure.run(parent.main, self.runs.feeds)
        tolerance = None
        if getattr(self.node.kind, "tolerance", None) is not None:
            tolerance = samples.tolerance_of(self.node.kind, load_onnx(self.main))
        label = self.node.kind.id
        outputs = samples.compare(parents, self.runs.outputs, label, tolerance, is_bounded)
        feeds = self.runs.feeds
        parity = {"samples": len(feeds), "dataset": str(samples.digest(feeds)), "outputs": outputs}
        self.step = Step.from_json({**recorded, "result": {**recorded.get("result", {}), "parity": parity}})
