"""The served registry: a local registry as its clients see it.

An index file is read again when its stat changed (`mark`), and an answer that follows from it is kept while its
digest is the same: a warm question costs one stat, and no cached value can be wrong. Errors name no local path, and
no link below the root is followed. Questions that cost time run in threads of their own (`Queue`), with a bounded queue
and a budget for each.
"""

import asyncio
import errno
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Generic, TypeVar

from onnxreg.registry.log import lookup
from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.log.lookup import read_consistently
from onnxreg.registry.resolution import Resolution, check_version_trust, resolve
from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.server.answers import HttpError
from onnxreg.registry.server.settings import Limits
from onnxreg.registry.store.directory import DirectoryRegistry, DirectoryStore, mark, settled_mark
from onnxreg.registry.store.layout import blob_path, index_path
from onnxreg.registry.store.protocol import IndexFile
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.registry.trust.trust_file import load_trust, trust_digest
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, NotFoundError, RegError
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.query.expression import limited
from onnxreg.schema.query.resolve import ResolveRequest

MAX_CACHED_BYTES = 32 * 2**20
"""Index files in the cache, and the same again of answers."""
RETRY_SECONDS = 2
"""Seconds after which a client for whom there was no room may come again."""

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """Values by key, each with a token of what it follows from. Beyond `max_bytes` the least recently used go."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._free = max_bytes
        self._items: OrderedDict[Hashable, tuple[str, Value, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, token: str) -> Value | None:
        """The value of a key, if its token is still this one."""
        with self._lock:
            kept_token, value, _ = self._items.get(key, ("", None, 0))
            if value is None or kept_token != token:
                return None
            self._items.move_to_end(key)
            return value

    def put(self, key: Hashable, token: str, value: Value, size: int) -> None:
        with self._lock:
            if (former := self._items.pop(key, None)) is not None:
                self._free += former[2]
            self._items[key] = token, value, size
            self._free -= size
            while self._free < 0:
                self._free += self._items.popitem(last=False)[1][2]


class ServedStore(DirectoryStore):
    """The files of a registry that is served: nothing outside of it is read."""

    def open_file(self, key: str) -> BinaryIO:
        try:
            return open_beneath(self.root, key)
        except FileNotFoundError:
            if key != "registry.json":
                self.check_readable()
            raise

    def check_readable(self) -> bytes:
        """Read `registry.json`. HostError if the whole registry is gone."""
        with host_errors("reading registry.json"), open_beneath(self.root, "registry.json") as file:
            return file.read()


class ServedRegistry(DirectoryRegistry):
    """A registry below `root`, for reading; use `open`."""

    store: ServedStore

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        super().__init__(root, disk)
        self.store = ServedStore(root, self.disk, "this registry")  # messages hide its location
        self._indexes: Cache[IndexFile] = Cache()
        self.answers: Cache[bytes] = Cache()

    @property
    def location(self) -> str:
        return f"{self.url} ({Digest.of(super().location.encode()).short})"

    def blob_url(self, digest: Digest) -> str:
        return f"/{blob_path(digest)}"

    def open_tagged(self, path: str) -> tuple[BinaryIO, str]:
        """Open a file that is replaced as a whole, with a token of its present bytes. FileNotFoundError if it is absent."""
        file = open_beneath(self.root, path)
        return file, Digest.of(mark(os.fstat(file.fileno())).encode()).hex

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        """The index file of a model, from the cache if its stat is the same; None if there is none."""
        now = time.time_ns()
        try:
            status = os.lstat(f"{self.root}/{index_path(name)}")
        except OSError:
            return super().read_index(name)
        index = self._indexes.get(name, mark(status))
        if index is None and (index := super().read_index(name)) is not None:
            self._indexes.put(name, settled_mark(status, now), index, len(index.data))
        return index

    def token(self, name: str) -> str:
        """A text that changes with the index file of a model; empty if there is none."""
        index = self.read_index(name)
        return "" if index is None else index.token

    def rules(self) -> tuple[str, str]:
        """A token of the log of policies, which may bar a channel, and one of the operator's trust file, which must be good."""
        try:
            load_trust()
        except RegError as error:
            raise HostError("the trust file of this server cannot be used") from error
        return self.token(POLICY_LOG), trust_digest()

    def log_of(self, name: str, index: IndexFile | None) -> Log:
        """The log in an index file. NotFoundError if the model is unknown."""
        if index is None:
            raise _unknown(name)
        return lookup.log_of(self, name, index)

    def answer(self, key: Hashable, name: str, make: Callable[[IndexFile | None], bytes]) -> bytes:
        """The answer that follows from `key` and a model's index file, which `make` creates if it is not in the cache."""

        def read(index: IndexFile | None) -> bytes:
            answer = None if index is None else self.answers.get(key, index.token)
            if answer is None:
                answer = make(index)
                if index is not None:
                    self.answers.put(key, index.token, answer, len(answer))
            return answer

        return read_consistently(self, name, read)

    def resolve(self, request: ResolveRequest) -> Resolution:
        """Resolve a request as `reg resolve` does, and check the manifest of the answer."""
        known_heads = KnownHeads()
        reader = CheckedReader(self, known_heads)
        if not self.token(request.ref.name):
            raise _unknown(request.ref.name)
        return resolve(
            reader, request.ref, request.query, request.device, verify=True, known_heads=known_heads
        )

    def locate(self, name: str, ref_in: Callable[[Log], Ref]) -> tuple[Log, LocatedVersion]:
        """Find the version that a ref means, checked as the answers of `resolve`.

        `ref_in` gives the ref, once the log of the model is known.
        """
        known_heads = KnownHeads()
        reader = CheckedReader(self, known_heads)

        def read(index: IndexFile | None) -> tuple[Log, LocatedVersion]:
            log = self.log_of(name, index)
            ref = ref_in(log)
            located = log.find(ref)
            log.check_summary(located)
            check_version_trust(reader, ref, located, index, known_heads)
            return log, located

        return read_consistently(reader, name, read)


