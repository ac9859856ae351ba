"""Adapters as the library peft saves them: merged into the model that `adapter_config.json` names."""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.source.source_files import read_json, weight_files
from onnxreg.schema.core.errors import InputError, NotFoundError, missing_extra, why

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
FILES = (CONFIG, WEIGHTS)
Found = TypeVar("Found")


def find_base(directory: Path, find: Callable[[str], Found]) -> Found | None:
    """Find the model of an adapter as its config names it, `id@revision` on the Hub; None for a directory without an adapter.

    A relative path begins at the adapter, or where the command runs. Raises InputError for a model that is absent, and for an
    adapter beside another model's weights.
    """
    config = read_json(directory / CONFIG) if (directory / CONFIG).is_file() else None
    if not isinstance(config, dict):
        return None
    if weight_files(directory):
        message = f"the checkpoint has weights of a model, and an adapter ({CONFIG}) of another"
        raise InputError(message, "keep the two in directories of their own, and name one")
    base, revision = str(config.get("base_model_name_or_path") or ""), config.get("revision")
    beside = directory / base
    try:
        if not base:
            raise NotFoundError("the adapter names no model")
        return find(str(beside) if base and beside.is_dir() else f"{base}@{revision}" if revision else base)
    except NotFoundError as error:
        named = Path(base).name[:80] or "a model that it does not name"
        hint = f"name the directory of its model in {CONFIG}: base_model_name_or_path"
        raise InputError(f"an adapter of {named}, which is not here", hint) from error


def merged(model: Any, directory: Path) -> Any:
    """Merge an adapter into its model (a torch module, which changes).

    Raises InputError if not every weight of the adapter has its place in the model, HostError without peft.
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
        reason = why(error, 300).replace(str(directory), "the adapter")
        raise InputError(f"the adapter does not fit its model: {reason}", hint) from error
    if other := sorted(saved.keys() ^ placed.keys()):
        raise InputError(f"the adapter is of another model: {other[0][:200]} has no counterpart", hint)
    return result
