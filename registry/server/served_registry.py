"""The served registry: a local registry as clients see it.

An index file is read again only if its `stat` changed. Answers are cached with the digest of the index file, so they
are never outdated. Errors contain no local path, and links below the root are not followed. Slow questions run in
threads of their own (`Queue`).
"""

import errno
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Generic, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from onnxreg.registry.log.log import LocatedVersion, Log, log_of, read_consistently
from onnxreg.registry.resolution import Resolution, check_version_trust, resolve
from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.server.answers import HttpError
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.directory import DirectoryRegistry, DirectoryStore
from onnxreg.registry.store.protocol import StoredObject, blob_path, index_path
from onnxreg.registry.system import Disk, host_errors
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads, load_trust, trust_digest
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, NotFoundError, RegError
from onnxreg.schema.core.files import FileState
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.query.device import ResolveRequest
from onnxreg.schema.query.expression import limit_steps

MAX_CACHED_BYTES = 32 * 2**20
RETRY_SECONDS = 2  # if too many questions wait, a client may repeat its question after this many seconds

Value = TypeVar("Value")


class Cache(Generic[Value]):
    """A cache that drops the least recently used values. A key must contain all that its value depends on."""

    def __init__(self, size: Callable[[Value], int], max_size: int = MAX_CACHED_BYTES) -> None:
        self._size, self._free = size, max_size
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = Lock()

    def find(self, key: Hashable) -> Value | None:
        with self._lock:
            if (value := self._values.get(key)) is not None:
                self._values.move_to_end(key)
            return value

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key. If the cache lacks it, call `make`, and keep the result if it is not None."""
        if (value := self.find(key)) is not None:
            return value
        value = make()
        with self._lock:
            if key not in self._values and value is not None:
                self._values[key] = value
                self._free -= self._size(value)
            while self._free < 0:
                self._free += self._size(self._values.popitem(last=False)[1])
        return value


class ServedStore(DirectoryStore):
    """The files of a served registry. Files outside of the root are never read."""

    def open_file(self, key: str) -> BinaryIO:
        try:
            return open_beneath(self.root, key)
        except FileNotFoundError:
            if key != "registry.json":
                self.check_readable()
            raise

    def check_readable(self) -> bytes:
        """Read `registry.json`. Raises HostError if the file cannot be read, for example because the disk is gone."""
        with host_errors("reading registry.json"), open_beneath(self.root, "registry.json") as file:
            return file.read()


class ServedRegistry(DirectoryRegistry):
    """A registry in the directory `root`, for reading. Use `open`, not the constructor."""

    store: ServedStore

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        super().__init__(root, disk)
        self.store = ServedStore(root, self.disk, "this registry")  # messages do not name the directory
        self.url = self.store.url
        self._indexes = Cache[StoredObject | None](lambda index: len(index.data) if index else 0)
        self.answers = Cache[bytes](len)
        self._usable_trust: str | None = None  # the digest of the last trust file that could be read

    @property
    def location(self) -> str:
        return f"{self.url} ({Digest.of(super().location.encode()).short})"

    def blob_url(self, digest: Digest) -> str:
        return f"/{blob_path(digest)}"

    def open_tagged(self, path: str) -> tuple[BinaryIO, str]:
        """Open a file. Return it, and a token that changes with it. Raises FileNotFoundError if it is absent."""
        file = self.store.open_file(path)
        return file, Digest.of(str(FileState.of(os.fstat(file.fileno()))).encode()).hex

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
        state, read = self._state(name), partial(super().read_index, name)
        return read() if state in ("", "absent") else self._indexes.get((name, state), read)

    def cached_index(self, name: str) -> StoredObject | None:
        """Return a model's index file if it is in the cache and did not change since. No file is read."""
        return self._indexes.find((name, self._state(name)))

    def _state(self, name: str) -> str:
        """Return a text that changes with the state of a model's index file, or "" if the file changed just now."""
        try:
            return FileState.of(os.lstat(f"{self.root}/{index_path(name)}")).token(time.time_ns())
        except FileNotFoundError:
            return "absent"
        except OSError:
            return ""

    def token(self, name: str) -> str:
        """Return a token that changes with a model's index file, or "" if there is no index file."""
        index = self.read_index(name)
        return "" if index is None else index.token

    def rule_keys(self) -> tuple[str, str]:
        """Return cache keys for the policies and for the trust file. Raises HostError if the trust file is unusable."""
        try:
            if (digest := trust_digest()) != self._usable_trust:
                load_trust()
                self._usable_trust = digest
        except (OSError, RegError) as error:
            raise HostError("the trust file of this server cannot be used") from error
        return self._state(POLICY_LOG) or self.token(POLICY_LOG), digest

    def log_of(self, name: str, index: StoredObject | None) -> Log:
        """Return the log in an index file. Without an index file, raise NotFoundError."""
        if index is None:
            raise _unknown(name)
        return log_of(self, name, index)

    def answer(self, key: Hashable, name: str, make: Callable[[StoredObject | None], bytes]) -> bytes:
        """Return the answer for `key`, cached until the index file of the model `name` changes."""

        def read(index: StoredObject | None) -> bytes:
            return make(None) if index is None else self.answers.get((key, index.token), partial(make, index))

        return read_consistently(self, name, read)

    def find_answer(self, key: tuple[Hashable, ...], name: str) -> bytes | None:
        """Return the answer for `key` and `rule_keys()` if it is in the cache. The index file is not read."""
        index = self.cached_index(name)
        return None if index is None else self.answers.find(((*key, *self.rule_keys()), index.token))

    def resolve(self, request: ResolveRequest) -> Resolution:
        """Resolve a request as `reg resolve` does, and check the manifest of the resolved version."""
        known_heads = KnownHeads()
        reader = CheckedReader(self, known_heads)
        if not self.token(request.ref.name):
            raise _unknown(request.ref.name)
        return resolve(
            reader, request.ref, request.query, request.device, verify=True, known_heads=known_heads
        )

    def locate(self, name: str, ref_in: Callable[[Log], Ref]) -> tuple[Log, LocatedVersion]:
        """Find the version with the ref `ref_in(log)`, and check it as `resolve` does. Return it with the log."""
        known_heads = KnownHeads()
        reader = CheckedReader(self, known_heads)

        def read(index: StoredObject | None) -> tuple[Log, LocatedVersion]:
            log = self.log_of(name, index)
            ref = ref_in(log)
            located = log.find(ref)
            log.check_summary(located)
            check_version_trust(reader, ref, located, index, known_heads)
            return log, located

        return read_consistently(reader, name, read)


