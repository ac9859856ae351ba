"""A reader that compares index files with the user's known heads and trust file."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from onnxreg.registry.store.abilities import RefreshableReader
from onnxreg.registry.store.protocol import BlobReader, IndexFile, ReaderWrapper, RegistryReader, layers
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.read_trust_file import trust_digest, trust_if_any
from onnxreg.registry.trust.witnesses import WitnessCheck
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG


class CheckedReader(ReaderWrapper):
    """A reader that refuses an index file which contradicts its known head or lacks a required signature."""

    def __init__(
        self,
        reader: RegistryReader,
        known_heads: KnownHeads,
        *near: BlobReader,
        is_elsewhere: bool = False,
    ) -> None:
        """`near`: further places where documents of the log may be read.

        A registry that `is_elsewhere` is also compared with what its witnesses saw, if the trust file demands any.
        """
        super().__init__(reader)
        self._known_heads = known_heads
        self._near = near
        self._witnesses = WitnessCheck(reader) if is_elsewhere else None

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """Read an index file, and check it as `check` does."""
        before = self._known_heads.read_json(self.source.registry_id, name)
        index = self.source.read_index(name, cached)
        return check_or_refresh(self.source, name, index, partial(self.check, name, before))

    def check(self, name: str, before: Any, index: IndexFile | None) -> None:
        """Compare an index file with its witnesses and its known head; if it is new, also with the trust file.

        Raise ForkError or IntegrityError if it contradicts one of them. `before`: see `KnownHeads.check`.
        """
        if self._witnesses is not None:  # first: what witnesses did not see must not become a known head
            self._witnesses.check(name, index)
        digest = trust_digest()
        is_accepted = self._known_heads.check(self.source, name, index, before, digest, self._near)
        if digest and index is not None and not is_accepted:
            _enforce(self.source, name, index)
            self._known_heads.approve(self.source, name, index, digest)


class WitnessGuard(ReaderWrapper):
    """A reader that refuses an index file which is not witnessed as the user's trust file demands."""

    def __init__(self, reader: RegistryReader) -> None:
        super().__init__(reader)
        self._witnesses = WitnessCheck(reader)

    def names(self) -> Iterator[str]:
        """Yield the models of the place, and those that only witnesses saw. To read one of these is an error."""
        present = set(self.source.names())
        yield from sorted(present | {entry.name for entry in self._witnesses.missing(present)})

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """Read an index file. Raise IntegrityError if it is not witnessed as demanded."""
        index = self.source.read_index(name, cached)
        return check_or_refresh(self.source, name, index, partial(self._witnesses.check, name))


def checked_reader(
    reader: RegistryReader, known_heads: KnownHeads, is_elsewhere: bool = False
) -> RegistryReader:
    """Wrap a reader so that index files are compared with the known heads. Return it unchanged if it is wrapped already."""
    if any(isinstance(layer, CheckedReader) for layer in layers(reader)):
        return reader
    return CheckedReader(reader, known_heads, is_elsewhere=is_elsewhere)


def check_or_refresh(
    reader: RegistryReader, name: str, index: IndexFile | None, check: Callable[[IndexFile | None], object]
) -> IndexFile | None:
    """Check an index file that was read; if it fails, read and check the newest one. Return the one that passes.

    A cache in between, or a commit that was pinned before another writer's, is not a rollback.
    """
    try:
        check(index)
    except IntegrityError:
        fresh = reader.read_fresh(name) if isinstance(reader, RefreshableReader) else index
        if fresh == index:
            raise
        check(fresh)
        return fresh
    return index


def check_no_rollback(reader: RegistryReader, known_heads: KnownHeads, names: Iterable[str]) -> None:
    """Raise IntegrityError or ForkError, before a change, if a registry contradicts its known heads."""
    for name in names:
        before = known_heads.read_json(reader.registry_id, name)
        if before is not None:
            check = partial(known_heads.check, reader, name, before=before)
            check_or_refresh(reader, name, reader.read_index(name), check)


def _enforce(reader: RegistryReader, name: str, index: IndexFile) -> None:
    """Raise IntegrityError if a log does not meet the trust file."""
    trust = trust_if_any()
    if trust is not None and trust.concerns(reader.registry_id, name):
        from onnxreg.registry.trust.requirements import enforce, enforce_policies

        if name == POLICY_LOG:
            enforce_policies(trust, reader.registry_id, index)
        else:
            enforce(trust, reader, name, index)
