"""One step: its pass applied to what lies before it, and what it made in a directory of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.cache import lend
from onnxreg.converters.engine.steps import StepNode
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.passes import base
from onnxreg.converters.passes.base import Pass
from onnxreg.converters.passes.model_builder import Decoder
from onnxreg.converters.passes.tools import model_file, strip_notes
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.source.file_hash import digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.recorded_recipe import Step

NOTE = "made.json"


@dataclass(frozen=True)
class StepFiles:
    """What a step left in `directory`: `files`, the one that runs first, and its record.

    `reproducible` is False where a second run is known to give other bytes. A step that was skipped left no files.
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
        """The SHA-256 of each file, by its name."""
        return {name: str(digest_file(self.directory / name)) for name in self.files}

    def write(self, step: Step) -> None:
        """Leave a note beside the files, with the whole record, for `read`."""
        value = {"step": step.to_json(), "files": list(self.files), "reproducible": self.reproducible}
        (self.directory / NOTE).write_bytes(canonical.encode(value, NOTE))

    @classmethod
    def read(cls, directory: Path, node: StepNode) -> "StepFiles":
        """What was made once for a step like `node`, which may have had another name."""
        value = canonical.decode((directory / NOTE).read_bytes(), NOTE)
        step = {key: item for key, item in value["step"].items() if key not in ("name", "input")}
        named = (
            {"name": node.name}
            if node.asked.input is None
            else {"name": node.name, "input": node.asked.input}
        )
        return cls(Step.from_json({**step, **named}), directory, tuple(value["files"]), value["reproducible"])


def make(
    node: StepNode, start: Any, parent: StepFiles | None, directory: Path, name: str, feed: Feed | None
) -> StepFiles:
    """Run the pass of a step in `directory`, which exists and is empty.

    Raises InputError, naming the step, where its pass takes something else than what its input is, and what the pass
    raises.

    Args:
        start: the subject's own start, for a step without a parent.
        name: the file name of the graph; of external data and operator configs beside it, the beginning.
        feed: inputs that ORT format is compared on.
    """
    what = start if parent is None else parent.main
    if not _fits(node.kind.takes, what):
        given = "the source" if parent is None else f"the result of {node.asked.input}"
        raise InputError(
            f"step {node.name}: {node.kind.id} takes a {node.kind.takes}, and {given} is none",
            "a step names what it takes: input: STEP; without it that is the source",
        )
    with model_file.scratch_in(directory.parent):
        made = _MAKERS[node.kind.takes](node, what, directory / name, feed)
    return made


def _fits(takes: base.Takes, what: Any) -> bool:
    if takes == "module":
        return isinstance(what, TorchModel)
    if takes == "checkpoint":
        return isinstance(what, Path) and what.is_dir()
    return takes in ("graph", "file") and isinstance(what, Path) and what.is_file()


def _run(node: StepNode, work: Pass[Any, Any], subject: Any) -> tuple[Any, Step]:
    return base.run(node.name, work, subject, node.asked.input)


def _from_module(node: StepNode, module: Any, target: Path, feed: Feed | None) -> StepFiles:
    graph, step = _run(node, node.make(), module)
    return StepFiles(step, target.parent, model_file.save(graph, target))


def _from_graph(node: StepNode, path: Path, target: Path, feed: Feed | None) -> StepFiles:
    given = model_file.load(path)
    strip_notes.take_paths_out(given, path.parent)
    graph, step = _run(node, node.make(), given)
    return StepFiles(step, target.parent, model_file.save(graph, target))


def _from_file(node: StepNode, path: Path, target: Path, feed: Feed | None) -> StepFiles:
    """The pass writes beside its input, which is lent to it under another name, its external data under its own."""
    lent, given = [target.with_suffix(".onnx")], load_onnx(path)
    if strip_notes.take_paths_out(given, path.parent):
        lent[0].write_bytes(given.SerializeToString(deterministic=True))
    else:
        lend(path, lent[0])
    for name in external_files(given, path):
        lent.append(target.parent / name)
        lend(path.parent / name, lent[-1])
    files, step = _run(node, node.make(feed=feed), lent[0])
    for file in lent:
        file.unlink()
    return StepFiles(step, target.parent, (files.path.name, files.config.name), files.reproducible)


def _from_checkpoint(node: StepNode, checkpoint: Path, target: Path, feed: Feed | None) -> StepFiles:
    """The names of the files are the tool's own."""
    target.parent.rmdir()
    found, step = _run(node, node.make(), Decoder(checkpoint, target.parent))
    main = next(name for name in found.files if name.endswith(".onnx"))
    return StepFiles(step, target.parent, (main, *(name for name in found.files if name != main)))


_MAKERS: Mapping[base.Takes, Callable[[StepNode, Any, Path, Feed | None], StepFiles]] = {
    "module": _from_module,
    "graph": _from_graph,
    "file": _from_file,
    "checkpoint": _from_checkpoint,
}
