"""Files of sentence-transformers beside a checkpoint, which say how a text becomes a vector.

`modules.json` lists the modules in order (a Transformer, a Pooling, maybe Normalize) with their folders,
`1_Pooling/config.json` is the pooling's own, `sentence_bert_config.json` the Transformer's, and
`config_sentence_transformers.json` has the texts that are put before others. A setting is done or refused, never dropped.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import msgspec

from onnxreg.converters.source.scrub import read_json
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import InputError

MODULES_FILE, POOLING_FILE = "modules.json", "1_Pooling/config.json"
TRANSFORMER_FILES = "sentence_*_config.json"
"""Pattern of the Transformer's settings; older versions named them after the model."""
SETTINGS_FILE = "config_sentence_transformers.json"
PATTERNS = (MODULES_FILE, TRANSFORMER_FILES, SETTINGS_FILE, "*_Pooling/config.json")
"""Patterns of the files to fetch from a hub, for pooling."""
MODULE_PATTERNS = (*PATTERNS, "[0-9]*_*/config.json", "[0-9]*_*/model.safetensors")
"""Patterns of all files that sentence-transformers reads beside the model itself."""
SUPPORTED = {"max_seq_length", "do_lower_case", "unpad_inputs"}
EXPECTED = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config.text": {"method": "forward", "method_output_name": "last_hidden_state"},
    "include_prompt": True,
}
"""Values that a setting may have, by its name; absent ones are these."""
# fmt: off
NEUTRAL = {
    "attn_implementation", "cache_dir", "device_map", "dtype", "low_cpu_mem_usage", "torch_dtype", "use_fast",
    "trust_remote_code", "revision", "token", "local_files_only", "add_pooling_layer", "use_safetensors",
}
# fmt: on
"""Arguments of transformers that change no vector."""
SIZES = {"word_embedding_dimension", "embedding_dimension"}
WITHOUT_WEIGHTS = {"Transformer", "Pooling", "Normalize", "Dropout"}
OTHER_POOLING = (
    "to pool in another way, say how in a recipe: task: pooling, options: {mode: mean, normalize: false}"
)

Mode = Literal["mean", "cls", "max", "last"]
_SPELLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}
_KEY = "pooling_mode"


class _Module(msgspec.Struct):
    type: str
    path: str


@dataclass(frozen=True)
class SentenceConfig:
    """`mode` is None if the checkpoint does not configure pooling; `max_length` is in tokens.

    `prompts` are texts to put before others, by name; `default_prompt` names the one that is always put there.
    """

    mode: Mode | None = None
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None

    @property
    def prompt(self) -> str:
        """The text before every text."""
        return self.prompts[self.default_prompt] if self.default_prompt else ""


def present(directory: Path) -> list[str]:
    """List the files of sentence-transformers about pooling that a checkpoint has, sorted.

    Raises InputError for a `modules.json` that cannot be read.
    """
    pooling_file = _pooling_file(_modules(directory))
    return _existing(directory, [MODULES_FILE, SETTINGS_FILE, pooling_file, *_transformer_files(directory)])


def module_files(directory: Path) -> list[str]:
    """List all that sentence-transformers reads beside the model, sorted; empty if the model is not at the root.

    Raises InputError for a `modules.json` that cannot be read, and for a module without its weights: those in a pickle
    are not published.
    """
    modules = _modules(directory) or []
    if "" not in (path for _, path in modules):
        return []
    names = [MODULES_FILE, SETTINGS_FILE, *_transformer_files(directory)]
    for kind, path in modules:
        if path and kind not in WITHOUT_WEIGHTS and not (directory / path / "model.safetensors").is_file():
            raise InputError(
                f"the module {path} ({kind}) has no model.safetensors",
                "save the model again with sentence-transformers of today: weights in a pickle are not published",
            )
        names += [f"{path}/{name}" for name in ("config.json", "model.safetensors") if path]
    return _existing(directory, names)


