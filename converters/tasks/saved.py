"""Objects in memory as the checkpoint that they would be."""

import shutil
from pathlib import Path
from typing import Any

from onnxreg.converters.tasks import sentence_files
from onnxreg.converters.tasks.silence import silent_transformers
from onnxreg.schema.errors import InputError


def save_objects(model: Any, tokenizer: Any, directory: Path) -> Path:
    """Save a model and a tokenizer of transformers into a new directory, and return it. Neither is changed.

    What sentence-transformers says of pooling comes from the directory that the model was loaded from, if it says so.

    Raises InputError for objects that are none of transformers, or that cannot be saved.
    """
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    if not isinstance(model, PreTrainedModel) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        found = f"{type(model).__name__} and {type(tokenizer).__name__}"
        raise InputError(f"not a model and a tokenizer of transformers: {found}")
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
    _copy_pooling(Path(model.name_or_path), directory)
    return directory


def _copy_pooling(origin: Path, directory: Path) -> None:
    for name in sentence_files.present(origin):
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(origin / name, directory / name)
