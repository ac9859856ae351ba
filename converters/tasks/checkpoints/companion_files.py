"""The JSON and tokenizer files that travel beside the graphs, with nothing of the machine in them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.source.scrub import scrub, scrub_file
from onnxreg.converters.tasks.checkpoints.checkpoint import LoadedCheckpoint
from onnxreg.converters.tasks.checkpoints.sentence_files import module_files
from onnxreg.schema.core.errors import ConversionError

_LOCAL_KEYS = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_internal",
        "_commit_hash",
        "attn_implementation",
        "backend",
        "cache_dir",
        "is_local",
        "local_files_only",
        "special_tokens_map_file",
        "tokenizer_file",
        "vocab_file",
    }
)
"""Keys that depend on the loading machine, not on the checkpoint."""

PLAIN_CLASS = "PreTrainedTokenizerFast"
"""The class that takes a tokenizer.json as it is, by the name that transformers 4 and 5 load."""


def write_config(
    path: Path,
    checkpoint: LoadedCheckpoint,
    name: str,
    max_length: int,
    extra: Mapping[str, Any],
) -> list[str]:
    """Write `config.json`; return the dotted paths of values that named a local path and were replaced.

    Args:
        name: the published name, which becomes `_name_or_path`.
        max_length: in tokens, written as `max_sequence_length`.
        extra: further keys.
    """
    config, labels = checkpoint.config, checkpoint.labels
    value = {
        **json.loads(config.to_json_string(use_diff=False)),
        "_name_or_path": name,
        "max_sequence_length": max_length,
        **extra,
    }
    label_maps = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    config_value = _without_local_keys(value, label_maps.keys())
    cleaned, replaced = scrub(config_value, name, checkpoint.directory)
    _write(path, {**cleaned, **(label_maps if labels else {})})
    return replaced


def write_labels(path: Path, labels: tuple[str, ...]) -> None:
    """Write `id2label.json`: the label of each logit by its decimal index, in order."""
    text = json.dumps({str(index): label for index, label in enumerate(labels)}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def write_tokenizer(
    directory: Path, checkpoint: LoadedCheckpoint, name: str, inputs: Sequence[str]
) -> list[str]:
    """Save the tokenizer, which has no padding and truncation of its own; return its file names, sorted.

    Args:
        inputs: the inputs of the graph, which the tokenizer makes.
    """
    saved = {Path(path).name for path in checkpoint.tokenizer.save_pretrained(directory)}
    names = sorted(file for file in saved if (directory / file).is_file())
    if "tokenizer.json" not in names:
        raise ConversionError("transformers did not write a tokenizer.json for this tokenizer")
    config = directory / "tokenizer_config.json"
    if config.is_file():
        value = json.loads(config.read_bytes())
        tokens = {key: value[key] for key in ("added_tokens_decoder",) if key in value}
        cleaned, _ = scrub(_without_local_keys(value, tokens.keys()), name, checkpoint.directory)
        if cleaned.get("tokenizer_class") == "TokenizersBackend":
            cleaned["tokenizer_class"] = PLAIN_CLASS
        _write(config, {**cleaned, **tokens, "model_input_names": list(inputs)})
    template = directory / "chat_template.jinja"
    if template.is_file() and (scrubbed := scrub_file(template, name, directories=(checkpoint.directory,))):
        template.write_bytes(scrubbed[0])
    return names


def write_sentence_files(directory: Path, checkpoint: LoadedCheckpoint, name: str) -> list[str]:
    """Copy what sentence-transformers reads beside a model; return the paths, sorted."""
    paths = module_files(checkpoint.directory)
    for path in paths:
        source, target = checkpoint.directory / path, directory / path
        target.parent.mkdir(exist_ok=True)
        scrubbed = scrub_file(source, name, directories=(checkpoint.directory,))
        target.write_bytes(scrubbed[0] if scrubbed else source.read_bytes())
    return paths


def _without_local_keys(value: Any, drop: Any) -> Any:
    """Return a JSON value without `_LOCAL_KEYS` at any depth and without the top-level keys in `drop`."""
    if isinstance(value, dict):
        entries = {key: child for key, child in value.items() if key not in _LOCAL_KEYS and key not in drop}
        return {key: _without_local_keys(child, ()) for key, child in entries.items()}
    if isinstance(value, list):
        return [_without_local_keys(child, ()) for child in value]
    return value


def _write(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
