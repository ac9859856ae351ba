"""Running a program step by step without threads: it is given the answers of the past and stopped where they end."""

import hashlib
import itertools
import os
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any, BinaryIO
from unittest.mock import patch

from onnxreg.registry.store.protocol import MemoryStore, StoredObject, TreeFile

Contents = Mapping[str, bytes]
Answer = Hashable


class ViolationError(Exception):
    """What must hold does not."""


class Paused(BaseException):
    """Stops a program where its answers end. No program may catch it for good."""


def holding(contents: Contents) -> MemoryStore:
    """A store in memory with these contents."""
    store = MemoryStore()
    store.objects.update(contents)
    return store


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the store: what a program asks for."""

    kind: str
    key: str
    data: bytes = b""
    expected: str | None = None

    def perform(self, contents: Contents) -> tuple[Contents, Answer]:
        """What the store in memory makes of it: the contents afterwards, and the answer."""
        store = holding(contents)
        answer = self._ask(store)
        return store.objects, answer

    def _ask(self, store: MemoryStore) -> Answer:
        match self.kind:
            case "get":
                return store.get(self.key)
            case "open":
                stream = store.open(self.key)
                return None if stream is None else stream.read()
            case "has":
                return self.key in store.has([self.key])
            case "create":
                return store.create(self.key, BytesIO(self.data))
            case "swap":
                return store.swap(self.key, self.data, self.expected)
            case "delete":
                store.delete([self.key])
                return None
            case "list":
                return tuple(file.path for file in store.list(self.key))
            case _:
                raise ValueError(self.kind)

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, whatever the contents."""
        return self.kind in ("get", "open", "has", "list")

    def show(self, contents: Iterable[tuple[str, bytes]]) -> str:
        """The step and its answer in words."""
        _, answer = self.perform(dict(contents))
        match answer:
            case None if self.kind == "delete":
                said = "done"
            case tuple() if self.kind == "list":
                said = ", ".join(map(str, answer)) or "nothing"
            case bool():
                said = "yes" if answer else "no"
            case _:
                said = "nothing" if answer is None else "found"
        return f"{self.kind} {self.key} -> {said}"


@dataclass(frozen=True)
class Fixed:
    """What no program ever changes: these objects, and which keys there are under these prefixes."""

    objects: Contents
    lists: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, contents: Contents, keys: Iterable[str], prefixes: Iterable[str]) -> "Fixed":
        return cls(
            {key: contents[key] for key in keys}, {prefix: _listed(contents, prefix) for prefix in prefixes}
        )

    def check(self, contents: Contents) -> None:
        """ViolationError where the contents are other than fixed."""
        for key, data in self.objects.items():
            if contents.get(key) != data:
                raise ViolationError(f"{key} changed, which nobody may do")
        for prefix, keys in self.lists.items():
            if _listed(contents, prefix) != keys:
                raise ViolationError(f"other keys under {prefix}, which nobody may do")


def _listed(contents: Contents, prefix: str) -> tuple[str, ...]:
    return tuple(sorted(key for key in contents if key.startswith(prefix)))


class Replay:
    """An object store that gives the recorded answers, then stops the program and remembers what it asked for.

    What is `Fixed` is the same for ever, so reading it is no step; nobody may change it.
    """

    url = "memory:"

    def __init__(self, answers: list[Answer], fixed: Fixed) -> None:
        self._answers = answers
        self._fixed = fixed
        self.asked: list[Step] = []
        self.known: tuple[Hashable, int] = (), 0

    def forget(self, *known: Hashable) -> None:
        """A promise: what the program does from now on depends on what is `known`, and not on how it came to know."""
        self.known = known, min(len(self.asked), len(self._answers))

    def _ask(self, step: Step) -> Any:
        if len(self.asked) > len(self._answers):
            raise Paused
        self.asked.append(step)
        if len(self.asked) > len(self._answers):
            raise Paused
        return self._answers[len(self.asked) - 1]

    def _read(self, kind: str, key: str) -> Any:
        step = Step(kind, key)
        return step.perform(self._fixed.objects)[1] if key in self._fixed.objects else self._ask(step)

    def get(self, key: str, known: StoredObject | None = None) -> StoredObject | None:
        found: StoredObject | None = self._read("get", key)
        return found

    def open(self, key: str, start: int = 0) -> BinaryIO | None:
        data = self._read("open", key)
        return None if data is None else BytesIO(data[start:])

    def has(self, keys: Iterable[str]) -> set[str]:
        return {key for key in keys if self._read("has", key)}

    def create(self, key: str, source: BinaryIO) -> bool:
        return bool(self._ask(Step("create", key, source.read())))

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        return bool(self._ask(Step("swap", key, data, expected)))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._ask(Step("delete", key))

    def list(self, prefix: str) -> Iterator[TreeFile]:
        """Sizes are told as 0, for the sake of fewer different answers: nothing is decided by them."""
        keys = self._fixed.lists.get(prefix)
        keys = self._ask(Step("list", prefix)) if keys is None else keys
        return iter([TreeFile(key, 0) for key in keys])


class Clock(datetime):
    """Stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> "Clock":
        return cls(2026, 1, 1, tzinfo=tz)


@contextmanager
def determined(seed: str) -> Iterator[None]:
    """Chance and time as functions of the seed, nobody sleeps, and blobs go up one after the other.

    Chance is that of this thread: one that another test left behind must not draw what is a program's.
    """
    count, mine, urandom = itertools.count(), threading.get_ident(), os.urandom

    def draw(size: int = 32) -> bytes:
        if threading.get_ident() != mine:
            return urandom(size)
        return hashlib.shake_128(f"{seed} {next(count)}".encode()).digest(size)

    with (
        patch("os.urandom", draw),
        patch("secrets.token_bytes", draw),
        patch("secrets.token_hex", lambda size=32: draw(size).hex()),
        patch("random.uniform", lambda low, high: low),
        patch("time.sleep", lambda seconds: None),
        patch("onnxreg.registry.system.datetime", Clock),
        patch(
            "onnxreg.registry.transfer.exchange.run_parallel",
            lambda work, items: [work(item) for item in items],
        ),
    ):
        yield
