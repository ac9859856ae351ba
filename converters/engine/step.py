"""One step: its pass applied to its input, its files in a directory of its own, and its outputs on the sample."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.engine import measure
from onnxreg.converters.engine.cache import link_or_copy
from onnxreg.converters.engine.steps import StepNode
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.facts import GraphFacts, inspect_model, inspect_ort
from onnxreg.converters.onnx.onnx_graph import check_model, load_onnx
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import Pass
from onnxreg.converters.passes.model_builder import Decoder
from onnxreg.converters.passes.tools import model_file
from onnxreg.converters.passes.tools.causal_model import sample_steps
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import GENAI_CONFIG, digest_file
from onnxreg.converters.tasks.task import Sample
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.parts import Step

NOTE_FILE = "made.json"


@dataclass(frozen=True)
class StepFiles:
    """The result of a step in `directory`: `files`, the one that runs first, and its record.

    `reproducible` is False if a second run is known to give other bytes. A skipped step has no files.
    """

    step: Step
    directory: Path
    files: tuple[str, ...]
    reproducible: bool = True

    @property
    def main(self) -> Path:
        return self.directory / self.files[0]

    @cached_property
    def digests(self) -> Mapping[str, str]:
        """SHA-256 of each file by name."""
        return {name: str(digest_file(self.directory / name)) for name in self.files}

    def write(self, step: Step) -> None:
        """Write a note with the whole record beside the files, for `read`."""
        value = {"step": step.to_json(), "files": list(self.files), "reproducible": self.reproducible}
        (self.directory / NOTE_FILE).write_bytes(canonical.encode(value, NOTE_FILE))

    @classmethod
    def read(cls, directory: Path, node: StepNode) -> "StepFiles":
        """Read the cached result of an equal step, which may have had another name."""
        value = canonical.decode((directory / NOTE_FILE).read_bytes(), NOTE_FILE)
        step = {key: item for key, item in value["step"].items() if key not in ("name", "input")}
        identity = (
            {"name": node.name} if node.step.input is None else {"name": node.name, "input": node.step.input}
        )
        return cls(
            Step.from_json({**step, **identity}), directory, tuple(value["files"]), value["reproducible"]
        )


def make(
    node: StepNode, start: Any, parent: StepFiles | None, directory: Path, name: str, feed: Feed | None
) -> StepFiles:
    """Run the pass of a step in `directory`, which exists and is empty.

    Raises InputError, naming the step, if its pass does not take this kind of input, and whatever the pass
    raises.

    Args:
        start: the subject's own start, for a step without a parent.
        name: the file name of the graph; of external data and operator configs beside it, the beginning.
        feed: inputs that ORT format is compared on.
    """
    subject = start if parent is None else parent.main
    if not _can_take(node.kind.takes, subject):
        input_label = "the source" if parent is None else f"the result of {node.step.input}"
        raise InputError(
            f"step {node.name}: {node.kind.id} takes a {node.kind.takes}, and {input_label} is not one",
            "a decoder's checkpoint is built by the pass ModelBuilder"
            if _can_take("checkpoint", subject)
            else "a step names what it takes: input: STEP; without it that is the source",
        )
    with model_file.scratch_in(directory.parent):
        step_files = _MAKERS[node.kind.takes](node, subject, directory / name, feed)
    if parent is None or GENAI_CONFIG not in parent.files or node.kind.takes != "graph":
        return step_files
    return replace(step_files, files=(*step_files.files, *_copy_settings(parent, step_files)))


def _copy_settings(parent: StepFiles, step_files: StepFiles) -> list[str]:
    """Give a decoder the settings and the tokenizer of the one that it was made from; returns their names."""
    graphs = {parent.main.name, *external_files(load_onnx(parent.main), parent.main)}
    names = [name for name in parent.files if name not in graphs]
    for name in names:
        link_or_copy(parent.directory / name, step_files.directory / name)
    settings = step_files.directory / GENAI_CONFIG
    value = json.loads(settings.read_text("utf-8"))
    value["model"]["decoder"]["filename"] = step_files.main.name
    settings.unlink()
    settings.write_text(json.dumps(value, indent=4), "utf-8")
    return names


def _can_take(takes: base.Takes, subject: Any) -> bool:
    if takes == "module":
        return isinstance(subject, TorchModel)
    if takes == "checkpoint":
        return isinstance(subject, Path) and subject.is_dir()
    return takes in ("graph", "file", "original") and isinstance(subject, Path) and subject.is_file()


def _run(node: StepNode, work: Pass[Any, Any], subject: Any) -> tuple[Any, Step]:
    return base.run(node.name, work, subject, node.step.input)


def _from_module(node: StepNode, module: Any, target: Path, feed: Feed | None) -> StepFiles:
    graph, step = _run(node, node.make(), module)
    return StepFiles(step, target.parent, model_file.save(graph, target))


def _from_graph(node: StepNode, path: Path, target: Path, feed: Feed | None) -> StepFiles:
    model = model_file.load(path)
    model_file.scrub_metadata(model, path.parent)
    graph, step = _run(node, node.make(), model)
    return StepFiles(step, target.parent, model_file.save(graph, target))


def _from_file(node: StepNode, path: Path, target: Path, feed: Feed | None) -> StepFiles:
    """Run a pass that writes beside its input."""
    copies = _copy_files(path, target)
    files, step = _run(node, node.make(feed=feed), copies[0])
    for file in copies:
        file.unlink()
    return StepFiles(step, target.parent, (files.path.name, files.config.name), files.reproducible)


def _from_original(node: StepNode, path: Path, target: Path, feed: Feed | None) -> StepFiles:
    """Link a graph and its external data, which keeps the names that the graph has for it."""
    _, step = _run(node, node.make(), path)
    external = external_files(load_onnx(path), path)
    link_or_copy(path, target)
    for name in external:
        (target.parent / name).parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(path.parent / name, target.parent / name)
    return StepFiles(step, target.parent, (target.name, *external))


def _copy_files(path: Path, target: Path) -> list[Path]:
    """Link a graph to the name of `target`, and its external data to its own name; the graph comes first."""
    copies, model = [target.with_suffix(".onnx")], load_onnx(path)
    if model_file.scrub_metadata(model, path.parent):
        copies[0].write_bytes(model.SerializeToString(deterministic=True))
    else:
        link_or_copy(path, copies[0])
    for name in external_files(model, path):
        copies.append(target.parent / name)
        link_or_copy(path.parent / name, copies[-1])
    return copies


def _from_checkpoint(node: StepNode, checkpoint: Path, target: Path, feed: Feed | None) -> StepFiles:
    """Run a pass whose tool chooses the file names."""
    target.parent.rmdir()
    decoder, step = _run(node, node.make(), Decoder(checkpoint, target.parent))
    main = next(name for name in decoder.files if name.endswith(".onnx"))
    return StepFiles(step, target.parent, (main, *(name for name in decoder.files if name != main)))


_MAKERS: Mapping[base.Takes, Callable[[StepNode, Any, Path, Feed | None], StepFiles]] = {
    "module": _from_module,
    "graph": _from_graph,
    "file": _from_file,
    "original": _from_original,
    "checkpoint": _from_checkpoint,
}


@dataclass(frozen=True)
class StepResult:
    """A step's result. `ancestors` are the results that it came from, its parent first.

    A graph with fixed axes that does not take the sample is measured on inputs drawn for it, and compared
    with the first graph that was made from the source; that first graph is compared with the source, which
    `run_source` runs. `tolerance` is the pass's own, see `GraphPass`. `is_checked` is False for decoders, whose operators
    only ONNX Runtime knows, `is_bounded` is False if the recipe states its own limit, see `samples.compare`.
    """

    step_files: StepFiles
    ancestors: "Sequence[StepResult]"
    sample: Sample
    run_source: Callable[[Sequence[Feed]], measure.Outputs]
    tolerance: float | None = None
    is_checked: bool = True
    is_bounded: bool = True

    @property
    def has_files(self) -> bool:
        return bool(self.step_files.files)

    @cached_property
    def facts(self) -> GraphFacts:
        """Facts of the graph, read back from its file. ConversionError if ONNX's checker refuses it."""
        main = self.step_files.main
        if main.suffix == ".ort":
            return inspect_ort(main)
        model = load_onnx(main)
        try:
            if self.is_checked:
                check_model(model, main)
        except InputError as error:
            raise ConversionError(error.message) from error
        return inspect_model(model, main)

    def read_facts(self) -> GraphFacts:
        """Read the facts in this thread, while another one runs the next step; `facts` keeps them."""
        return self.facts

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
        if self.takes_sample:
            return self.sample.feeds
        if not self.sample.feeds:
            origin = self.ancestors[-1] if self.ancestors else self
            if origin is self or GENAI_CONFIG not in origin.step_files.files:
                return ()
            return sample_steps(origin.step_files.main, self._session.get_inputs())
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
        self._release_session()
        return run_outputs[: len(self.feeds)], run_outputs[len(self.feeds) :]

    def _release_session(self) -> None:
        """Free the memory of the session; its outputs are kept."""
        del self.__dict__["_session"]

    @cached_property
    def outputs(self) -> measure.Outputs:
        """Outputs at the positions that count."""
        return self._counting(self._run_outputs[0])

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

        Raises ConversionError if it does not run, gives NaN, or differs from its parent; see `samples.compare`.
        """
        recorded = self.step_files.step.to_json()
        if not self.has_files or "parity" in recorded.get("result", {}) or not self.feeds:
            return self.step_files.step
        label = self.step_files.step.pass_
        parity = measure.parity(
            self._parents, self.outputs, self.feeds, label, self.tolerance, self.is_bounded
        )
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
