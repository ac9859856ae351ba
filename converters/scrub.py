"""Removing what a machine left in text files: absolute paths in JSON values, comments in operator configs."""

import json
import re
from pathlib import Path
from typing import Any

from onnxreg.schema.errors import InputError

MAX_BYTES = 64 * 2**20
_ABSOLUTE = re.compile(
    r"(?:file://)?/[^/\0\n]+(?:/[^/\0\n]+)+/?"  # /home/jane/model: two parts or more, since "/x" may be a token
    r"|file://.+|~[^/\0\n]*/.+"
    r"|[A-Za-z]:[\\/][^\n]+|\\\\[^\\\n]+\\[^\n]+"
)
_IDENTITY = frozenset({"_name_or_path", "name_or_path", "source_model_id", "base_model"})
_VOCABULARY = frozenset({"tokenizer.json", "vocab.json", "id2label.json"})


def is_absolute_path(text: str) -> bool:
    """Whether a whole string is a path on some machine: POSIX, Windows, UNC, `~` or a file URL."""
    return _ABSOLUTE.fullmatch(text) is not None


def scrub(value: Any, name: str, at: str = "") -> tuple[Any, list[str]]:
    """A JSON value without absolute paths, and the dotted paths of the strings that were replaced.

    A string that says which model this is becomes `name`; any other keeps its last path component.
    """
    if isinstance(value, dict):
        parts = {key: scrub(child, name, f"{at}.{key}" if at else key) for key, child in value.items()}
        return {key: child for key, (child, _) in parts.items()}, [
            hit for _, hits in parts.values() for hit in hits
        ]
    if isinstance(value, list):
        items = [scrub(child, name, f"{at}.{index}") for index, child in enumerate(value)]
        return [child for child, _ in items], [hit for _, hits in items for hit in hits]
    if isinstance(value, str) and is_absolute_path(value):
        last = re.split(r"[\\/]", value.rstrip("\\/"))[-1]
        return (name if at.rpartition(".")[2] in _IDENTITY else last), [at]
    return value, []


def scrub_json(path: Path, name: str, drop: tuple[str, ...] = ()) -> tuple[bytes, list[str]] | None:
    """The scrubbed bytes of a JSON file and what was changed in it, or None where nothing was.

    `drop` names top-level keys to leave out. Vocabularies and label maps, whose strings are tokens, are not touched.
    """
    if path.name in _VOCABULARY:
        return None
    value = read_json(path)
    result, changed = scrub(value, name)
    if isinstance(result, dict):
        changed += [key for key in drop if key in result]
        result = {key: child for key, child in result.items() if key not in drop}
    if not changed:
        return None
    return (json.dumps(result, indent=2) + "\n").encode(), changed


def scrub_config(path: Path) -> tuple[bytes, list[str]] | None:
    """An operator config without its comments, which name the directory it was made in; None if it has none."""
    lines = path.read_text("utf-8").splitlines()
    kept = [line for line in lines if not line.lstrip().startswith("#")]
    return None if len(kept) == len(lines) else ("".join(f"{line}\n" for line in kept).encode(), ["comments"])


def read_json(path: Path) -> Any:
    """A JSON file beside a model, as its writer meant it (integers of any size); InputError where it is not JSON."""
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path.name} is too large for a JSON companion: more than {MAX_BYTES >> 20} MiB")
    try:
        return json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is not valid JSON: {str(error)[:200]}") from error
