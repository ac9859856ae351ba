"""Read files that users name, with a limit on size. Read TOML and YAML strictly.

Files that would cost a parser minutes, gigabytes or the whole stack are refused. Repeated keys are errors. No code is
run.
"""

import os
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES, MAX_TEXT_BYTES
from onnxreg.schema.core.errors import HostError, InputError, NotFoundError, missing_extra, why

HEAD_BYTES = 64  # the bytes at the start of a file that `check_content` needs
# If a file's last change is older than this, every file system gives the next change another time.
SETTLED_NANOSECONDS = 2 * 10**9
# Numbers such as 1e-4 are numbers in JSON and YAML 1.2, but texts for PyYAML.
FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"
# PyYAML raises these for values such as a 13th month or `!!bool x`.
VALUE_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

# Dotted keys in TOML with over 32 parts. The time to parse a key grows with the square of its parts.
_LONG_KEY = r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}"""


def check_given(path: Path, label: str = "file", hint: str = "check the path") -> None:
    """Raise NotFoundError if a file does not exist, and InputError if it is not a regular file."""
    if not path.exists():
        raise NotFoundError(f"there is no {label} {path}", hint)
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "not a regular file"
        raise InputError(f"{path} is {kind}", "name a file")


def read_given(
    path: Path, label: str = "file", hint: str = "check the path", limit: int = MAX_DOCUMENT_BYTES
) -> bytes:
    """Read a regular file of at most `limit` bytes. `label` says what it is, such as `policy`.

    Raise NotFoundError if the file does not exist. Raise InputError if it is too large, if it is not a regular file, or
    if it is a Git LFS pointer instead of the file itself. Raise HostError if it cannot be read.
    """
    check_given(path, label, hint)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise HostError(f"reading {path} failed: {why(error)}", "check who may read it") from error
    if len(data) > limit:
        raise InputError(f"{path} is too large for a {label}: more than {limit >> 20} MiB")
    check_content(data[:HEAD_BYTES], path.name)
    return data


def check_content(head: bytes, name: str) -> None:
    """Raise InputError if a file, which begins with `head`, is a pointer of Git LFS or git-annex, or a web page."""
    if head.startswith((b"version https://git-lfs.github.com/", b"/annex/objects/")):
        hint = "fetch the file: git lfs pull, or git annex get"
        raise InputError(f"{name} is a Git LFS pointer, not the file itself", hint)
    is_page = re.match(rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype html|html)\b", head)
    if is_page and not name.lower().endswith((".htm", ".html", ".jinja", ".md")):
        message = f"{name} is a web page, such as that of a login, not the file itself"
        raise InputError(message, "log in, then download it again")


class FileState(NamedTuple):
    """The state of a file: if the file changes, its state changes. `size` is in bytes, times are in ns.

    `modified` is the time of the last change of the bytes. Programs can set this time. `changed` is the time of the
    last change of the inode. Programs cannot set this time, and some file systems lack it.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileState":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def __str__(self) -> str:
        return f"{self.device} {self.inode} {self.size} {self.modified} {self.changed}"

    def token(self, now: int) -> str:
        """Return the state as text. `now` is the time at which it was read, in ns.

        Return "" if a further change might leave the state as it is: the last change is too recent, or the file system
        has no fine times.
        """
        has_fine_times = os.name == "posix" and self.changed % 10**9 != 0
        is_old = now - max(self.modified, self.changed) > SETTLED_NANOSECONDS
        return str(self) if has_fine_times and is_old else ""


def read_toml(data: bytes, label: str) -> dict[str, Any]:
    """Parse TOML. Raise InputError if it is malformed, too large, too deep, or has a key of over 32 parts."""
    import tomllib

    try:
        text = _decoded(data, label)
        if re.search(_LONG_KEY, text):
            raise InputError(f"{label} has a key of more than 32 parts")
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{label} is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{label} is not TOML: {error}") from error


def read_yaml(data: bytes, label: str, extra: str) -> Any:
    """Parse YAML or JSON. Raise InputError if the text is malformed. Raise HostError, naming `extra`, if PyYAML is not
    installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise missing_extra("yaml", extra, f"reading {label}") from error
    refused = yaml.constructor.ConstructorError

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise refused(None, None, "aliases are not allowed", self.peek_event().start_mark)
            return super().compose_node(parent, index)

        def flatten_mapping(self, node: Any) -> None:  # keeps the merge key `<<`, which is refused
            keys = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, Hashable):
                    return
                if key in keys:
                    raise refused(None, None, f"the key {key!r} occurs twice", key_node.start_mark)
                keys.add(key)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(FLOAT), list("-+.0123456789"))
    try:
        return yaml.load(_decoded(data, label), Loader=Loader)
    except (yaml.YAMLError, RecursionError, *VALUE_ERRORS) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        position = f", line {mark.line + 1}, column {mark.column + 1}," if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "context", None) or error
        raise InputError(
            f"{label}{position} is neither YAML nor JSON: {' '.join(str(problem).split())[:200]}",
            "look there and in the line above for a bracket, quote or colon that is missing, and for tabs",
        ) from error


def _decoded(data: bytes, label: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"{label} is larger than {MAX_TEXT_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{label} is not text in UTF-8") from error
