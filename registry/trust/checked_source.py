"""A reader that compares index files with the user's known heads and trust file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxreg.registry.store.abilities import RefreshableReader
from onnxreg.registry.store.protocol import BlobReader, IndexFile, ReaderWrapper, RegistryReader, layers
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.read_trust_file import trust_digest, trust_if_any
from onnxreg.registry.trust.witnesses import WitnessCheck
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.registry.log.lookup import LocatedVersion


class CheckedReader(ReaderWrapper):
    """A reader that refuses an index file which contradicts its known head or lacks a required signature."""

    def __init__(
        self,
        source: RegistryReader,
        known_heads: KnownHeads,
        *near: BlobReader,
        is_elsewhere: bool = False,
    ) -> None:
        """`near`: further places where documents of the log may be read.

        A registry that `is_elsewhere` is also compared with what its witnesses saw, if the trust file demands any.
        """
        super().__init__(source)
        self._known_heads = known_heads
        self._near = near
        self._witnesses = WitnessCheck(source) if is_elsewhere else None

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """Read an index file, and check it.

        Raise ForkError or IntegrityError if it contradicts the known head, or what witnesses saw.
        """
        before = self._known_heads.recall(self.source.registry_id, name)

        def check(index: IndexFile | None) -> None:
            if self._witnesses is not None:  # first: what witnesses did not see must not become a known head
                self._witnesses.check(name, index)
            check_history(self.source, name, index, self._known_heads, before, *self._near)

        return read_checked(self.source, name, cached, check)


class WitnessGuard(ReaderWrapper):
    """A reader that refuses an index file which is not witnessed as the user's trust file demands."""

    def __init__(self, source: RegistryReader) -> None:
        super().__init__(source)
        self._witnesses = WitnessCheck(source)

    def names(self) -> Iterator[str]:
        """Yield the models that are there, and those that witnesses saw and that are gone: reading them is an error."""
        present = set(self.source.names())
        yield from sorted(present | {entry.name for entry in self._witnesses.missing(present)})

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """Read an index file. IntegrityError if witnesses did not see it so."""
        return read_checked(self.source, name, cached, partial(self._witnesses.check, name))


def checked_reader(
    source: RegistryReader, known_heads: KnownHeads, is_elsewhere: bool = False
) -> RegistryReader:
    """A source held against known heads; itself if it is, or if what it wraps is."""
    if any(isinstance(layer, CheckedReader) for layer in layers(source)):
        return source
    return CheckedReader(source, known_heads, is_elsewhere=is_elsewhere)


def check_version(source: RegistryReader, target: "LocatedVersion") -> None:
    """Raise IntegrityError if the trust file wants this version signed, and it is not."""
    trust = trust_if_any()
    if trust is not None and any(
        requirement.versions for requirement in trust.required(source.registry_id, target.name)
    ):
        from onnxreg.registry.trust.requirements import require_signed

        require_signed(source, target, trust)


def read_checked(
    source: RegistryReader, name: str, cached: IndexFile | None, check: Callable[[IndexFile | None], object]
) -> IndexFile | None:
    """An index file that was checked, as `recheck` does."""
    return recheck(source, name, source.read_index(name, cached), check)


def recheck(
    source: RegistryReader, name: str, index: IndexFile | None, check: Callable[[IndexFile | None], object]
) -> IndexFile | None:
    """Return the index file that passes a check: the one that was read, or the newest one.

    A cache in between, or a commit that was pinned before another writer's, is not a rollback.
    """
    try:
        check(index)
    except IntegrityError:
        fresh = source.read_fresh(name) if isinstance(source, RefreshableReader) else index
        if fresh == index:
            raise
        check(fresh)
        return fresh
    return index


def check_history(
    source: RegistryReader,
    name: str,
    index: IndexFile | None,
    known_heads: KnownHeads,
    before: Any,
    *near: BlobReader,
) -> None:
    """Compare an index file with its known head, then, if it is new, with the trust file."""
    policy = trust_digest()
    accepted = _compare(source, name, index, known_heads, before, policy, near)
    if policy and index is not None and not accepted:
        _enforce(source, name, index)
        known_heads.approve(source, name, index, policy)


def check_no_rollback(source: RegistryReader, known_heads: KnownHeads, names: Iterable[str]) -> None:
    """Raise IntegrityError or ForkError, before a change, if a registry contradicts its known heads."""
    registry_id = source.registry_id
    for name in names:
        if (before := known_heads.recall(registry_id, name)) is not None:
            check = partial(_compare, source, name, known_heads=known_heads, before=before)
            read_checked(source, name, None, check)


def _compare(
    source: RegistryReader,
    name: str,
    index: IndexFile | None,
    known_heads: KnownHeads,
    before: Any,
    policy: str = "",
    near: Sequence[BlobReader] = (),
) -> bool:
    if name == POLICY_LOG:
        return known_heads.check_policies(source, index, before, policy)
    return known_heads.check(source, name, index, before, policy, near)


def _enforce(source: RegistryReader, name: str, index: IndexFile) -> None:
    """Raise IntegrityError if a log does not keep what the trust file says of it, if anything."""
    trust = trust_if_any()
    if trust is not None and trust.concerns(source.registry_id, name):
        from onnxreg.registry.trust.requirements import enforce, enforce_policies

        if name == POLICY_LOG:
            enforce_policies(trust, source.registry_id, index)
        else:
            enforce(trust, source, name, index)