def read(directory: Path) -> SentenceConfig:
    """Read the configuration of a checkpoint; empty if it has none.

    Raises InputError for an unsupported module, pooling or setting, and for malformed files.
    """
    modules = _modules(directory)
    kinds = [kind for kind, _ in modules or () if kind != "Dropout"]
    if modules is not None and kinds not in (
        ["Transformer", "Pooling"],
        ["Transformer", "Pooling", "Normalize"],
    ):
        raise InputError(
            f"{MODULES_FILE} runs a text through {', '.join(kinds)[:200]}; the task does Transformer, Pooling, Normalize"
        )
    pooling_file, files = _pooling_file(modules), _transformer_files(directory)
    pooling, settings = _object(directory / pooling_file), _object(directory / SETTINGS_FILE)
    transformer = _object(directory / files[0]) if files else {}
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise InputError(f"prompts in {SETTINGS_FILE} of the checkpoint are not texts by name")
    if default is not None and default not in prompts:
        raise InputError(f"default_prompt_name in {SETTINGS_FILE} is {default!r}, which is not in prompts")
    _check(transformer, TRANSFORMER_FILES, SUPPORTED)
    _check(settings, SETTINGS_FILE, settings.keys() - {"truncate_dim"})
    modes = {key for key in pooling if key.startswith(_KEY)}
    without_prompts = set() if any(prompts.values()) else {"include_prompt"}
    _check(pooling, pooling_file, {*modes, *without_prompts, *SIZES})
    length = transformer.get("max_seq_length")
    return SentenceConfig(
        _mode(pooling),
        "Normalize" in kinds,
        length if isinstance(length, int) and length > 0 else None,
        transformer.get("do_lower_case") is True,
        prompts,
        default,
    )


def _check(settings: Mapping[str, Any], file: str, supported: set[str]) -> None:
    """Raise InputError, naming the file, for a setting that shapes a vector and is not done."""
    for name, value in settings.items():
        children = value if isinstance(value, dict) else {"": value}
        for key, child in children.items():
            dotted = f"{name}.{key}" if key else name
            is_neutral = name.endswith(("_args", "_kwargs")) and key in NEUTRAL
            is_other_input = name == "modality_config" and key != "text"
            is_off = child in (None, {}, []) or (child is False and dotted not in EXPECTED)
            if not (
                name in supported or is_neutral or is_other_input or is_off or child == EXPECTED.get(dotted)
            ):
                raise InputError(
                    f"{dotted} in {file} is {json.dumps(child)[:100]}, which the task does not do",
                    OTHER_POOLING,
                )


def _existing(directory: Path, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if (directory / name).is_file())


def _transformer_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob(TRANSFORMER_FILES))


def _modules(directory: Path) -> list[tuple[str, str]] | None:
    """Read kind and directory of each module, in order; None without a list."""
    path = directory / MODULES_FILE
    if not path.is_file():
        return None
    modules = []
    for entry in convert(read_json(path), list[_Module], f"{MODULES_FILE} of the checkpoint"):
        if PurePosixPath(entry.path).is_absolute() or ".." in PurePosixPath(entry.path).parts:
            raise InputError(
                f"{MODULES_FILE} of the checkpoint names a place outside it: {entry.path[:80]!r}"
            )
        modules.append((entry.type.rpartition(".")[2], entry.path))
    return modules


def _pooling_file(modules: list[tuple[str, str]] | None) -> str:
    paths = (f"{path}/config.json" for kind, path in modules or () if kind == "Pooling")
    return next(paths, POOLING_FILE)


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise InputError(f"{path.parent.name}/{path.name} of the checkpoint is not a JSON object")
    return value


def _mode(config: dict[str, Any]) -> Mode | None:
    """The mode of a configuration: `pooling_mode_cls_token: true`, or in newer ones `pooling_mode: cls`."""
    modes: list[str] = []
    for key, value in config.items():
        if key == _KEY:
            modes += map(str, value if isinstance(value, list) else [value])
        elif key.startswith(f"{_KEY}_") and value is True:
            modes.append(key.removeprefix(f"{_KEY}_"))
    names = list(dict.fromkeys(_SPELLINGS.get(mode, mode) for mode in modes))
    if len(names) > 1:
        raise InputError(f"the checkpoint pools in several ways at once: {', '.join(names)[:200]}")
    mode = next((mode for mode in get_args(Mode) if names == [mode]), None)
    if names and mode is None:
        raise InputError(
            f"the checkpoint pools by {names[0][:80]!r}", f"the task does {', '.join(get_args(Mode))}"
        )
    return mode
