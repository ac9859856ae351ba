"""Removing what a machine left in text files: absolute paths in JSON and templates, comments in operator configs."""

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.files import HEAD_BYTES, check_content

_ABSOLUTE = re.compile(
    r"(?:file://)?/[^/\0\n]+(?:/[^/\0\n]+)+/?"  # /home/jane/model: two parts or more, since "/x" may be a token
    r"|file://.+|~[^/\0\n]*/.+"
    r"|[A-Za-z]:[\\/][^\n]+|\\\\[^\\\n]+\\[^\n]+"
)
_PART = r"[^\s/\\\"'`<>|:;,()\[\]{}]+"
"""A part of a path in running text."""
_BELOW = rf"(?:[\\/]{_PART})"
_USUAL = (
    rf"/(?:home|Users|root|tmp|private|var|mnt|media|Volumes|opt|srv|scratch|workspace){_BELOW}+"
    rf"|[A-Za-z]:[\\/]Users{_BELOW}+"
)
_HOME = re.compile(r"(?:file://)?/(?:home|Users)/[^/]+/?|[A-Za-z]:[\\/]Users[\\/][^\\/]+[\\/]?")
_IDENTITY = frozenset({"_name_or_path", "name_or_path", "source_model_id", "base_model"})
_TOKENS = frozenset({"added_tokens_decoder", "id2label", "label2id"})
"""Keys whose values hold tokens or labels."""
_VOCABULARY = frozenset(
    {"added_tokens.json", "id2label.json", "special_tokens_map.json", "tokenizer.json", "vocab.json"}
)


def is_absolute_path(text: str) -> bool:
    """Return True if a whole string is a path on some machine: POSIX, Windows, UNC, `~` or a file URL."""
    return _ABSOLUTE.fullmatch(text) is not None


def scrub(value: Any, name: str, *directories: Path) -> tuple[Any, list[str]]:
    """A JSON value without absolute paths, and the dotted paths of the strings and keys that were replaced.

    A string that says which model this is and is a path becomes `name`. Any other path keeps its last part, whether
    it is a whole string or part of one; in running text a path is below a usual root (`/home`, `/tmp`,
    `C:\\Users`, ...), one of `directories`, or this process's home, working or temporary directory. Tokens and
    labels are not touched.
    """
    return _scrub(value, name, _embedded(directories), "")


def _scrub(value: Any, name: str, embedded: re.Pattern[str], at: str) -> tuple[Any, list[str]]:
    changed: list[str] = []
    if isinstance(value, dict):
        result: dict[str, Any] = {}
        for key, child in value.items():
            new = _scrub_text(key, embedded)
            while new != key and (new in value or new in result):
                new += "_"
            position = f"{at}.{new}" if at else new
            result[new], hits = (child, []) if key in _TOKENS else _scrub(child, name, embedded, position)
            changed += [position] if new != key and position not in hits else []
            changed += hits
        return result, changed
    if isinstance(value, list):
        items = []
        for index, child in enumerate(value):
            item, hits = _scrub(child, name, embedded, f"{at}.{index}" if at else str(index))
            items.append(item)
            changed += hits
        return items, changed
    if not isinstance(value, str):
        return value, []
    if at.rpartition(".")[2] in _IDENTITY and is_absolute_path(value):
        return name, [at]
    text = _scrub_text(value, embedded)
    return text, [at] if text != value else []


def _scrub_text(text: str, embedded: re.Pattern[str]) -> str:
    return _last(text) if is_absolute_path(text) else embedded.sub(lambda match: _last(match[0]), text)


def _last(path: str) -> str:
    """The last part of a path; `~` for a home directory, whose last part is a person."""
    return "~" if _HOME.fullmatch(path) else re.split(r"[\\/]", path.rstrip("\\/"))[-1]


def _embedded(directories: tuple[Path, ...]) -> re.Pattern[str]:
    """The pattern of a path in running text. A directory of one part, such as `/work`, needs a part below."""
    folders = [Path(os.path.expanduser("~")), Path.cwd(), Path(tempfile.gettempdir()), *directories]  # noqa: PTH111
    paths = {
        folder for given in folders for folder in (given.absolute(), given.resolve()) if len(folder.parts) > 1
    }
    needles = [
        re.escape(str(folder)) + (rf"(?![\w-]){_BELOW}*" if len(folder.parts) > 2 else rf"{_BELOW}+")
        for folder in sorted(paths, key=lambda folder: len(str(folder)), reverse=True)
    ]
    return re.compile(rf"(?<![\w/.~-])(?:file://)?(?:{'|'.join([*needles, _USUAL])})")


Scrubbed = tuple[bytes, list[str]]
"""The bytes of a file without what the machine left in it, and what was changed."""


def scrub_file(
    path: Path, name: str, drop: tuple[str, ...] = (), directories: tuple[Path, ...] = ()
) -> Scrubbed | None:
    """A JSON file, template or operator config, scrubbed as its kind asks; None if nothing was changed.

    Vocabularies and label maps, whose strings are tokens, are not touched. The comments of an operator config name the
    directory it was made in.

    Args:
        drop: top-level keys of JSON to leave out.
        directories: see `scrub`; that of the file is one of them.
    """
    changed: list[str] = []
    if path.suffix == ".json" and path.name not in _VOCABULARY:
        value, changed = scrub(read_json(path), name, path.parent, *directories)
        if isinstance(value, dict):
            changed += [key for key in drop if key in value]
            value = {key: child for key, child in value.items() if key not in drop}
        text = json.dumps(value, indent=2) + "\n"
    elif path.suffix == ".jinja":
        text, changed = scrub(
            path.read_bytes().decode("utf-8", "surrogateescape"), name, path.parent, *directories
        )
        changed = ["text"] if changed else []
    elif path.suffix == ".config":
        lines = path.read_text("utf-8", "surrogateescape").splitlines()
        code_lines = [line for line in lines if not line.lstrip().startswith("#")]
        text, changed = (
            "".join(f"{line}\n" for line in code_lines),
            ["comments"] * (len(code_lines) < len(lines)),
        )
    return (text.encode("utf-8", "surrogateescape"), changed) if changed else None


def copy_scrubbed(source: Path, target: Path, name: str, *directories: Path) -> None:
    """Copy a companion without what the machine left in it; see `scrub_file`."""
    scrubbed = scrub_file(source, name, directories=directories)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(scrubbed[0] if scrubbed else source.read_bytes())


def read_json(path: Path) -> Any:
    """A JSON file beside a model, as its writer meant it (integers of any size); InputError if it is not
    JSON."""
    if path.stat().st_size > MAX_DOCUMENT_BYTES:
        raise InputError(
            f"{path.name} is too large for a JSON companion: more than {MAX_DOCUMENT_BYTES >> 20} MiB"
        )
    data = path.read_bytes()
    check_content(data[:HEAD_BYTES], path.name)
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is not valid JSON: {str(error)[:200]}") from error