class Queue:
    """Runs questions of one kind in `threads` threads, so that other kinds never wait for them."""

    def __init__(self, kind: str, threads: int, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=kind)
        self._room = threads + limits.waiting
        self._steps = limits.steps

    async def run(self, question: Callable[[], Value]) -> Value:
        """Answer a question. HttpError 503 if too many wait; InputError if it takes too many steps."""
        if self._room == 0:
            hint, retry = f"ask again in {RETRY_SECONDS} seconds", {"Retry-After": str(RETRY_SECONDS)}
            raise HttpError(503, "too many questions wait for an answer", hint, retry)
        self._room -= 1
        try:
            return await asyncio.wrap_future(self._pool.submit(self._answer, question))
        finally:
            self._room += 1

    def _answer(self, question: Callable[[], Value]) -> Value:
        with limited(self._steps):
            return question()


class Search:
    """Questions about all models: they wait for each other, and the catalog is brought up to date for each."""

    def __init__(self, registry: ServedRegistry, limits: Limits) -> None:
        self._registry = registry
        self._catalog = LocalCatalog(registry)
        self._queue = Queue("search", 1, limits)

    async def ask(
        self, question: Callable[[Catalog], bytes], key: Hashable = None, artifacts: bool = False
    ) -> bytes:
        """Answer a question; with a `key`, its answer is kept while the catalog is the same. `artifacts`: it has all of them."""

        def answer() -> bytes:
            self._registry.store.check_readable()
            catalog = self._catalog.refresh(artifacts=artifacts)
            answers, token = self._registry.answers, str(catalog.revision)
            value = None if key is None else answers.get((self, key), token)
            if value is None:
                value = question(catalog)
                if key is not None:
                    answers.put((self, key), token, value, len(value))
            return value

        return await self._queue.run(answer)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"there is no model {name} here", "GET /v1/models lists those that are")


_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def open_beneath(root: Path, path: str) -> BinaryIO:
    """Open a regular file below `root`, unbuffered. FileNotFoundError if it does not exist or a part is a link.

    Each directory is opened relative to its parent, so that nobody can replace it by a link meanwhile. `path` has no `..`.
    """
    *folders, name = path.split("/")
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            below = os.open(folder, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        descriptor = os.open(name, _FILE, dir_fd=directory)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb", buffering=0)
        os.close(descriptor)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
    finally:
        os.close(directory)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
