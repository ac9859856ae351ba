"""A registry whose index files are held against known heads, and against the reader's trust file where there is one."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from onnxreg.registry.store.protocol import BlobReader, IndexFile, RefreshableReader, RegistryReader
from onnxreg.registry.store.wrapper import ReaderWrapper, layers
from onnxreg.registry.trust.read_trust_file import trust_digest, trust_if_any
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.registry.log.lookup import LocatedVersion


class CheckedReader(ReaderWrapper):
    """A source that refuses an index file which contradicts what was seen before, or is not signed as it must be."""

    def __init__(self, source: RegistryReader, heads: CheckpointStore, *near: BlobReader) -> None:
        """`near`: further places where documents of the log may be read."""
        super().__init__(source)
        self._heads = heads
        self._near = near

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        """What is there now. ForkError, IntegrityError."""
        before = self._heads.recall(self.source.registry_id, name)
        return read_checked(
            self.source,
            name,
            known,
            lambda found: hold_against_known(self.source, name, found, self._heads, before, *self._near),
        )


def watched(source: RegistryReader, heads: CheckpointStore) -> RegistryReader:
    """A source held against known heads; itself where it is, or where what it wraps is."""
    if any(isinstance(layer, CheckedReader) for layer in layers(source)):
        return source
    return CheckedReader(source, heads)


def check_version(source: RegistryReader, found: "LocatedVersion") -> None:
    """Raise IntegrityError if the trust file wants this version signed, and it is not."""
    trust = trust_if_any()
    if trust is not None and any(each.versions for each in trust.required(source.registry_id, found.name)):
        from onnxreg.registry.trust.requirements import require_signed

        require_signed(source, found, trust)


def read_checked(
    source: RegistryReader, name: str, known: IndexFile | None, check: Callable[[IndexFile | None], object]
) -> IndexFile | None:
    """An index file that was checked, as `recheck` does."""
    return recheck(source, name, source.read_index(name, known), check)


def recheck(
    source: RegistryReader, name: str, found: IndexFile | None, check: Callable[[IndexFile | None], object]
) -> IndexFile | None:
    """The index file that passes a check: the one that was read, or the newest, where that one may have been older.

    A cache in between, or a commit that was pinned before another writer's, is no going back in time.
    """
    try:
        check(found)
    except IntegrityError:
        again = source.read_fresh(name) if isinstance(source, RefreshableReader) else found
        if again == found:
            raise
        check(again)
        return again
    return found


def hold_against_known(
    source: RegistryReader,
    name: str,
    index: IndexFile | None,
    heads: CheckpointStore,
    before: Any,
    *near: BlobReader,
) -> None:
    """Hold an index file that was read against what was known before, then, where it is new, against the trust file."""
    policy = trust_digest()
    accepted = _compare(source, name, index, heads, before, policy, near)
    if policy and index is not None and not accepted:
        _enforce(source, name, index)
        heads.approve(source, name, index, policy)


def refuse_the_past(source: RegistryReader, heads: CheckpointStore, names: Iterable[str]) -> None:
    """Raise IntegrityError or ForkError if a registry contradicts what was seen of these models: asked
    before anything there is changed."""
    registry_id = source.registry_id
    for name in names:
        if (before := heads.recall(registry_id, name)) is not None:
            check = partial(_compare, source, name, heads=heads, before=before)
            read_checked(source, name, None, check)


def _compare(
    source: RegistryReader,
    name: str,
    index: IndexFile | None,
    heads: CheckpointStore,
    before: Any,
    policy: str = "",
    near: Sequence[BlobReader] = (),
) -> bool:
    if name == POLICY_LOG:
        return heads.check_policies(source, index, before, policy)
    return heads.check(source, name, index, before, policy, near)


def _enforce(source: RegistryReader, name: str, index: IndexFile) -> None:
    """Raise IntegrityError if a log does not keep what the trust file says of it, if anything."""
    trust = trust_if_any()
    if trust is not None and trust.concerns(source.registry_id, name):
        from onnxreg.registry.trust.requirements import enforce, enforce_policies

        if name == POLICY_LOG:
            enforce_policies(trust, source.registry_id, index)
        else:
            enforce(trust, source, name, index)
