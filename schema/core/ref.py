"""Versions (SemVer 2.0, https://semver.org/spec/v2.0.0.html), refs (`acme/model:1.2.0`), and checks of file paths."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import Any, Self
from unicodedata import category, normalize

from msgspec import Struct

from onnxreg.schema.core.bounds import MAX_PATH_CHARS, MAX_PATH_PARTS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError

POLICY_LOG = ".policy"  # the name of the log of policies; no model can have it
REGISTRY_ID = re.compile(r"[0-9a-f]{32}")

_NUMBER = r"(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_PART = (
    r"(?!(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:[./]|\Z))"  # a device of Windows
    r"(?![^/]*\.\.)(?![^/]*\.jsonl(?:/|\Z))[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?"
)
_NAME = re.compile(rf"{_PART}(?:/{_PART})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}")


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[str, str], bool]:
    def method(self: str, other: str) -> bool:
        if not (isinstance(self, Version) and isinstance(other, Version)):
            raise TypeError(f"a version is compared with a version, not with {other!r}")
        return compare((self.precedence, self.build), (other.precedence, other.build))

    return method


class Version(str):
    """A SemVer 2.0 version, as its text. `<` compares by precedence, and then by build metadata."""

    __slots__ = ("build", "major", "minor", "patch", "pre", "precedence")
    major: int
    minor: int
    patch: int
    pre: tuple[str, ...]
    build: str
    precedence: tuple[object, ...]  # the sort key (SemVer, section 11)

    def __new__(cls, major: int, minor: int, patch: int, pre: tuple[str, ...] = (), build: str = "") -> Self:
        more = ("-" + ".".join(pre) if pre else "") + (f"+{build}" if build else "")
        version = str.__new__(cls, f"{major}.{minor}.{patch}{more}")
        version.major, version.minor, version.patch = major, minor, patch
        version.pre, version.build = pre, build
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre)
        version.precedence = (major, minor, patch, not pre, parts)
        return version

    def __getnewargs__(self) -> tuple[int, int, int, tuple[str, ...], str]:  # type: ignore[override]
        return self.major, self.minor, self.patch, self.pre, self.build

    __lt__, __le__, __gt__, __ge__ = map(_ordered, (lt, le, gt, ge))

    @property
    def is_prerelease(self) -> bool:
        return bool(self.pre)

    def next_patch(self) -> "Version":
        """Return the version to propose next: `1.0.1` after `1.0.0`, but `1.0.0` after the pre-release `1.0.0-rc.1`."""
        return Version(self.major, self.minor, self.patch + (0 if self.pre else 1))

    @classmethod
    def is_version(cls, text: str) -> bool:
        """True for a version such as `1.4.0`, False for a channel such as `stable`."""
        return len(text) <= 128 and _SEMVER.fullmatch(text) is not None

    @classmethod
    @lru_cache(1024)
    def parse(cls, text: str) -> "Version":
        match = _SEMVER.fullmatch(text) if len(text) <= 128 else None
        if match is None:
            hint = "versions are SemVer 2.0, such as 1.4.0 or 2.0.0-rc.1, without a v"
            raise InputError(f"not a version: {text[:80]!r}", hint)
        major, minor, patch, pre, build = match.groups()
        return cls(int(major), int(minor), int(patch), tuple(pre.split(".")) if pre else (), build or "")


def check_name(text: str) -> str:
    """Return a model's name unchanged. Raise InputError unless it is `name` or `org/name` in lower case.

    No part of the name may end in `.jsonl`, the ending of index files, or be a device name of Windows, such as `con`.
    """
    if not is_name(text):
        hint = "a name is NAME or ORG/NAME in lower case, such as acme/pii-small, without a version"
        if text.startswith((".", "/", "~")) or "://" in text:
            hint = "a directory or a URL goes to --remote, or for your own registry to --registry before the verb"
        raise InputError(f"not a model name: {text[:80]!r}", hint)
    return text


def is_name(text: str) -> bool:
    return len(text) <= 200 and _NAME.fullmatch(text) is not None


def check_registry_id(text: str, hint: str = "") -> str:
    """Return a registry's id unchanged. Raise InputError if it is malformed."""
    if not REGISTRY_ID.fullmatch(text):
        raise InputError(f"not a registry id: {text[:40]!r}", hint)
    return text


