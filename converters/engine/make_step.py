"""One step: its pass applied to its input, with the result in a directory of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.cache import link_or_copy
from onnxreg.converters.engine.steps import StepNode
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import Pass
from onnxreg.converters.passes.model_builder import Decoder
from onnxreg.converters.passes.tools import model_file
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
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
            "a step names what it takes: input: STEP; without it that is the source",
        )
    with model_file.scratch_in(directory.parent):
        step_files = _MAKERS[node.kind.takes](node, subject, directory / name, feed)
    return step_files


def _can_take(takes: base.Takes, subject: Any) -> bool:
    if takes == "module":
        return isinstance(subject, TorchModel)
    if takes == "checkpoint":
        return isinstance(subject, Path) and subject.is_dir()
    return takes in ("graph", "file") and isinstance(subject, Path) and subject.is_file()


def _run(node: StepNode, work: Pass[Any, Any], subject: Any) -> tuple[Any, Step]:
    return base.run(node.name, work, subject, node.step.input)


def _from_module(node: StepNode, module: Any, target: Path, feed: Feed | None) -> StepFiles:
    graph, step = _run(node, node.make(), module)
    return StepFiles(step, target.parent, model_file.save(graph, target))


def _from_graph(node: StepNode, path: Path, target: Path, feed: Feed | None) -> StepFiles:
    model = model_file.load(path)
    model_file.take_paths_out(model, path.parent)
    graph, step = _run(node, node.make(), model)
    return StepFiles(step, target.parent, model_file.save(graph, target))


def _from_file(node: StepNode, path: Path, target: Path, feed: Feed | None) -> StepFiles:
    """Run a pass that writes beside its input."""
    copies = _copy_files(path, target)
    files, step = _run(node, node.make(feed=feed), copies[0])
    for file in copies:
        file.unlink()
    return StepFiles(step, target.parent, (files.path.name, files.config.name), files.reproducible)


def _copy_files(path: Path, target: Path) -> list[Path]:
    """Link a graph to the name of `target`, and its external data to its own name; the graph comes first."""
    copies, model = [target.with_suffix(".onnx")], load_onnx(path)
    if model_file.take_paths_out(model, path.parent):
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
    "checkpoint": _from_checkpoint,
}
