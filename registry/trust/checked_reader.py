"""Readers that compare index files with the known heads and the trust file of the user.

Light, since every resolve reads the trust file.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.registry.store.protocol import BlobReader, IndexFile, ReaderWrapper, RegistryReader, layers
from onnxreg.registry.support.environment import trust_file
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.registry.trust.observe import KnownHead
    from onnxreg.schema.inputs.trust_file import Trust


class CheckedReader(ReaderWrapper):
    """A reader that refuses an index file which contradicts its known head or lacks a required signature."""

    def __init__(
        self,
        reader: RegistryReader,
        known_heads: KnownHeads,
        *near: BlobReader,
    ) -> None:
        """`near`: further places where documents of the log may be read."""
        super().__init__(reader)
        self._known_heads = known_heads
        self._near = near

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """Read an index file, and check it as `check` does."""
        before = self._known_heads.read(self.source.registry_id, name)
        return self.accept(name, before, self.source.read_index(name, cached))

    def accept(self, name: str, before: "KnownHead | None", index: IndexFile | None) -> IndexFile | None:
        """Check an index file that was read after the known head `before`; if it fails, the newest one. Return which passes."""
        return check_or_refresh(self.source, name, index, partial(self.check, name, before))

    def check(self, name: str, before: "KnownHead | None", index: IndexFile | None) -> None:
        """Compare an index file with its known head; if it is new, also with the trust file.

        Raise ForkError or IntegrityError if it contradicts one of them. `before`: see `KnownHeads.check`.
        """
        digest = trust_digest()
        is_accepted = self._known_heads.check(self.source, name, index, before, digest, self._near)
        if digest and index is not None and not is_accepted:
            _enforce(self.source, name, index)
            self._known_heads.approve(self.source, name, index, digest)


def checked_reader(reader: RegistryReader, known_heads: KnownHeads) -> RegistryReader:
    """Wrap a reader so that index files are compared with the known heads. Return it unchanged if it is wrapped already."""
    if any(isinstance(layer, CheckedReader) for layer in layers(reader)):
        return reader
    return CheckedReader(reader, known_heads)


def check_or_refresh(
    reader: RegistryReader, name: str, index: IndexFile | None, check: Callable[[IndexFile | None], object]
) -> IndexFile | None:
    """Check an index file that was read; if it fails, read and check the newest one. Return the one that passes.

    A cache in between, or a commit that was pinned before another writer's, is not a rollback.
    """
    try:
        check(index)
    except IntegrityError:
        fresh = reader.read_fresh(name)
        if fresh == index:
            raise
        check(fresh)
        return fresh
    return index


def check_no_rollback(reader: RegistryReader, known_heads: KnownHeads, names: Iterable[str]) -> None:
    """Raise IntegrityError or ForkError, before a change, if a registry contradicts its known heads."""
    for name in names:
        before = known_heads.read(reader.registry_id, name)
        if before is not None:
            check = partial(known_heads.check, reader, name, before=before)
            check_or_refresh(reader, name, reader.read_index(name), check)


def _enforce(reader: RegistryReader, name: str, index: IndexFile) -> None:
    """Raise IntegrityError if a log does not meet the trust file."""
    trust = trust_if_any()
    if trust is not None and (name == POLICY_LOG or trust.concerns(reader.registry_id, name)):
        from onnxreg.registry.trust import requirements
        from onnxreg.schema.gates.policy import PolicyLog

        if name == POLICY_LOG:
            requirements.enforce_policies(trust, PolicyLog.decode(index.data, reader.registry_id))
        else:
            requirements.enforce(trust, reader, name, index)


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