class Queue:
    """Answers questions of one kind in threads of its own, so that questions of other kinds need not wait."""

    def __init__(self, threads: int, settings: Settings) -> None:
        self._limiter, self._steps = CapacityLimiter(threads), settings.steps
        self._room = threads + settings.waiting  # counted here: the limiter counts a question only later

    async def run(self, question: Callable[[], Value]) -> Value:
        """Call `question` in a thread.

        Raises HttpError 503 if too many calls wait, InputError if `question` takes more than `settings.steps` steps.
        """
        if self._room == 0:
            hint, retry = f"ask again in {RETRY_SECONDS} seconds", {"Retry-After": str(RETRY_SECONDS)}
            raise HttpError(503, "too many questions wait for an answer", hint, retry)
        self._room -= 1
        try:
            return await run_sync(self._answer, question, limiter=self._limiter)
        finally:
            self._room += 1

    def _answer(self, question: Callable[[], Value]) -> Value:
        with limit_steps(self._steps):
            return question()


class Search:
    """Answers questions about all models, one after the other. The catalog is updated before each answer."""

    def __init__(self, registry: ServedRegistry, settings: Settings) -> None:
        self._registry = registry
        self._catalog = LocalCatalog(registry)
        self._queue = Queue(1, settings)

    async def ask(
        self, question: Callable[[Catalog], bytes], key: Hashable = None, artifacts: bool = False
    ) -> bytes:
        """Answer a question. If `artifacts` is set, load the artifacts into the catalog first.

        If `key` is given, cache the answer until the catalog changes.
        """

        def answer() -> bytes:
            self._registry.store.check_readable()
            catalog = self._catalog.refresh(artifacts=artifacts)
            if key is None:
                return question(catalog)
            return self._registry.answers.get((self, catalog.revision, key), partial(question, catalog))

        return await self._queue.run(answer)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"there is no model {name} here", "GET /v1/models lists those that are")


_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG})
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def open_beneath(root: Path, path: str) -> BinaryIO:
    """Open a regular file below `root`. Raises FileNotFoundError if the file is absent or the path contains a link."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in path.split("/"):  # relative to an open directory, which nobody can replace by a link
            directory, descriptor = descriptor, os.open(part, _FLAGS, dir_fd=descriptor)
            os.close(directory)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
    except OSError as error:
        if error.errno not in _ABSENT:
            os.close(descriptor)
            raise
    os.close(descriptor)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
