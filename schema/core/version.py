"""Versions: SemVer 2.0 (https://semver.org/spec/v2.0.0.html), parsed strictly and ordered by precedence."""

import re
from dataclasses import dataclass
from functools import lru_cache, total_ordering

from onnxreg.schema.core.errors import InputError

_NUMBER = r"(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """One SemVer 2.0 version. Build metadata takes no part in precedence, but is part of the name."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()
    build: str = ""

    def __str__(self) -> str:
        pre = "-" + ".".join(self.pre) if self.pre else ""
        return f"{self.major}.{self.minor}.{self.patch}{pre}" + (f"+{self.build}" if self.build else "")

    def __hash__(self) -> int:
        return hash((self.major, self.minor, self.patch))

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Version):
            return NotImplemented
        return (self.precedence, self.build) < (other.precedence, other.build)

    @property
    def precedence(self) -> tuple[object, ...]:
        """Sorts as section 11 of SemVer says; versions that differ in build metadata only are equal.

        `<` falls back to the build text there, for a total order.
        """
        if not self.pre:
            return (self.major, self.minor, self.patch, True, ())
        pre = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre)
        return (self.major, self.minor, self.patch, False, pre)

    @property
    def is_prerelease(self) -> bool:
        return bool(self.pre)

    def next_patch(self) -> "Version":
        """The version proposed when none is given: a pre-release is followed by its own release."""
        return Version(self.major, self.minor, self.patch + (0 if self.pre else 1))

    @classmethod
    def is_version(cls, text: str) -> bool:
        """True if a tag is a version (never moves) and not a channel (may move)."""
        return len(text) <= 128 and _SEMVER.fullmatch(text) is not None

    @classmethod
    def nearest(cls, text: str) -> str | None:
        """The version that a text such as `v1.4.0` or `1.4` comes close to, if any."""
        start = text.removeprefix("v")
        return next((near for near in (start, f"{start}.0", f"{start}.0.0") if cls.is_version(near)), None)

    @classmethod
    @lru_cache(1024)
    def parse(cls, text: str) -> "Version":
        match = _SEMVER.fullmatch(text) if len(text) <= 128 else None
        if match is None:
            near = cls.nearest(text)
            hint = f"did you mean {near}?" if near else "versions are SemVer 2.0, such as 1.4.0 or 2.0.0-rc.1"
            raise InputError(f"not a version: {text[:80]!r}", hint)
        major, minor, patch, pre, build = match.groups()
        return cls(int(major), int(minor), int(patch), tuple(pre.split(".")) if pre else (), build or "")