def check_tag(text: str) -> str:
    """Return a tag, such as `1.4.0` or `stable`, unchanged. Raise InputError if it is malformed."""
    if not _TAG.fullmatch(text):
        hint = "a tag is a version such as 1.4.0 or a channel such as stable"
        raise InputError(f"not a tag: {text[:80]!r}", hint)
    return text


class Ref(Struct, frozen=True):
    """A reference to a version of a model, by tag, digest or both. A ref without them means the newest version."""

    name: str
    tag: str | None = None
    digest: Digest | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.tag is not None:
            check_tag(self.tag)

    def __str__(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    @property
    def is_bare(self) -> bool:
        """True if the ref means the newest version."""
        return self.tag is None and self.digest is None

    @classmethod
    def parse(cls, text: str) -> "Ref":
        """Read `name[:tag][@sha256:...]`. Raise InputError for other text."""
        tagged, at, digest = text.partition("@")
        name, colon, tag = tagged.partition(":")
        return cls(name, tag if colon else None, Digest.parse(digest) if at else None)


_FORBIDDEN = r'\x00-\x1f\x7f<>:"|?*\\'
_REFUSALS = {
    rf"[{_FORBIDDEN}]": "holds a control or reserved character",
    r"(^|/)\.{0,2}(/|\Z)": "is absolute or has an empty, '.' or '..' part",
    r"(^|/)\s|[\s.](/|\Z)": "has a part that begins or ends with a blank or ends with a dot",
    r"(?i)(^|/)(con|prn|aux|nul|con(in|out)\$|(com|lpt)[0-9¹²³])\s*(\.|/|\Z)": "has a device name as a part",
    r"(^|/)[^./]{1,6}~[0-9]+(\.[^./]{0,3})?(/|\Z)": "has a part that may be another file's short name",
}
# The part of `check_path` that JSON Schema can express.
PATTERN = rf"^(?!(.*/)?\.{{1,2}}(/|$))[^/{_FORBIDDEN}]+(/[^/{_FORBIDDEN}]+)*$"


@lru_cache(1024)
def check_path(path: str) -> str:
    """Return a path unchanged. Raise InputError, with the reason, if a manifest must not have this path.

    A path must be relative, and must mean the same file on POSIX, Windows and object stores. Therefore short (8.3)
    names of Windows, such as `OPENME~1.JSO`, are refused.
    """
    data = path[: MAX_PATH_CHARS + 1].encode("utf-8", "surrogatepass")
    parts = data.split(b"/")
    if not 0 < len(data) <= MAX_PATH_CHARS or len(parts) > MAX_PATH_PARTS or max(map(len, parts)) > 255:
        limits = f"{MAX_PATH_CHARS} bytes, {MAX_PATH_PARTS} parts or 255 bytes in a part"
        raise InputError(f"path is empty or longer than {limits}: {path[:80]!r}")
    for pattern, reason in _REFUSALS.items():
        if re.search(pattern, path):
            raise InputError(f"path {reason}: {path[:80]!r}")
    if not path.isascii() and any(category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in path):
        raise InputError(f"path holds an invisible character or is not valid Unicode: {path[:80]!r}")
    return path


class DistinctPaths:
    """A set of paths that name different files, even if a file system ignores case or normalizes Unicode."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._files, self._directories = dict[str, str](), set[str]()
        for path in paths:
            self.add(path)

    def add(self, path: str) -> None:
        """Add a path. Raise InputError if it collides with an earlier path, or if one contains the other."""
        key = path.casefold() if path.isascii() else normalize("NFD", normalize("NFD", path).casefold())
        if (existing := self._files.get(key)) is not None:
            collision = f"paths collide: {existing[:80]!r} and {path[:80]!r}"
            raise InputError(f"two files are called {path[:80]!r}" if existing == path else collision)
        above = [key[:index] for index, character in enumerate(key) if character == "/"]
        file = path if key in self._directories else next(filter(None, map(self._files.get, above)), None)
        if file is not None:
            raise InputError(f"path is both a file and a directory: {file[:80]!r}")
        self._files[key] = path
        self._directories.update(above)


def check_distinct(paths: Iterable[str]) -> None:
    """Raise InputError if two of the paths collide, as in `DistinctPaths.add`."""
    DistinctPaths(paths)
