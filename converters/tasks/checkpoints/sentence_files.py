"""Files of sentence-transformers beside a checkpoint, which say how a text becomes a vector.

`modules.json` lists the modules in order (a Transformer, a Pooling, maybe Normalize) with their folders,
`1_Pooling/config.json` is the pooling's own, `sentence_bert_config.json` the Transformer's, and
`config_sentence_transformers.json` has the texts that are put before others. A setting is done or refused, never dropped.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.source.source_files import CONFIG, TOKENIZER
from onnxreg.schema.core.errors import InputError

MODULES_FILE, POOLING_FILE = "modules.json", "1_Pooling/config.json"
TRANSFORMER_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
"""Names of the Transformer's settings; older versions named them after the model."""
SETTINGS_FILE = "config_sentence_transformers.json"
OLD_LAYOUT = tuple(f"0_*/{name}" for name in (CONFIG, *TOKENIZER, "model.safetensors", "pytorch_model.bin"))
PATTERNS = (MODULES_FILE, "*sentence_*_config.json", SETTINGS_FILE, "*_Pooling/config.json", *OLD_LAYOUT)
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
NEUTRAL = {
    *(
        "attn_implementation",
        "cache_dir",
        "device_map",
        "dtype",
        "low_cpu_mem_usage",
        "torch_dtype",
        "use_fast",
    ),
    *("trust_remote_code", "revision", "token", "local_files_only", "add_pooling_layer", "use_safetensors"),
}
"""Arguments of transformers that change no vector."""
WITHOUT_WEIGHTS = {"Transformer", "Pooling", "Normalize", "Dropout"}
OTHER_POOLING = (
    "to pool in another way, say how in a recipe: task: pooling, options: {mode: mean, normalize: false}"
)

Mode = Literal["mean", "cls", "max", "last"]
_SPELLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}
_KEY = "pooling_mode"


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


def transformer_folder(directory: Path) -> str:
    """Return the folder of the model in a directory, "" for the directory itself.

    Older versions of sentence-transformers wrote it to `0_Transformer`. Raises InputError for a `modules.json` that
    cannot be read.
    """
    for kind, path in _modules(directory) or ():
        if kind == "Transformer" and path and (directory / path / CONFIG).is_file():
            return path
    return ""


def present(directory: Path) -> list[str]:
    """List the files of sentence-transformers that a checkpoint has, sorted.

    Raises InputError for a `modules.json` that cannot be read.
    """
    modules = _modules(directory)
    names = (MODULES_FILE, SETTINGS_FILE, _pooling_file(modules), *_transformer_files(directory))
    return sorted(name for name in names if (directory / name).is_file())


def module_files(directory: Path) -> list[str]:
    """List all that sentence-transformers reads beside the model, sorted; empty if the model is not at the root.

    Raises InputError for a `modules.json` that cannot be read, and for a module without its weights: those in a pickle
    are not published.
    """
    modules = _modules(directory) or []
    paths = [path for _, path in modules]
    if "" not in paths:
        return []
    for kind, path in modules:
        if path and kind not in WITHOUT_WEIGHTS and not (directory / path / "model.safetensors").is_file():
            raise InputError(
                f"the module {path} ({kind}) has no model.safetensors",
                "save the model again with sentence-transformers of today: weights in a pickle are not published",
            )
    own = (f"{path}/{name}" for path in paths if path for name in ("config.json", "model.safetensors"))
    names = (MODULES_FILE, *TRANSFORMER_FILES, SETTINGS_FILE, *own)
    return sorted(name for name in names if (directory / name).is_file())


