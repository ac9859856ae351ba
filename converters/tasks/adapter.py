"""Merge an adapter, as the library peft saves it, into the model that its `adapter_config.json` names."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime.sessions import silent_transformers
from onnxreg.converters.source.location import Location
from onnxreg.converters.source.source_files import read_object, weight_files
from onnxreg.schema.core.errors import InputError, NotFoundError, RemoteError, missing_extra, why

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FILES = (CONFIG, WEIGHTS)


def find_base(directory: Path, find: Callable[[str], Location]) -> Location | None:
    """Find the base model that an adapter's config names; return None if the directory has no adapter.

    `find` takes a directory or a hub id (`id@revision`). A relative path begins at the adapter, else at the working directory.
    Raises InputError if the model is absent, is an adapter too, or has weights in the directory of the adapter.
    """
    if not (directory / CONFIG).is_file():
        return None
    config = read_object(directory / CONFIG)
    if weight_files(directory):
        message = f"the checkpoint has weights of a model, and an adapter ({CONFIG}) of another"
        raise InputError(message, "keep the two in directories of their own, and name one")
    base, revision = str(config.get("base_model_name_or_path") or ""), config.get("revision")
    beside = directory / base
    try:
        if not base:
            raise NotFoundError("the adapter names no model")
        location = find(str(beside) if beside.is_dir() else f"{base}@{revision}" if revision else base)
    except (NotFoundError, RemoteError) as error:
        if isinstance(error, RemoteError) and "/" in base:  # a hub id, and the Hub did not answer
            raise
        named = Path(base).name[:80] or "a model that it does not name"
        reason = "" if "/" in base else f": {error.message}"  # of a name that may also be a hub id
        hint = f"name the directory of its model in {CONFIG}: base_model_name_or_path"
        raise InputError(f"an adapter of {named}, which is not here{reason}", hint) from error
    if (location.directory / CONFIG).is_file():
        message = f"the model of the adapter has an adapter too ({CONFIG})"
        raise InputError(message, "merge that one first, with peft, and save the whole model")
    return location


def merged(model: Any, directory: Path) -> Any:
    """Merge an adapter into its base model, a torch module, and return the merged module. The given module changes.

    Raises InputError unless the adapter's weights fit the model exactly; HostError if peft is not installed.
    """
    if find_spec("peft") is None:
        raise missing_extra("peft", "peft", "exporting an adapter")
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors.torch import load_file

    hint = f"give the model that it was trained on, in {CONFIG}: base_model_name_or_path"
    try:
        saved = load_file(directory / WEIGHTS)
        with silent_transformers(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            adapted = PeftModel.from_pretrained(model, str(directory))
            placed = get_peft_model_state_dict(adapted, save_embedding_layers=False)
            result = adapted.merge_and_unload(safe_merge=True)
    except Exception as error:
        first = str(error).replace(":\n\t", ": ", 1)  # torch names the tensor on the second line
        reason = why(first or error, 400).replace(str(directory), "the adapter")
        raise InputError(f"the adapter does not fit its model: {reason}", hint) from error
    if other := sorted(saved.keys() ^ placed.keys()):
        raise InputError(f"the adapter is of another model: {other[0][:200]} has no counterpart", hint)
    return result
