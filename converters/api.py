"""`export`: a checkpoint to ONNX in one call, with no registry."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.profiles.task_profiles import PATH, task_recipe
from onnxreg.converters.request import run
from onnxreg.converters.source.location import check_inside, hub_id, locate
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks import sentence_files, task_catalog
from onnxreg.converters.tasks.text import Pooling
from onnxreg.schema.core.errors import InputError


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
    if not isinstance(task, str) or type(opset) is not int:
        raise InputError(f"a task is a name and an opset a whole number, not {task!r} and {opset!r}")
    target = None if output is None or output == "" else Path(output)
    is_folder = target is not None and (target.is_dir() or str(output).endswith(("/", os.sep)))
    path = PATH if target is None or is_folder else target.name
    if not path.endswith(".onnx"):
        raise InputError(
            f"the output {target} does not end in .onnx", f"write {target}.onnx, or a directory: {target}/"
        )
    recipe = task_recipe(task, quantize, opset, path=path, int8_embeddings=int8_embeddings)
    above = [] if target is None else [target.absolute(), *target.absolute().parents]
    nearest = next((folder for folder in above if folder.is_dir()), None)  # files are renamed from there
    with tempfile.TemporaryDirectory(prefix=".onnxreg-", dir=nearest) as scratch:
        source = str(model)
        if isinstance(model, tuple | list):
            source = str(_save_objects(model, task, Path(scratch, "checkpoint")))
        draft, _ = run(plan_export(recipe, source, "model"), Path(scratch, "workspace"))
        graphs = {
            item.path: [file.path for file in item.sidecars if file.role == "external-data"]
            for item in draft.artifacts
        }
        last = draft.artifacts[-1].path
        if target is None:
            if graphs[last]:
                raise InputError("a graph of more than 2 GB cannot be returned as bytes", "name an output")
            return (draft.root / last).read_bytes()
        directory = target if is_folder else target.parent
        companions = [file.path for file in draft.companions] if is_folder else []
        for name in (*graphs, *(file for files in graphs.values() for file in files), *companions):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (draft.root / name).replace(directory / name)
    return directory / last


def _save_objects(objects: Any, task: str, directory: Path) -> Path:
    """Save `(model, tokenizer)` of transformers into a new directory, and return it. Neither is changed.

    For pooling, the files that say how are those of the directory or hub id that the model was loaded from; a model
    that was built in memory has none.

    Raises InputError for objects of another library, or that cannot be saved; NotFoundError or RemoteError if the
    files cannot be read.
    """
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    if len(objects) != 2 or not (
        isinstance(objects[0], PreTrainedModel) and isinstance(objects[1], PreTrainedTokenizerBase)
    ):
        types = ", ".join(type(item).__name__ for item in objects) or "nothing"
        raise InputError(f"not a model and a tokenizer of transformers: {types}")
    model, tokenizer = objects
    name, commit, origin = model.name_or_path, getattr(model.config, "_commit_hash", None), None
    if name and issubclass(task_catalog.find(task), Pooling):
        pinned = f"{name}@{commit}" if commit is not None and hub_id(name) is not None else name
        origin = locate(pinned, more=sentence_files.PATTERNS).directory
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
        for path in sentence_files.present(origin):
            check_inside(origin, origin / path)
            (directory / path).parent.mkdir(exist_ok=True)
            shutil.copyfile(origin / path, directory / path)
    return directory