def read(directory: Path) -> SentenceConfig:
    """Read the configuration of a checkpoint; empty if it has none.

    Raises InputError for an unsupported module, pooling or setting, and for malformed files.
    """
    modules = _modules(directory)
    if modules is None:
        _refuse_inner(directory)
    kinds = [kind for kind, _ in modules or () if kind != "Dropout"]
    if modules is not None and kinds[2:] not in ([], ["Normalize"]):
        raise InputError(
            f"{MODULES_FILE} runs a text through {', '.join(kinds)[:200]}; the task does Transformer, Pooling, Normalize"
        )
    if modules is not None and kinds[:2] != ["Transformer", "Pooling"]:
        raise InputError(
            f"{MODULES_FILE} does not begin with a Transformer and a Pooling: {', '.join(kinds)[:200]}"
        )
    pooling_file = _pooling_file(modules)
    pooling, settings = _object(directory / pooling_file), _object(directory / SETTINGS_FILE)
    file = next((name for name in _transformer_files(directory) if (directory / name).is_file()), "")
    transformer = _object(directory / file) if file else {}
    prompts, default = _prompts(settings)
    _check(transformer, file, SUPPORTED)
    _check(settings, SETTINGS_FILE, settings.keys() - {"truncate_dim"})
    modes = {key for key in pooling if key.startswith(_KEY)}
    without_prompts = set() if any(prompts.values()) else {"include_prompt"}
    _check(
        pooling, pooling_file, {*modes, *without_prompts, "word_embedding_dimension", "embedding_dimension"}
    )
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
    for key, value in _settings(settings):
        name = key.partition(".")[0]
        is_neutral = name.endswith(("_args", "_kwargs")) and key.rpartition(".")[2] in NEUTRAL
        is_other_input = name == "modality_config" and key != "modality_config.text"
        is_off = value in (None, {}, []) or (value is False and key not in EXPECTED)
        if name in supported or is_neutral or is_other_input or is_off or value == EXPECTED.get(key):
            continue
        raise InputError(
            f"{key} in {file} is {json.dumps(value)[:100]}, which the task does not do", OTHER_POOLING
        )


def _settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the dotted names and values of settings, those of one level below for objects."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", child) for name, child in value.items())
        else:
            yield key, value


def _prompts(settings: Mapping[str, Any]) -> tuple[dict[str, str], str | None]:
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise InputError(f"prompts in {SETTINGS_FILE} of the checkpoint are not texts by name")
    if default is not None and default not in prompts:
        raise InputError(f"default_prompt_name in {SETTINGS_FILE} is {default!r}, which is not in prompts")
    return prompts, default


def _refuse_inner(directory: Path) -> None:
    """Raise InputError for a folder that a `modules.json` above it names: its pooling is there too."""
    folder = directory.resolve()
    if (folder.parent / MODULES_FILE).is_file() and any(
        path == folder.name for _, path in _modules(folder.parent) or ()
    ):
        raise InputError(
            f"{folder.name} is one module of a model of sentence-transformers, and its pooling is beside it",
            f"export the directory above, which has the {MODULES_FILE}; or {OTHER_POOLING}",
        )


def _transformer_files(directory: Path) -> list[str]:
    """List where the Transformer's settings may be, the first choice first."""
    folder = transformer_folder(directory)
    return [f"{folder}/{name}" if folder else name for name in TRANSFORMER_FILES]


def _modules(directory: Path) -> list[tuple[str, str]] | None:
    """Read kind and directory of each module, in order; None without a list."""
    path = directory / MODULES_FILE
    if not path.is_file():
        return None
    value = read_json(path)
    if not isinstance(value, list):
        raise InputError(f"{MODULES_FILE} of the checkpoint is not a list")
    return [_module(entry) for entry in value]


def _module(entry: Any) -> tuple[str, str]:
    kind, path = (entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path"))
    if not isinstance(kind, str) or not isinstance(path, str):
        raise InputError(f"a module in {MODULES_FILE} of the checkpoint has no type and path")
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise InputError(f"{MODULES_FILE} of the checkpoint names a place outside it: {path[:80]!r}")
    return kind.rpartition(".")[2], path


def _pooling_file(modules: list[tuple[str, str]] | None) -> str:
    paths = (f"{path}/config.json" for kind, path in modules or () if kind == "Pooling")
    return next(paths, POOLING_FILE)


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise InputError(f"{path.parent.name}/{path.name} of the checkpoint is not a JSON object")
    return value


def _mode(config: dict[str, Any]) -> Mode | None:
    modes = list(dict.fromkeys(_configured_modes(config)))
    if not modes:
        return None
    if len(modes) > 1:
        raise InputError(f"the checkpoint pools in several ways at once: {', '.join(modes)[:200]}")
    mode = _SPELLINGS.get(modes[0], modes[0])
    for name in get_args(Mode):
        if mode == name:
            return name  # type: ignore[no-any-return]
    raise InputError(
        f"the checkpoint pools by {modes[0][:80]!r}", f"the task does {', '.join(get_args(Mode))}"
    )


def _configured_modes(config: dict[str, Any]) -> Iterator[str]:
    """Yield the modes of a configuration: `pooling_mode_cls_token: true`, or in newer ones `pooling_mode:
    cls`.
    """
    for key, value in config.items():
        if key == _KEY:
            yield from map(str, value if isinstance(value, list) else [value])
        elif key.startswith(f"{_KEY}_") and value is True:
            yield key.removeprefix(f"{_KEY}_")
