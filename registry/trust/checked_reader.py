"""Readers that compare index files with the known heads, the trust file and the witnesses of the user.

Light, since every resolve reads the trust file.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.registry.store.protocol import (
    BlobReader,
    IndexFile,
    ReaderWrapper,
    RefreshableReader,
    RegistryReader,
    carried_by,
    innermost,
    layers,
)
from onnxreg.registry.support.environment import state_directory, trust_file
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, RegError
from onnxreg.schema.core.given_file import read_given
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.core.units import counted

if TYPE_CHECKING:
    from onnxreg.registry.witness.reader import WitnessedReader
    from onnxreg.schema.inputs.trust_file import Trust, WitnessRequirement
    from onnxreg.schema.witness.merkle_map import MapEntry


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


def forget_witnessed(registry_id: str) -> bool:
    """Forget the witnessed trees and lines that this user saw of a registry; False if there were none."""
    import shutil

    folder = state_directory() / "witness" / "seen" / registry_id
    is_there = folder.is_dir()
    shutil.rmtree(folder, ignore_errors=True)
    return is_there


class WitnessCheck:
    """Compares one place with what its witnesses saw, if the trust file demands witnesses."""

    def __init__(self, reader: RegistryReader) -> None:
        self._source = reader
        self._reader: WitnessedReader | None = None

    def check(self, name: str, index: IndexFile | None) -> None:
        """Raise IntegrityError if a log is not witnessed as the trust file demands."""
        needs = self._needs(name)
        if needs and not (index is None and self._is_partial):
            self._witnessed().check(name, index, needs)

    def audit(self, name: str, index: IndexFile | None) -> Iterator[tuple[str, str]]:
        """Yield the fault that `check` raises; see `verification.Audit`."""
        try:
            self.check(name, index)
        except RegError as error:
            yield "witness", error.message

    def missing(self, names: Collection[str]) -> "list[MapEntry]":
        """List the logs that witnesses saw under other names than these. Raise IntegrityError as `check`."""
        needs = [] if self._is_partial else self._needs(POLICY_LOG)
        return self._witnessed().missing({*names, POLICY_LOG}, needs) if needs else []

    def audit_missing(self, names: Collection[str]) -> Iterator[str]:
        """Yield the faults that `missing` returns or raises."""
        try:
            for entry in self.missing(names):
                yield f"{entry.name} is gone: witnesses saw {counted(entry.seq, 'line')} of it"
        except RegError as error:
            yield error.message

    def audit_place(self) -> str | None:
        """Find a fault of the whole place: too few cosignatures, or only old ones. Return None if it has no fault."""
        try:
            for need in self._needs(POLICY_LOG):
                self._witnessed().newest(need)
        except RegError as error:
            return error.message
        return None

    @property
    def _is_partial(self) -> bool:
        """True if the place has only some models of the registry, as an archive does."""
        return carried_by(innermost(self._source)) is not None

    def _needs(self, name: str) -> "list[WitnessRequirement]":
        trust = trust_if_any()
        return [] if trust is None else trust.witnesses(self._source.registry_id, name)

    def _witnessed(self) -> "WitnessedReader":
        from onnxreg.registry.witness.reader import WitnessedReader

        self._reader = self._reader or WitnessedReader(self._source)
        return self._reader


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
