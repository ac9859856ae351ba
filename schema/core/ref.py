"""Names of models and of their versions: `name[:tag][@sha256:...]`."""

import re
from dataclasses import dataclass

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.core.version import Version

POLICY_LOG = ".policy"
"""The name of the registry's own log of policies, used like a model's name. No model can have it."""
REGISTRY_ID = re.compile(r"[0-9a-f]{32}")

_PART = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,127}")
_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))}


def check_name(text: str) -> str:
    """Return a model name unchanged, or raise InputError: `name` or `org/name`, lower case.

    A part may not end in `.jsonl` (an index file is called so) nor be a device name of Windows, since both name
    files in every backend's tree.
    """
    parts = text.split("/") if len(text) <= 200 else []
    ok = 1 <= len(parts) <= 2
    for part in parts:
        ok = ok and _PART.fullmatch(part) is not None and ".." not in part
        ok = ok and not part.endswith(".jsonl") and part.split(".")[0] not in _DEVICES
    if not ok:
        raise InputError(f"not a model name: {text[:80]!r}", _name_rule(text))
    return text


def _name_rule(text: str) -> str | Advice:
    """The hint for a text that is not a name: the name in it, or else the rule."""
    name, _, version = text.partition(":")
    if Version.is_version(version) and is_name(name):
        return Advice("omit-version", name=name, version=version)
    return "a name is NAME or ORG/NAME in lower case: letters, digits and . _ - inside, e.g. acme/pii-small"


def is_name(text: str) -> bool:
    """True if a text is a model name."""
    try:
        return check_name(text) == text
    except InputError:
        return False


def check_registry_id(text: str, hint: str | Advice = "") -> str:
    """Return a registry's id unchanged, or raise InputError."""
    if not REGISTRY_ID.fullmatch(text):
        raise InputError(f"not a registry id: {text[:40]!r}", hint)
    return text


def check_tag(text: str) -> str:
    """Return a tag unchanged, or raise InputError."""
    if not _TAG.fullmatch(text):
        raise InputError(
            f"not a tag: {text[:80]!r}", "a tag is a version such as 1.4.0 or a channel such as stable"
        )
    return text


@dataclass(frozen=True, slots=True)
class Ref:
    """A model, and which of its versions: by tag, by digest, by both (they must agree), or the newest."""

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
        """True if it names no version, so that the newest is meant."""
        return self.tag is None and self.digest is None

    @classmethod
    def parse(cls, text: str) -> "Ref":
        """ref = name [":" tag] ["@" digest]; anything else is an InputError"""
        tagged, at, digest = text.partition("@")
        name, colon, tag = tagged.partition(":")
        return cls(name, tag if colon else None, Digest.parse(digest) if at else None)
