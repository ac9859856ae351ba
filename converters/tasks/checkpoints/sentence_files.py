"""Files of sentence-transformers beside a checkpoint, which configure the pooling of token vectors.

`modules.json` lists the modules in order (a Transformer, a Pooling, maybe Normalize), `1_Pooling/config.json`
is the pooling's own, and `sentence_bert_config.json` states how many tokens the checkpoint was trained for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from onnxreg.converters.source.scrub import read_json
from onnxreg.schema.core.errors import InputError

MODULES_FILE, POOLING_FILE, LENGTH_FILE = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
PATTERNS = (MODULES_FILE, LENGTH_FILE, "*_Pooling/config.json")
"""Patterns of the files to fetch from a hub, for pooling."""
SETTINGS_FILE = "config_sentence_transformers.json"
MODULE_PATTERNS = (*PATTERNS, SETTINGS_FILE, "[0-9]*_*/config.json", "[0-9]*_*/model.safetensors")
"""Patterns of all files that sentence-transformers reads beside the model itself."""

Mode = Literal["mean", "cls", "max", "last"]
_SPELLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}
_KEY = "pooling_mode"


@dataclass(frozen=True)
class SentenceConfig:
    """`mode` is None if the checkpoint does not configure pooling; `max_length` is in tokens."""

    mode: Mode | None = None
    normalize: bool = False
    max_length: int | None = None


def present(directory: Path) -> list[str]:
    """List the files of sentence-transformers that a checkpoint has, sorted.

    Raises InputError for a `modules.json` that cannot be read.
    """
    names = (MODULES_FILE, LENGTH_FILE, _pooling_file(_modules(directory)))
    return sorted(name for name in names if (directory / name).is_file())


def module_files(directory: Path) -> list[str]:
    """List all that sentence-transformers reads beside the model, sorted; empty if the model is not at the root.

    Raises InputError for a `modules.json` that cannot be read.
    """
    paths = [path for _, path in _modules(directory) or ()]
    if "" not in paths:
        return []
    own = (f"{path}/{name}" for path in paths if path for name in ("config.json", "model.safetensors"))
    names = (MODULES_FILE, LENGTH_FILE, SETTINGS_FILE, *own)
    return sorted(name for name in names if (directory / name).is_file())


def read(directory: Path) -> SentenceConfig:
    """Read the configuration of a checkpoint; empty if it has none.

    Raises InputError for an unsupported module or pooling, and for malformed files.
    """
    modules = _modules(directory)
    kinds = [kind for kind, _ in modules or ()]
    if modules is not None and kinds[2:] not in ([], ["Normalize"]):
        raise InputError(
            f"{MODULES_FILE} runs a text through {', '.join(kinds)[:200]}; the task does Transformer, Pooling, Normalize"
        )
    if modules is not None and kinds[:2] != ["Transformer", "Pooling"]:
        raise InputError(f"{MODULES_FILE} does not begin with a Transformer and a Pooling")
    length = _object(directory / LENGTH_FILE).get("max_seq_length")
    return SentenceConfig(
        _mode(_object(directory / _pooling_file(modules))),
        "Normalize" in kinds,
        length if isinstance(length, int) and length > 0 else None,
    )


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
