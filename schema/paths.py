"""Paths inside a manifest: relative, POSIX, and safe to create on any file system."""

import re
from collections.abc import Iterable
from itertools import pairwise
from unicodedata import category, normalize

MAX_PATH = 1024
MAX_PART = 255

_FORBIDDEN = r'\x00-\x1f\x7f<>:"|?*\\'
_RESERVED = re.compile(f"[{_FORBIDDEN}]")
_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])", re.IGNORECASE)
_SHORT_NAME = re.compile(r"[^.]{1,6}~[0-9]+(\.[^.]{0,3})?")

PATTERN = rf"^(?!(.*/)?\.{{1,2}}(/|$))[^/{_FORBIDDEN}]+(/[^/{_FORBIDDEN}]+)*$"
"""What a regular expression of JSON Schema can say of `check_path`."""


def check_path(path: str) -> str:
    """Return a path unchanged, or raise ValueError with the reason it may not stand in a manifest.

    Allowed is what POSIX, Windows and object stores all hold apart: relative, `/` between parts, at most 1,024
    bytes, no empty, `.` or `..` part, no control, invisible or reserved character, no device name and no short
    name (`OPENME~1.JSO`) of Windows, no trailing dot or blank, at most 255 bytes a part.
    """
    if not path or len(path) > MAX_PATH or len(path.encode("utf-8", "surrogatepass")) > MAX_PATH:
        raise ValueError(f"path is empty or longer than {MAX_PATH} bytes")
    if _RESERVED.search(path):
        raise ValueError(f"path holds a control or reserved character: {path[:80]!r}")
    if not path.isascii() and any(category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in path):
        raise ValueError(f"path holds an invisible character or is not valid Unicode: {path[:80]!r}")
    for part in path.split("/"):
        if reason := _refusal(part):
            raise ValueError(f"path {reason}: {path[:80]!r}")
    return path


def _refusal(part: str) -> str:
    """Why one part of a path is refused, or "" where it is not."""
    if part in ("", ".", ".."):
        return "is absolute or has an empty, '.' or '..' part"
    if part != part.strip() or part.endswith("."):
        return "has a part that begins or ends with a blank or ends with a dot"
    if _DEVICE.fullmatch(part.split(".")[0].strip()):
        return "has a part that is a device name"
    if _SHORT_NAME.fullmatch(part):
        return "has a part that may be another file's short name"
    if len(part.encode()) > MAX_PART:
        return f"has a part longer than {MAX_PART} bytes"
    return ""


def check_distinct(paths: Iterable[str]) -> None:
    """Raise ValueError where two paths would collide on a file system that folds case or normalizes Unicode.

    Compared by canonical caseless matching (Unicode 16, definition D145). Sorted with a `/` at the end, the paths
    below a directory follow it at once, so that neighbours show every collision.
    """
    keyed = sorted((_folded(path) + "/", path) for path in paths)
    for (before, one), (after, other) in pairwise(keyed):
        if before == after:
            raise ValueError(f"paths collide: {one[:80]!r} and {other[:80]!r}")
        if after.startswith(before):
            raise ValueError(f"path is both a file and a directory: {one[:80]!r}")


def _folded(path: str) -> str:
    return path.casefold() if path.isascii() else normalize("NFD", normalize("NFD", path).casefold())
