"""A registry to work on, held against known heads: what it says is checked as it is read, what is written is remembered."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.storage import (
    Arriving,
    BlobKey,
    Hasher,
    IndexFile,
    Kind,
    Push,
    Remote,
    TreeFile,
)
from onnxreg.registry.trust.heads import Heads
from onnxreg.registry.trust.watched import Watched, check_head, read_checked
from onnxreg.schema.digest import Digest
from onnxreg.schema.ref import POLICY_LOG


class WatchedRemote(Watched):
    """A `Remote` that refuses an index file which contradicts what was seen before, and remembers what it publishes.

    Signatures are the business of those who read: to write, none is asked for.
    """

    def __init__(self, remote: Remote, heads: Heads) -> None:
        self.remote: Remote = remote.remote if isinstance(remote, WatchedRemote) else remote
        super().__init__(self.remote, heads)

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        """What is there now. ForkError, IntegrityError."""
        before = self._heads.recall(self.registry_id, name)
        return read_checked(
            self.remote, name, known, lambda found: check_head(self.remote, name, found, self._heads, before)
        )

    def names(self) -> Iterator[str]:
        """Every model's name. IntegrityError where one is gone that was there before."""
        found = list(self.remote.names())
        for name in set(self._heads.names(self.registry_id)).difference(found, [POLICY_LOG]):
            self.read_index(name)
        return iter(found)

    @contextmanager
    def push(self) -> Iterator[Push]:
        with self.remote.push() as push:
            yield _WatchedPush(push, self.remote, self._heads)

    def confirm(self, name: str) -> None:
        self.remote.confirm(name)

    def add_note(self, kind: Kind, note: str, data: bytes) -> None:
        self.remote.add_note(kind, note, data)

    def notes(self, kind: Kind) -> dict[str, bytes]:
        return self.remote.notes(kind)

    def remove_note(self, kind: Kind, note: str) -> None:
        self.remote.remove_note(kind, note)

    def is_alive(self, note: str) -> bool | None:
        return self.remote.is_alive(note)

    def files(self) -> Iterator[TreeFile]:
        return self.remote.files()

    def open_key(self, key: BlobKey) -> BinaryIO:
        return self.remote.open_key(key)

    def delete(self, keys: Iterable[BlobKey]) -> None:
        self.remote.delete(keys)

    def discard(self, paths: Iterable[str]) -> None:
        self.remote.discard(paths)


class _WatchedPush:
    """A push after which the head that it made is known."""

    def __init__(self, push: Push, remote: Remote, heads: Heads) -> None:
        self._push, self._remote, self._heads = push, remote, heads

    @property
    def id(self) -> str:
        return self._push.id

    def avoid(self, condemned: Collection[BlobKey]) -> None:
        self._push.avoid(condemned)

    def distrust(self, keys: Collection[BlobKey]) -> None:
        self._push.distrust(keys)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return self._push.has(digests)

    def put(self, source: BinaryIO, expected: Digest | None = None) -> tuple[Digest, int]:
        return self._push.put(source, expected)

    def put_file(self, path: Path, hasher: Hasher | None = None) -> tuple[Digest, int]:
        return self._push.put_file(path, hasher)

    def fetch(self, blob: Arriving) -> int:
        return self._push.fetch(blob)

    def flush(self) -> None:
        self._push.flush()

    def publish(self, name: str, index: bytes, expected: str | None) -> None:
        """ForkError, and nothing published, where others are known to have added other lines to a copy of this log."""
        before = self._heads.recall(self._remote.registry_id, name)
        if name != POLICY_LOG:
            self._heads.foresee(self._remote, name, index, before)
        self._push.publish(name, index, expected)
        check_head(self._remote, name, IndexFile(index, ""), self._heads, before)
