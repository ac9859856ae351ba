"""Save objects in memory as a checkpoint."""

import shutil
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.source.source_files import hub_id, locate
from onnxreg.converters.tasks.checkpoints import sentence_files
from onnxreg.schema.core.errors import InputError


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
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(origin / name, directory / name)
