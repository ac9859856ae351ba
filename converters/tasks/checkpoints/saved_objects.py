"""Objects in memory as the checkpoint that they would be."""

import shutil
from pathlib import Path
from typing import Any

from onnxreg.converters.source.source_files import hub_id, locate
from onnxreg.converters.tasks.checkpoints import sentence_files
from onnxreg.converters.tasks.checkpoints.silence import silent_transformers
from onnxreg.schema.core.errors import InputError


def save_objects(model: Any, tokenizer: Any, directory: Path, sentences: bool = False) -> Path:
    """Save a model and a tokenizer of transformers into a new directory, and return it. Neither is changed.

    Args:
        sentences: whether what sentence-transformers says of it is needed: it comes from the directory or hub id that the
            model was loaded from; one that was built in memory has none.

    Raises InputError for objects that are none of transformers, or that cannot be saved; NotFoundError or RemoteError
    where what says how to pool cannot be had.
    """
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    if not isinstance(model, PreTrainedModel) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        found = f"{type(model).__name__} and {type(tokenizer).__name__}"
        raise InputError(f"not a model and a tokenizer of transformers: {found}")
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
    """The directory that a model was loaded from, of a hub id the snapshot of its commit; None for one built in memory."""
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
