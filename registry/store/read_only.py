"""Stores that are only read: whatever would write to one is refused, with a word on what to do instead."""

from collections.abc import Iterable
from typing import BinaryIO, NoReturn

from onnxreg.schema.core.errors import Advice, RemoteError


class ReadOnlyStore:
    """The writing half of an `ObjectStore`, refused. `description` names the place; `instead` is the hint."""

    url: str
    description: str
    instead: str | Advice

    def create(self, key: str, source: BinaryIO) -> bool:
        self.refuse(f"writing {key}")

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        self.refuse(f"writing {key}")

    def delete(self, keys: Iterable[str]) -> None:
        self.refuse("deleting")

    def refuse(self, doing: str) -> NoReturn:
        """RemoteError. `doing` completes 'while ...'."""
        raise RemoteError(f"{doing} at {self.url}: {self.description} is only read", self.instead)
