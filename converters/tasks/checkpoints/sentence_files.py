"""What sentence-transformers keeps beside a checkpoint: how token vectors become one vector of the text.

`modules.json` lists what a text runs through (a Transformer, a Pooling, maybe Normalize), `1_Pooling/config.json` is the
pooling's own, and `sentence_bert_config.json` says how many tokens the checkpoint was trained for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

from onnxreg.converters.source.scrub import read_json
from onnxreg.schema.core.errors import InputError

MODULES, POOLING, LENGTH = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
PATTERNS = (MODULES, LENGTH, "*_Pooling/config.json")
"""Of these names files are fetched from a hub."""

Mode = Literal["mean", "cls", "max", "last"]
_SPELLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}
_KEY = "pooling_mode"


@dataclass(frozen=True)
class SentenceConfig:
    """`mode` is None where the checkpoint says nothing of pooling; `max_length` is in tokens."""

    mode: Mode | None = None
    normalize: bool = False
    max_length: int | None = None


def present(directory: Path) -> list[str]:
    """The files of these that a checkpoint has, sorted.

    Raises InputError for a `modules.json` that cannot be read.
    """
    named = (MODULES, LENGTH, _pooling_file(_modules(directory)))
    return sorted(name for name in named if (directory / name).is_file())


def read(directory: Path) -> SentenceConfig:
    """The configuration of a checkpoint; an empty one where it has none.

    Raises InputError for a module or a pooling that the task cannot do, and for files that are malformed.
    """
    modules = _modules(directory)
    kinds = [kind for kind, _ in modules or ()]
    if modules is not None and kinds[2:] not in ([], ["Normalize"]):
        raise InputError(
            f"{MODULES} runs a text through {', '.join(kinds)[:200]}; the task does Transformer, Pooling, Normalize"
        )
    if modules is not None and kinds[:2] != ["Transformer", "Pooling"]:
        raise InputError(f"{MODULES} does not begin with a Transformer and a Pooling")
    length = _object(directory / LENGTH).get("max_seq_length")
    return SentenceConfig(
        _mode(_object(directory / _pooling_file(modules))),
        "Normalize" in kinds,
        length if isinstance(length, int) and length > 0 else None,
    )


def _modules(directory: Path) -> list[tuple[str, str]] | None:
    """Kind and directory of each module, in order; None without a list."""
    path = directory / MODULES
    if not path.is_file():
        return None
    value = read_json(path)
    if not isinstance(value, list):
        raise InputError(f"{MODULES} of the checkpoint is not a list")
    return [_module(entry) for entry in value]


def _module(entry: Any) -> tuple[str, str]:
    kind, path = (entry.get(key) if isinstance(entry, dict) else None for key in ("type", "path"))
    if not isinstance(kind, str) or not isinstance(path, str):
        raise InputError(f"a module in {MODULES} of the checkpoint has no type and path")
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise InputError(f"{MODULES} of the checkpoint names a place outside it: {path[:80]!r}")
    return kind.rpartition(".")[2], path


def _pooling_file(modules: list[tuple[str, str]] | None) -> str:
    found = (f"{path}/config.json" for kind, path in modules or () if kind == "Pooling")
    return next(found, POOLING)


def _object(path: Path) -> dict[str, Any]:
    value = read_json(path) if path.is_file() else {}
    if not isinstance(value, dict):
        raise InputError(f"{path.parent.name}/{path.name} of the checkpoint is not a JSON object")
    return value


def _mode(config: dict[str, Any]) -> Mode | None:
    asked = list(dict.fromkeys(_asked(config)))
    if not asked:
        return None
    if len(asked) > 1:
        raise InputError(f"the checkpoint pools in several ways at once: {', '.join(asked)[:200]}")
    mode = _SPELLINGS.get(asked[0], asked[0])
    for known in get_args(Mode):
        if mode == known:
            return known  # type: ignore[no-any-return]
    raise InputError(
        f"the checkpoint pools by {asked[0][:80]!r}", f"the task does {', '.join(get_args(Mode))}"
    )


def _asked(config: dict[str, Any]) -> Iterator[str]:
    """The modes in a pooling's configuration: `pooling_mode_cls_token: true`, or in newer ones `pooling_mode: cls`."""
    for key, value in config.items():
        if key == _KEY:
            yield from map(str, value if isinstance(value, list) else [value])
        elif key.startswith(f"{_KEY}_") and value is True:
            yield key.removeprefix(f"{_KEY}_")
