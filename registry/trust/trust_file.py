"""The trust file of the user, as it is on this machine. Light, since every resolve reads it."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.registry.support.environment import trust_file
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.given_file import read_given

if TYPE_CHECKING:
    from onnxreg.schema.inputs.trust_file import Trust


def load_trust(path: Path | None = None) -> "Trust":
    """Read the user's trust file; without one, nothing is trusted or required.

    Raise InputError if it is malformed.
    """
    from onnxreg.schema.inputs.trust_file import Trust

    return trust_if_any(path) or Trust()


def trust_if_any(path: Path | None = None) -> "Trust | None":
    """Read the user's trust file; None if there is none."""
    path = path or trust_file()
    return read_trust_file(path) if path.is_file() else None


def read_trust_file(path: Path) -> "Trust":
    """Read a trust file.

    Raise NotFoundError if there is none, HostError if it cannot be read, InputError if it is malformed.
    """
    return _parsed(read_given(path), str(path))


@lru_cache(2)
def _parsed(data: bytes, label: str) -> "Trust":
    from onnxreg.schema.inputs.trust_file import read_trust

    return read_trust(data, label)


def trust_digest() -> str:
    """The digest (hex) of the user's trust file; "" if there is none."""
    path = trust_file()
    return Digest.of(path.read_bytes()).hex if path.is_file() else ""
