"""The JSON and tokenizer files that travel beside the graphs, with nothing of the machine in them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.source.scrub import copy_scrubbed, scrub
from onnxreg.converters.source.source_files import CONFIG
from onnxreg.converters.tasks.checkpoints.checkpoint import LoadedCheckpoint
from onnxreg.converters.tasks.checkpoints.sentence_files import module_files
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.draft import DraftFile

LABELS = "id2label.json"
PLAIN_CLASS = "PreTrainedTokenizerFast"
"""The class that takes a tokenizer.json as it is, by the name that transformers 4 and 5 load."""
# fmt: off
_LOCAL_KEYS = {
    "_attn_implementation", "_attn_implementation_internal", "_commit_hash", "attn_implementation", "backend", "cache_dir",
    "is_local", "local_files_only", "special_tokens_map_file", "tokenizer_file", "vocab_file",
}
# fmt: on
"""Keys that depend on the loading machine, not on the checkpoint."""


def write_config(
    path: Path, checkpoint: LoadedCheckpoint, name: str, max_length: int, extra: Mapping[str, Any]
) -> list[str]:
    """Write `config.json`; return the dotted paths of values that named a local path and were replaced.

    Args:
        name: the published name, which becomes `_name_or_path`.
        max_length: in tokens, written as `max_sequence_length`.
        extra: further keys.
    """
    labels = checkpoint.labels
    value = {
        **json.loads(checkpoint.config.to_json_string(use_diff=False)),
        "_name_or_path": name,
        "max_sequence_length": max_length,
        **extra,
    }
    label_maps = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    plain = {key: child for key, child in value.items() if key not in label_maps}
    cleaned, replaced = scrub(_without_local_keys(plain), name, checkpoint.directory)
    _write(path, {**cleaned, **(label_maps if labels else {})})
    return replaced


def write_companions(
    directory: Path,
    checkpoint: LoadedCheckpoint,
    name: str,
    length: int,
    inputs: Sequence[str],
    settings: Mapping[str, Any],
    modules: bool,
) -> tuple[list[DraftFile], list[str]]:
    """Write config, labels and tokenizer, which has no padding and truncation of its own; return the files, and the scrubbed fields.

    Args:
        inputs: the inputs of the graph, which the tokenizer makes.
        settings: further keys of `config.json`.
        modules: True to copy what sentence-transformers reads beside a model.
    """
    scrubbed = write_config(directory / CONFIG, checkpoint, name, length, settings)
    files = [DraftFile("config", CONFIG)]
    if checkpoint.labels:
        by_number = {str(index): label for index, label in enumerate(checkpoint.labels)}
        text = json.dumps(by_number, indent=2, ensure_ascii=False)
        (directory / LABELS).write_text(text + "\n", encoding="utf-8")
        files.append(DraftFile("labels", LABELS))
    if checkpoint.tokenizer is not None:
        files += [
            DraftFile("tokenizer", path) for path in _write_tokenizer(directory, checkpoint, name, inputs)
        ]
    for path in module_files(checkpoint.directory) if modules else ():
        copy_scrubbed(checkpoint.directory / path, directory / path, name, checkpoint.directory)
        files.append(DraftFile("other", path))
    return files, [f"{CONFIG}:{key}" for key in scrubbed]


def _write_tokenizer(
    directory: Path, checkpoint: LoadedCheckpoint, name: str, inputs: Sequence[str]
) -> list[str]:
    paths = {Path(path).name for path in checkpoint.tokenizer.save_pretrained(directory)}
    names = sorted(file for file in paths if (directory / file).is_file())
    if "tokenizer.json" not in names:
        raise ConversionError("transformers did not write a tokenizer.json for this tokenizer")
    config = directory / "tokenizer_config.json"
    if config.is_file():
        value = json.loads(config.read_bytes())
        tokens = {key: value.pop(key) for key in ("added_tokens_decoder",) if key in value}
        cleaned, _ = scrub(_without_local_keys(value), name, checkpoint.directory)
        if cleaned.get("tokenizer_class") == "TokenizersBackend":
            cleaned["tokenizer_class"] = PLAIN_CLASS
        _write(config, {**cleaned, **tokens, "model_input_names": list(inputs)})
    template = directory / "chat_template.jinja"
    if template.is_file():
        copy_scrubbed(template, template, name, checkpoint.directory)
    return names


def _without_local_keys(value: Any) -> Any:
    """Return a JSON value without `_LOCAL_KEYS` at any depth."""
    if isinstance(value, dict):
        return {key: _without_local_keys(child) for key, child in value.items() if key not in _LOCAL_KEYS}
    return [_without_local_keys(child) for child in value] if isinstance(value, list) else value


def _write(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
