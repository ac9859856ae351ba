"""Paths inside a manifest: relative, POSIX, and safe to create on any file system."""

import re
from collections.abc import Iterable
from functools import lru_cache
from unicodedata import category, normalize

from onnxreg.schema.core.bounds import MAX_PATH_CHARS, MAX_PATH_PARTS
from onnxreg.schema.core.errors import InputError

_FORBIDDEN = r'\x00-\x1f\x7f<>:"|?*\\'
_REFUSALS = {
    re.compile(f"[{_FORBIDDEN}]"): "holds a control or reserved character",
    re.compile(r"(^|/)\.{0,2}(/|\Z)"): "is absolute or has an empty, '.' or '..' part",
    re.compile(r"(^|/)\s|[\s.](/|\Z)"): "has a part that begins or ends with a blank or ends with a dot",
    re.compile(r"(^|/)(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³])\s*(\.|/|\Z)", re.IGNORECASE): (
        "has a part that is a device name"
    ),
    re.compile(
        r"(^|/)[^./]{1,6}~[0-9]+(\.[^./]{0,3})?(/|\Z)"
    ): "has a part that may be another file's short name",
}
_LONG_PART = re.compile(rb"[^/]{256}")

PATTERN = rf"^(?!(.*/)?\.{{1,2}}(/|$))[^/{_FORBIDDEN}]+(/[^/{_FORBIDDEN}]+)*$"
"""The part of `check_path` that a regular expression of JSON Schema can express."""


@lru_cache(1024)
def check_path(path: str) -> str:
    """Return a path unchanged, or raise InputError with the reason that a manifest must not have it.

    Allowed are paths that POSIX, Windows and object stores all distinguish: relative, at most 32 parts with `/` between
    them, at most 1,024 bytes and 255 in a part, no empty, `.` or `..` part, no control, invisible or reserved
    character, no device name and no short name (`OPENME~1.JSO`) of Windows, no trailing dot or blank.
    """
    data = path[: MAX_PATH_CHARS + 1].encode("utf-8", "surrogatepass")
    if not 0 < len(data) <= MAX_PATH_CHARS or data.count(b"/") >= MAX_PATH_PARTS or _LONG_PART.search(data):
        limits = f"{MAX_PATH_CHARS} bytes, {MAX_PATH_PARTS} parts or 255 bytes in a part"
        raise InputError(f"path is empty or longer than {limits}: {path[:80]!r}")
    for pattern, reason in _REFUSALS.items():
        if pattern.search(path):
            raise InputError(f"path {reason}: {path[:80]!r}")
    if not path.isascii() and any(category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in path):
        raise InputError(f"path holds an invisible character or is not valid Unicode: {path[:80]!r}")
    return path


def check_sorted_paths(paths: tuple[str, ...] | None) -> None:
    """InputError unless these are paths that `check_path` allows, ascending, each once, and at least one; or None."""
    if paths is not None and (not paths or list(paths) != sorted(set(map(check_path, paths)))):
        raise InputError("not a sorted list of different paths")


class DistinctPaths:
    """Paths, one after the other, that do not collide on a file system that folds case or normalizes Unicode.

    Compared by canonical caseless matching (Unicode 16, definition D145).
    """

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._files: dict[str, str] = {}
        self._directories: set[str] = set()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Add a path. InputError if it collides with another, or if one of them is a directory above the other."""
        key = path.casefold() if path.isascii() else normalize("NFD", normalize("NFD", path).casefold())
        if (existing := self._files.get(key)) is not None:
            names = f"two files are called {path[:80]!r}"
            collision = f"paths collide: {existing[:80]!r} and {path[:80]!r}"
            raise InputError(names if existing == path else collision)
        above = [key[:index] for index, character in enumerate(key) if character == "/"]
        file = path if key in self._directories else next(filter(None, map(self._files.get, above)), None)
        if file is not None:
            raise InputError(f"path is both a file and a directory: {file[:80]!r}")
        self._files[key] = path
        self._directories.update(above)


def check_distinct(paths: Iterable[str]) -> None:
    """InputError if two paths collide; see `DistinctPaths`."""
    DistinctPaths(paths)
