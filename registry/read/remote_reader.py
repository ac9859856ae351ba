"""A remote as this user may trust it, and the copy of its documents that stays here.

The copy, in `tracking/<registry id>/` of the user's state directory, is a mirror without the files of artifacts: the
last index files, byte by byte, and the sealed parts of their logs. It is the proof behind `via`, it answers
`--offline`, and with the token of an index file, the remote sends the next one only if it changed.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import index_path
from onnxreg.registry.store.protocol import IndexFile, ReaderWrapper, RegistryReader
from onnxreg.registry.support.disk import host_errors
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import POLICY_LOG

MAX_KEPT, MAX_KEPT_BYTES = 64, 2**18
"""Documents of a remote that a reader keeps in memory, and bytes of each."""
TellAge = Callable[[str, float], None]
"""Gets a model's name and the age of its index file in seconds."""


class RemoteCopy:
    """The copy of one registry's documents, as it was last read at a URL."""

    def __init__(self, registry_id: str, url: str) -> None:
        self._id, self._url = registry_id, url
        self.store = DirectoryRegistry(state_directory() / "tracking" / registry_id)

    def read_index(self, name: str) -> IndexFile | None:
        """The last index file of a model, with the token that it had at the remote; None if there is none.

        The token is empty if it may belong to other bytes or another URL: each copy of a registry has its own tokens.
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
            raise NotFoundError(f"{name} was never seen there", "`reg fetch-index` fetches it") from None

    def keep(self, name: str, index: IndexFile, former: IndexFile | None = None) -> None:
        """Keep an index file that the remote has now; `former` is the one that is here, if it was just read."""
        if index == (former or self.read_index(name)):
            with host_errors(f"remembering the index of {name}"):
                os.utime(self._token(name))
            return
        token = {"index": Digest.of(index.data).hex, "token": index.token, "url": self._url}
        DirectoryRegistry.create(self.store.root, mirror_of=self._id)
        self.store.write_local(f"tokens/{name}.json", canonical.encode(token))
        self.store.write_file(index_path(name), index.data)

    def keep_log(self, log: Log, documents: Collection[Digest] = ()) -> None:
        """Verify the chain of a log and keep its sealed parts, and more small documents."""
        for _ in log.lines():
            pass
        blobs = {Digest.of(blob): blob for blob in log.blobs}
        digests = {*log.segments, *([log.checkpoint] if log.checkpoint else []), *documents}
        missing = digests - self.store.has(digests)
        if missing:
            DirectoryRegistry.create(self.store.root, mirror_of=self._id)
            with self.store.push() as push:
                for digest in sorted(missing):
                    push.put(BytesIO(blobs.get(digest) or log.fetch(digest)), digest)
                push.flush()

    @contextmanager
    def doubted(self, name: str) -> Iterator[None]:
        """After an IntegrityError in the block, fetch the index file in full the next time, not only if it changed.

        Otherwise a file that a proxy damaged once would pass for the remote's own until the remote changes it.
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
            DirectoryRegistry.create(self.store.root, mirror_of=self._id)
            self.store.make_scratch()
            return self.store.root / "local" / name
        return None

    def _token(self, name: str) -> Path:
        return self.store.root / "local" / "tokens" / f"{name}.json"


class _Document(BufferedReader):
    """A blob of a remote, which is kept if it is small and one `read` gives all of it."""

    def __init__(self, stream: BinaryIO, digest: Digest, documents: dict[Digest, bytes]) -> None:
        super().__init__(cast(RawIOBase, stream))
        self._digest, self._kept = digest, documents

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if len(data) <= MAX_KEPT_BYTES and len(self._kept) < MAX_KEPT and Digest.of(data) == self._digest:
            self._kept[self._digest] = data
        return data


class RemoteReader(ReaderWrapper):
    """A remote whose index files are compared with the known heads and the trust file, and kept in a copy here.

    Args:
        source: the remote.
        known_heads: the newest state that this user saw of each log.
        offline: answers from the copy, without a request, and tells this callback the age of each index file.
    """

    def __init__(
        self,
        source: RegistryReader,
        known_heads: KnownHeads,
        copy: RemoteCopy,
        offline: TellAge | None = None,
    ) -> None:
        super().__init__(source if offline is None else self)
        self._known_heads = known_heads
        self.copy = copy
        self._offline = offline
        self._remote = source
        self._documents = source if offline is None else copy.store
        self._kept: dict[Digest, bytes] = {}

    @property
    def url(self) -> str:
        return self._remote.url

    def blob_url(self, digest: Digest) -> str:
        return self._remote.blob_url(digest)

    @property
    def registry_id(self) -> str:
        return self._documents.registry_id

    @property
    def is_mirror(self) -> bool:
        return self._documents.is_mirror

    def names(self) -> Iterator[str]:
        return self._documents.names()

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        return self._documents.has(digests)

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """The current index file, checked. It is kept if it can be written here."""
        former = self.copy.read_index(name)
        if self._offline is not None:
            if former is not None and name != POLICY_LOG:
                self._offline(name, self.copy.age(name))
            return former
        index = self._known_heads.read_index(self.source, name, cached or former, [self.copy.store])
        if index is not None:
            with suppress(RegError, OSError):
                self.copy.keep(name, index, former)
        return index

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        """A document of the copy if it is intact, or one that was read before; else the remote's blob."""
        with suppress(RegError):
            return BytesIO(read_blob(self.copy.store, digest)[start:])
        if digest in self._kept:
            return BytesIO(self._kept[digest][start:])
        return _Document(self._documents.open_blob(digest, start), digest, self._kept)
