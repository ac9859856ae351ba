"""Known heads on disk: `heads/<registry id>/<name>.json` in the user's state directory. Light, for `resolve`.

Files are replaced atomically. A process does not overwrite the longer log of another one. If both write in the
same moment, one observation may be lost; a false one is never saved.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.registry.log.lookup import fetcher
from onnxreg.registry.store.protocol import (
    BlobReader,
    IndexFile,
    MissingBlobError,
    ReaderWrapper,
    RegistryReader,
)
from onnxreg.registry.support.disk import refuse_unlisted, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.trust.observe import KnownHead, ServedIndex, observe
from onnxreg.registry.trust.trust_file import trust_digest, trust_if_any
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, RegError, fault
from onnxreg.schema.core.ref import POLICY_LOG


class StaleNotice(NamedTuple):
    """A place whose log of a model lacks lines that were seen elsewhere.

    `seconds`: the time since the newer log was first seen. The place's answer is at least as old.
    """

    name: str
    url: str
    lines: int
    seconds: float


class KnownHeads:
    """The known heads of one user.

    Args:
        directory: the directory above `heads/`; default: the user's state directory.
        stale: called for a registry that is behind. It may raise.
        warn: called once if known heads cannot be written.
    """

    def __init__(
        self,
        directory: Path | None = None,
        stale: Callable[[StaleNotice], None] = lambda notice: None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._root = (directory or state_directory()) / "heads"
        self._stale = stale
        self._warn = warn
        self._warned = False

    def read(self, registry_id: str, name: str) -> KnownHead | None:
        """Read the known head of a log; None if it is not known. IntegrityError if the file is damaged.

        Call it before the index file is read. Otherwise a head that another process keeps in between could make an
        older index file look like a rollback.
        """
        try:
            data = self._path(registry_id, name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(
                f"the known head of {name} cannot be read: {error.strerror}",
                "look at heads/ in your state directory (REG_STATE)",
            ) from error
        try:
            return KnownHead.decode(data, "it", MAX_DOCUMENT_BYTES) if data else None
        except InputError:
            raise IntegrityError(
                f"the known head of {name} is damaged",
                f"reg trust reset {registry_id} {name}",
            ) from None

    def knows(self, registry_id: str, name: str) -> bool:
        """Return True if anything of a model was seen before."""
        return self._path(registry_id, name).is_file()

    def read_index(
        self,
        reader: RegistryReader,
        name: str,
        cached: IndexFile | None = None,
        near: Sequence[BlobReader] = (),
        is_own: bool = False,
    ) -> IndexFile | None:
        """Read an index file and `check` it; if it fails, read and check the newest one. Return the one that passes.

        A cache in between, or a commit that was pinned before another writer's, is not a rollback; nor is a blob that a
        collector freed, once the file that names it was replaced.
        """
        before = self.read(reader.registry_id, name)
        index = reader.read_index(name, cached)
        try:
            self.check(reader, name, index, before, near, is_own)
        except (IntegrityError, MissingBlobError):
            index, former = reader.read_fresh(name), index
            if index == former:
                raise
            self.check(reader, name, index, before, near, is_own)
        return index

    def check_own(self, store: RegistryReader, name: str) -> None:
        """Raise IntegrityError or ForkError, before a change, if a registry of the user contradicts its known head."""
        if self.knows(store.registry_id, name):
            self.read_index(store, name, is_own=True)

    def check(
        self,
        reader: RegistryReader,
        name: str,
        index: IndexFile | None,
        before: KnownHead | None,
        near: Sequence[BlobReader] = (),
        is_own: bool = False,
    ) -> None:
        """Accept an index file as `observe` does, and if it is new, by the trust file; remember it.

        A place that is behind another one is only reported. Raise ForkError or IntegrityError if the file contradicts its
        known head or lacks a required signature.

        Args:
            before: the answer of `read` before the index file was read.
            near: further places where the sealed parts of the log may be read.
            is_own: the trust file does not count, since it is about what others write.
        """
        data = None if index is None else index.data
        origin = reader.location.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        served = ServedIndex(reader.registry_id, name, origin, data, fetcher(*near, reader), reader.url)
        after = observe(before, served)
        if after is None or index is None:
            return
        digest, trust = Digest.of(index.data), "" if is_own else trust_digest()
        if trust and (before is None or (before.index, before.trust) != (digest, trust)):
            _enforce(reader, name, index)
            after = after.replace(trust=trust) if after.index == digest else after
        self._keep(reader.registry_id, name, before, after)
        if after.index != digest:
            with suppress(OSError):
                age = abs(time.time() - self._path(reader.registry_id, name).stat().st_mtime)
                self._stale(StaleNotice(name, reader.url, after.seq - after.places[served.url], age))

    def audit(self, reader: RegistryReader, name: str, index: IndexFile) -> Iterator[tuple[str, str]]:
        """Yield the contradiction between an index file and its known head, if any; see `verify.Audit`.

        If the log grew meanwhile, the newest index file counts.
        """
        try:
            try:
                self.check(reader, name, index, self.read(reader.registry_id, name), is_own=True)
            except (IntegrityError, MissingBlobError):
                if reader.read_index(name) == index:
                    raise
                self.read_index(reader, name, is_own=True)
        except RegError as error:
            yield fault("history", error)

    def passed(self, registry_id: str, name: str, channel: str, proof: str) -> bool:
        """Return True if a governed channel met its policy with this proof before.

        See `resolution.check_channel_policy`.
        """
        head = self.read(registry_id, name)
        return head is not None and head.gates.get(channel) == proof

    def keep_passed(self, registry_id: str, name: str, channel: str, index: IndexFile, proof: str) -> None:
        """Remember that a governed channel of the newest index file meets its policy. Ignore an older one."""
        head = self.read(registry_id, name)
        if head is not None and head.index == Digest.of(index.data):
            self._keep(registry_id, name, head, head.replace(gates={**head.gates, channel: proof}))

    def reset(self, registry_id: str, name: str | None = None) -> list[str]:
        """Forget the head of a model, or of all models of a registry. Return their names."""
        import shutil

        names = [model for model in self.names(registry_id) if name in (None, model)]
        for model in names:
            with suppress(FileNotFoundError):
                self._path(registry_id, model).unlink()
        if name is None:
            shutil.rmtree(self._root / registry_id, ignore_errors=True)
        return names

    def names(self, registry_id: str) -> list[str]:
        """The models of a registry whose heads are known."""
        top = self._root / registry_id
        files = [
            Path(folder, name) for folder, _, names in os.walk(top, onerror=refuse_unlisted) for name in names
        ]
        return sorted(
            path.relative_to(top).with_suffix("").as_posix() for path in files if path.suffix == ".json"
        )

    def models(self, registry_id: str) -> list[str]:
        """The names with a known head, without the log of policies."""
        return [name for name in self.names(registry_id) if name != POLICY_LOG]

    def registries(self) -> list[str]:
        """The ids of registries with a known head."""
        return sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []

    def to_json(self) -> list[dict[str, Any]]:
        """The known heads, in the order of registries and names."""
        return [
            {"registry": registry, "name": name, "seq": head.seq, "head": str(head.head)}
            for registry in self.registries()
            for name in self.names(registry)
            if (head := self.read(registry, name)) is not None
        ]

    def _path(self, registry_id: str, name: str) -> Path:
        return self._root / registry_id / f"{name}.json"

    def _keep(self, registry_id: str, name: str, before: KnownHead | None, head: KnownHead) -> None:
        """Save the known head, unless it is unchanged or another process saved a longer log."""
        if head == before:
            return
        path = self._path(registry_id, name)
        try:
            latest = self.read(registry_id, name)
            if latest is not None and latest.seq > head.seq:
                return
            status = path.stat() if before is not None and before.seq == head.seq else None
            times = (status.st_atime, status.st_mtime) if status is not None else None
            replace_file(path, head.encode(), times)
        except OSError as error:
            if not self._warned:
                self._warned = True
                self._warn(
                    f"known heads cannot be kept in {self._root}: {error.strerror}; a rollback will go unnoticed"
                )


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


class CheckedReader(ReaderWrapper):
    """A reader that refuses an index file which contradicts its known head or lacks a required signature."""

    def __init__(self, source: RegistryReader, known_heads: KnownHeads) -> None:
        super().__init__(source)
        self._known_heads = known_heads

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """Read an index file, and check it; see `KnownHeads.read_index`."""
        return self._known_heads.read_index(self.source, name, cached)


def checked_reader(reader: RegistryReader, known_heads: KnownHeads) -> RegistryReader:
    """Wrap a reader so that index files are checked. Return it unchanged if it is wrapped already."""
    return reader if isinstance(reader, ReaderWrapper) else CheckedReader(reader, known_heads)
