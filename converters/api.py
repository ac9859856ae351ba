"""`export`: a checkpoint to ONNX in one call, with no registry."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.profiles.task_profiles import PATH, task_recipe
from onnxreg.converters.source.location import check_inside, hub_id, locate
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.checkpoints import sentence_files
from onnxreg.converters.tasks.text import Pooling
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

NAME = "model"


def export(
    model: Any,
    task: str = "default",
    output: str | os.PathLike[str] | None = None,
    quantize: bool = False,
    opset: int = 14,
    int8_embeddings: bool = False,
) -> bytes | Path:
    """Export a checkpoint to ONNX; nothing is returned if a graph is not the checkpoint's model.

    Args:
        model: a checkpoint directory, a hub id with an optional `@revision`, or `(model, tokenizer)`, two objects
            of transformers. Their mode, device and dtype do not change; the graph has the weights in float32.
        task: `default`, `pooling`, `question-answering`, ...: see `docs/tasks.md`.
        output: a file to write, or a directory (one that exists, or a text that ends in a slash), which gets
            `model.onnx` with config, labels and tokenizer beside it. An export that is killed leaves its scratch
            there, in `.onnxreg-...`.
        quantize: make an INT8 graph too, beside the other: `model.onnx` and `model_int8.onnx`.
        opset: of the default domain.
        int8_embeddings: with `quantize`, quantize the embedding tables too.

    Returns the last graph, which is the INT8 one if there is one: its path, or without `output` its bytes.

    Raises InputError for a checkpoint, task or opset that cannot be used, NotFoundError or RemoteError if the
    checkpoint cannot be loaded, ConversionError if a graph does not load or differs, HostError for a missing
    extra.
    """
    require("torch", "transformers", "onnx", "onnxruntime")
    if not isinstance(task, str):
        raise InputError(
            f"a task is a name, not {task!r}", "such as pooling; `default` is feature-extraction"
        )
    if type(opset) is not int:
        raise InputError(f"an opset is a whole number, not {opset!r}", "such as 14")
    target = None if output is None or output == "" else Path(output)
    folder = target is not None and (target.is_dir() or str(output).endswith(("/", os.sep)))
    path = PATH if target is None or folder else target.name
    if not path.endswith(".onnx"):
        raise InputError(
            f"the output {target} does not end in .onnx", f"write {target}.onnx, or a directory: {target}/"
        )
    recipe = task_recipe(task, quantize, opset, path=path, int8_embeddings=int8_embeddings)
    with tempfile.TemporaryDirectory(prefix=".onnxreg-", dir=_nearest_directory(target)) as scratch:
        source = _source(model, task, Path(scratch, "checkpoint"))
        draft = execute(plan_export(recipe, source, NAME), Path(scratch, "workspace"))
        last = draft.artifacts[-1]
        if target is None:
            return _bytes(draft, last)
        directory = target if folder else target.parent
        _put(draft, [*_graphs(draft), *_companions(draft, folder)], directory)
    return directory / last.path


def _source(model: Any, task: str, directory: Path) -> str:
    """Name the source of an export; two objects are saved into `directory`."""
    sentences = issubclass(task_catalog.find(task), Pooling)
    if isinstance(model, tuple | list):
        if len(model) != 2:
            raise InputError(
                f"a model comes with its tokenizer: (model, tokenizer), not {len(model)} objects"
            )
        return str(save_objects(model[0], model[1], directory, sentences))
    return str(model)


def _nearest_directory(target: Path | None) -> Path | None:
    """The nearest existing directory, from which files can be renamed to their place."""
    if target is None:
        return None
    path = target.absolute()
    return next(directory for directory in (path, *path.parents) if directory.is_dir())


def _graphs(draft: Draft) -> Iterator[str]:
    for artifact in draft.artifacts:
        yield from _files(artifact)


def _files(artifact: DraftArtifact) -> list[str]:
    """A graph with its external data."""
    return [artifact.path, *(file.path for file in artifact.sidecars if file.role == "external-data")]


def _companions(draft: Draft, enabled: bool) -> list[str]:
    return [file.path for file in draft.companions] if enabled else []


def _bytes(draft: Draft, artifact: DraftArtifact) -> bytes:
    if len(_files(artifact)) > 1:
        raise InputError("a graph of more than 2 GB cannot be returned as bytes", "name an output")
    return (draft.root / artifact.path).read_bytes()


def _put(draft: Draft, paths: list[str], directory: Path) -> None:
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (draft.root / path).replace(directory / path)


def save_objects(model: Any, tokenizer: Any, directory: Path, sentences: bool = False) -> Path:
    """Save a model and a tokenizer of transformers into a new directory, and return it. Neither is changed.

    Args:
        sentences: True to copy the files of sentence-transformers from the directory or hub id that the model
            was loaded from; a model built in memory has none.

    Raises InputError for objects of another library, or that cannot be saved; NotFoundError or RemoteError if
    the pooling configuration cannot be read.
    """
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    if not isinstance(model, PreTrainedModel) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        types = f"{type(model).__name__} and {type(tokenizer).__name__}"
        raise InputError(f"not a model and a tokenizer of transformers: {types}")
    origin = _origin(model) if sentences else None
    config = dict(vars(model.config))
    try:
        with silent_transformers():
            model.save_pretrained(directory)
            tokenizer.save_pretrained(directory)
    except Exception as error:
        raise InputError(f"the model or its tokenizer cannot be saved: {error}") from error
    finally:
        vars(model.config).clear()
        vars(model.config).update(config)
    if origin is not None:
        _copy_pooling(origin, directory)
    return directory


def _origin(model: Any) -> Path | None:
    """Find the directory that a model was loaded from, or the snapshot of its commit; None for one built in
    memory.
    """
    name = model.name_or_path
    if not name:
        return None
    commit = getattr(model.config, "_commit_hash", None)
    pinned = f"{name}@{commit}" if commit is not None and hub_id(name) is not None else name
    return locate(pinned, more=sentence_files.PATTERNS).directory


def _copy_pooling(origin: Path, directory: Path) -> None:
    for name in sentence_files.present(origin):
        check_inside(origin, origin / name)
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(origin / name, directory / name)
