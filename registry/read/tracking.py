"""What was last seen of another registry, kept beside ours: `local/tracking/<registry id>/`.

It is a mirror's tree of that registry without the files: index files exactly as they were, and the sealed parts of
their logs. It is the proof behind `via`, it answers what an index file answers when the registry cannot be reached, and
with the token that an index file had there, the next one is only sent where it changed.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from onnxreg.registry.log.lookup import state_of
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import index_path
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.registry.store.wrapper import ReaderWrapper
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.registry.log.ledger import Ledger


class TrackingCopies:
    """The tracking copy of one registry in `home`."""

    def __init__(self, home: DirectoryRegistry, registry_id: str, url: str) -> None:
        self._home = home
        self._id = registry_id
        self._url = url
        self.store = DirectoryRegistry(home.root / "local" / "tracking" / registry_id)

    @property
    def is_there(self) -> bool:
        """Whether anything was remembered."""
        return (self.store.root / "registry.json").exists()

    @property
    def has_home(self) -> bool:
        """Whether there is anything here that it could be kept in."""
        with suppress(InputError, OSError):
            if not self._home.is_there:
                self._home.refuse_strangers()
            return self._home.root.exists()
        return False

    def _token(self, name: str) -> Path:
        return self.store.root / "local" / "tokens" / f"{name}.json"

    def seen(self, name: str) -> IndexFile | None:
        """The index file as it was last seen, with the token that it had there; None where it never was.

        The token is empty where it is not known to be of these very bytes at this place: a copy has tokens of its own.
        """
        index = self.store.read_index(name)
        if index is None:
            return None
        try:
            value = canonical.decode(self.store.read_local(f"tokens/{name}.json") or b"{}", "token")
        except InputError:
            value = {}
        same = isinstance(value, dict) and (value.get("index"), value.get("url")) == (index.token, self._url)
        return IndexFile(index.data, str(value.get("token", "")) if same else "")

    def age(self, name: str) -> float:
        """Seconds since the registry last said what the index file is. NotFoundError where it never did.

        A time to come (a clock was turned back) is as far from now as one that has passed.
        """
        try:
            return abs(time.time() - self._token(name).stat().st_mtime)
        except OSError:
            raise NotFoundError(f"{name} was never seen there", "`reg fetch-index` fetches it") from None

    def keep(self, name: str, index: IndexFile) -> None:
        """Remember an index file as it is there now."""
        if self.seen(name) == index:
            with host_errors(f"remembering the index of {name}"):
                os.utime(self._token(name))
            return
        token = {"index": Digest.of(index.data).hex, "token": index.token, "url": self._url}
        self._create()
        self.store.write_file(f"local/tokens/{name}.json", canonical.encode(token))
        self.store.write_file(index_path(name), index.data)

    @contextmanager
    def doubted(self, name: str) -> Iterator[None]:
        """Where an IntegrityError is raised within, the index file is asked for anew the next time, not for changes only.

        What a proxy spoilt once would else be taken for the remote's own for as long as that one does not change.
        """
        try:
            yield
        except IntegrityError:
            with suppress(RegError, OSError):
                if self.seen(name) is not None:
                    self.store.write_file(f"local/tokens/{name}.json", canonical.encode({}))
            raise

    def _create(self) -> None:
        self._home.refuse_link(self.store.root)
        DirectoryRegistry.create(self.store.root, mirror_of=self._id)

    def keep_log(self, ledger: "Ledger", more: Collection[Digest] = ()) -> None:
        """Keep the sealed parts of a log too, its chain verified, and more small documents."""
        for _ in ledger.skim():
            pass
        made = {Digest.of(blob): blob for blob in ledger.blobs}
        wanted = {*ledger.segments, *([ledger.catalog] if ledger.catalog else []), *more}
        missing = wanted - self.store.has(wanted)
        if missing:
            self._create()
            with self.store.push() as push:
                for digest in sorted(missing):
                    push.put(BytesIO(made.get(digest) or ledger.fetch(digest)), digest)
                push.flush()


class TrackedReader(ReaderWrapper):
    """A registry elsewhere, whose index files are sent only where they changed, and remembered."""

    def __init__(self, remote: RegistryReader, tracking: TrackingCopies) -> None:
        super().__init__(remote)
        self._tracking = tracking

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        """What is there now. It is remembered where it is an index file of this model and registry, and may be written."""
        found = self.source.read_index(name, known or self._tracking.seen(name))
        if found is not None and self._tracking.has_home:
            with suppress(RegError, OSError):
                if name != POLICY_LOG:
                    state_of(self.source, name, found)
                self._tracking.keep(name, found)
        return found

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """What is remembered is a document: small, and good for nothing where it is damaged."""
        with suppress(RegError):
            return BytesIO(read_blob(self._tracking.store, digest)[start:])
        return super().open_blob(digest, start)


class OfflineReader:
    """A registry as it was last seen; it is not asked. `tell` is told the age in seconds of what a model's index says."""

    def __init__(
        self,
        remote: RegistryReader,
        tracking: TrackingCopies,
        tell: Callable[[str, float], None] = lambda name, age: None,
    ) -> None:
        self._remote = remote
        self._tracking = tracking
        self._tell = tell

    @property
    def url(self) -> str:
        return self._remote.url

    @property
    def registry_id(self) -> str:
        return self._tracking.store.registry_id

    @property
    def is_mirror(self) -> bool:
        return self._tracking.store.is_mirror

    def names(self) -> Iterator[str]:
        return self._tracking.store.names()

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        found = self._tracking.seen(name)
        if found is not None and name != POLICY_LOG:
            self._tell(name, self._tracking.age(name))
        return found

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return self._tracking.store.has(digests)

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        return self._tracking.store.open_blob(digest, start)

    def blob_url(self, digest: Digest) -> str:
        return self._remote.blob_url(digest)
