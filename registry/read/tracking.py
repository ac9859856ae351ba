"""Tracking copies of other registries, in `local/tracking/<registry id>/`.

A tracking copy is a mirror without the files of artifacts: the last index files, byte by byte, and the sealed
parts of their logs. It is the proof behind `via`, it answers `--offline`, and with the token of an index
file, the remote sends the next one only if it changed.
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
from onnxreg.registry.store.protocol import IndexFile, ReaderWrapper, RegistryReader
from onnxreg.registry.support.disk import host_errors
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError, NotFoundError, RegError
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
        """True if there is a tracking copy."""
        return (self.store.root / "registry.json").exists()

    @property
    def has_home(self) -> bool:
        """True if there is a local registry that can keep the tracking copy."""
        with suppress(InputError, OSError):
            if not self._home.is_there:
                self._home.check_not_foreign()
            return self._home.root.exists()
        return False

    def _token(self, name: str) -> Path:
        return self.store.root / "local" / "tokens" / f"{name}.json"

    def read_index(self, name: str) -> IndexFile | None:
        """The last index file of a model, with the token that it had at the remote; None if there is none.

        The token is empty if it may belong to other bytes or another URL: each copy of a registry has its own
        tokens.
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
        """Seconds since the registry last confirmed the index file. NotFoundError if it never did.

        A time in the future (a clock was turned back) counts by its distance from now.
        """
        try:
            return abs(time.time() - self._token(name).stat().st_mtime)
        except OSError:
            raise NotFoundError(f"{name} was never seen there", Advice("fetch-index")) from None

    def keep(self, name: str, index: IndexFile) -> None:
        """Keep an index file that the remote has now."""
        if self.read_index(name) == index:
            with host_errors(f"remembering the index of {name}"):
                os.utime(self._token(name))
            return
        token = {"index": Digest.of(index.data).hex, "token": index.token, "url": self._url}
        self._create()
        self.store.write_local(f"tokens/{name}.json", canonical.encode(token))
        self.store.write_file(index_path(name), index.data)

    @contextmanager
    def doubted(self, name: str) -> Iterator[None]:
        """After an IntegrityError in the block, fetch the index file in full the next time, not only if it
        changed.

        Otherwise a file that a proxy damaged once would pass for the remote's own until the remote changes
        it.
        """
        try:
            yield
        except IntegrityError:
            with suppress(RegError, OSError):
                if self.read_index(name) is not None:
                    self.store.write_local(f"tokens/{name}.json", canonical.encode({}))
            raise

    def local_path(self, name: str) -> Path | None:
        """The place of a file about the remote, which may be deleted at any time; None if nothing can be kept here."""
        with suppress(RegError, OSError):
            if self.has_home:
                self._create()
                self.store.make_scratch()
                return self.store.root / "local" / name
        return None

    def _create(self) -> None:
        self._home.refuse_link(self.store.root)
        DirectoryRegistry.create(self.store.root, mirror_of=self._id)

    def keep_log(self, ledger: "Ledger", documents: Collection[Digest] = ()) -> None:
        """Verify the chain of a log and keep its sealed parts, and more small documents."""
        ledger.verify_chain()
        blobs = {Digest.of(blob): blob for blob in ledger.blobs}
        digests = {*ledger.segments, *([ledger.catalog] if ledger.catalog else []), *documents}
        missing = digests - self.store.has(digests)
        if missing:
            self._create()
            with self.store.push() as push:
                for digest in sorted(missing):
                    push.put(BytesIO(blobs.get(digest) or ledger.fetch(digest)), digest)
                push.flush()


class TrackedReader(ReaderWrapper):
    """A remote whose index files are kept, and sent again only if they changed."""

    def __init__(self, reader: RegistryReader, tracking: TrackingCopies) -> None:
        super().__init__(reader)
        self.tracking = tracking

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """The current index file. It is kept if it belongs to this model and registry, and can be written
        here.
        """
        index = self.source.read_index(name, cached or self.tracking.read_index(name))
        if index is not None and self.tracking.has_home:
            with suppress(RegError, OSError):
                if name != POLICY_LOG:
                    state_of(self.source, name, index)
                self.tracking.keep(name, index)
        return index

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """A document of the tracking copy if it is intact; else the remote's blob."""
        with suppress(RegError):
            return BytesIO(read_blob(self.tracking.store, digest)[start:])
        return super().open_blob(digest, start)


class OfflineReader:
    """A remote as its tracking copy, without a request. `tell` gets the name and age in seconds of each index
    file.
    """

    def __init__(
        self,
        reader: RegistryReader,
        tracking: TrackingCopies,
        tell: Callable[[str, float], None] = lambda name, age: None,
    ) -> None:
        self._remote = reader
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

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        index = self._tracking.read_index(name)
        if index is not None and name != POLICY_LOG:
            self._tell(name, self._tracking.age(name))
        return index

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return self._tracking.store.has(digests)

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        return self._tracking.store.open_blob(digest, start)

    def blob_url(self, digest: Digest) -> str:
        return self._remote.blob_url(digest)
