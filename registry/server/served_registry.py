"""The served registry: a local registry as its clients see it.

The digest of an index file is cached with its stat (`scan.mark`); its bytes and its parsed state are cached
by that digest. So a request with a warm cache costs one stat, and no cached value can be wrong. Errors name
no local path.
"""

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.deliver.resolution import Resolution, check_index, check_version_trust, resolve_in
from onnxreg.registry.log import lookup
from onnxreg.registry.log.lookup import read_consistently
from onnxreg.registry.search import scan
from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import BlobKey, blob_path, index_path, keys_of
from onnxreg.registry.store.protocol import MAX_DOCUMENT_BYTES, IndexFile, MissingBlobError, StoredObject
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.registry.trust.checked_reader import CheckedReader
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import SERVED, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.log.state import State
from onnxreg.schema.query.resolve import ResolveRequest

MAX_CACHED_TOKENS = 100_000
"""Models whose index digest is cached: some 30 MB."""
INDEX_CACHE_BYTES = 32 * 2**20
"""Index files in the cache; parsed states of half as many, which need several times their size."""

MAX_CHECKED_VERSIONS = 100_000
"""Versions that are recorded as checked: their summary is that of their manifest."""


class ServedRegistry(DirectoryRegistry):
    """A registry below `root`, for reading; use `open`."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        super().__init__(root, disk)
        self._tokens: LruCache[str, tuple[str, str]] = LruCache(MAX_CACHED_TOKENS)
        self._files: LruCache[str, IndexFile] = LruCache(INDEX_CACHE_BYTES)
        self._states: LruCache[tuple[str, str], State] = LruCache(INDEX_CACHE_BYTES // 2)
        self._checked: LruCache[tuple[str, str], bool] = LruCache(MAX_CHECKED_VERSIONS)

    @property
    def url(self) -> str:
        return SERVED

    def blob_url(self, digest: Digest) -> str:
        """The path of a blob on this server: its plain key, which finds every blob."""
        return f"/{blob_path(digest)}"

    def open_key(self, key: BlobKey) -> BinaryIO:
        with host_errors(f"reading blob {key.digest}"):
            try:
                return open_beneath(self.root, key.path)
            except FileNotFoundError:
                self.read_identity()
                raise MissingBlobError(key.digest, self.url) from None

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        for key in keys_of(digest):
            with suppress(MissingBlobError):
                file = self.open_key(key)
                file.seek(start)
                return file
        raise MissingBlobError(digest, self.url)

    def read_identity(self) -> bytes:
        """The bytes of `registry.json`. HostError if the whole registry is gone."""
        with host_errors("reading registry.json"), open_beneath(self.root, "registry.json") as file:
            return file.read()

    def read_file(self, path: str, cached: StoredObject | None = None) -> StoredObject | None:
        with host_errors(f"reading {path}"):
            try:
                with open_beneath(self.root, path) as file:
                    data = file.read()
            except FileNotFoundError:
                return None
        return data, Digest.of(data).hex

    def open_tagged(self, path: str) -> tuple[BinaryIO, str]:
        """Open a file that is replaced as a whole, with a token of its present bytes. FileNotFoundError if it is absent."""
        file = open_beneath(self.root, path)
        status = os.fstat(file.fileno())
        return file, Digest.of(scan.mark(status).encode()).hex

    def read_index(self, name: str, cached: IndexFile | None = None) -> IndexFile | None:
        with host_errors(f"reading the index of {name}"):
            return self.cached_index(name) or self._read_index(name)

    def cached_index(self, name: str) -> IndexFile | None:
        """The cached index file of a model, if it did not change. Costs one stat."""
        token = self.cached_token(name)
        return None if token is None else self._files.get(token)

    def cached_token(self, name: str) -> str | None:
        """The cached token of a model's index file, if it did not change. Costs one stat."""
        cached = self._tokens.get(name)
        if cached is None:
            return None
        try:
            status = os.lstat(f"{self.root}/{index_path(name)}")
        except OSError:
            return None
        return cached[1] if scan.mark(status) == cached[0] else None

    def _read_index(self, name: str) -> IndexFile | None:
        now = time.time_ns()
        try:
            file = open_beneath(self.root, index_path(name))
        except FileNotFoundError:
            self.read_identity()
            return None
        with file:
            status = os.fstat(file.fileno())
            if status.st_size > MAX_DOCUMENT_BYTES:
                raise IntegrityError(f"the index of {name} is larger than {MAX_DOCUMENT_BYTES} bytes")
            data = file.read()
        index = IndexFile(data, Digest.of(data).hex)
        self._files.put(index.token, index, len(data))
        self._tokens.put(name, (scan.settled_mark(status, now), index.token), 1)
        return index

    def state_of(self, name: str, index: IndexFile | None) -> State:
        """The state in an index file; parsed once. NotFoundError if the model is unknown."""
        if index is None:
            raise NotFoundError(f"there is no model {name} here", "GET /v1/models lists those that are")
        state = self._states.get((name, index.token))
        if state is None:
            state = lookup.state_of(self, name, index)
            self._states.put((name, index.token), state, len(index.data))
        return state

    def policy_token(self) -> str:
        """The token of the log of policies, which may bar a channel; "" if there is none."""
        token = self.cached_token(POLICY_LOG)
        if token is None and (index := self.read_index(POLICY_LOG)) is not None:
            return index.token
        return token or ""

    def resolve(self, request: ResolveRequest) -> tuple[Resolution, str]:
        """Resolve a request, checked as in `resolution.resolve`.

        Also return the token of its index file.
        """

        known_heads = KnownHeads()
        reader = CheckedReader(self, known_heads)

        def read(index: IndexFile | None) -> tuple[Resolution, str]:
            state = self.state_of(request.ref.name, index)
            assert index is not None, "state_of raises if there is no index file"
            resolution = resolve_in(self, state, request.ref, request.query, request.device)
            self._check(index.token, state, resolution.located)
            check_version_trust(reader, request.ref, resolution.located, index, known_heads)
            return resolution, index.token

        return read_consistently(reader, request.ref.name, read)

    def locate(self, name: str, ref_in: Callable[[State], Ref]) -> tuple[State, lookup.LocatedVersion]:
        """Find the version that a ref means, checked as the answers of `resolve`.

        `ref_in` gives the ref, once the state of the model is known.
        """
        known_heads = KnownHeads()
        reader = CheckedReader(self, known_heads)

        def read(index: IndexFile | None) -> tuple[State, lookup.LocatedVersion]:
            state = self.state_of(name, index)
            assert index is not None, "state_of raises without an index file"
            ref = ref_in(state)
            located = lookup.find_in(self, state, ref)
            self._check(index.token, state, located)
            check_version_trust(reader, ref, located, index, known_heads)
            return state, located

        return read_consistently(reader, name, read)

    def _check(self, token: str, state: State, located: lookup.LocatedVersion) -> None:
        """IntegrityError if an index file contradicts the manifest of a version; checked once."""
        key = token, str(located.version)
        if self._checked.get(key) is None:
            check_index(self, state, located)
            self._checked.put(key, True, 1)


_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def open_beneath(root: Path, path: str) -> BinaryIO:
    """Open a regular file below `root`, unbuffered. FileNotFoundError if it does not exist or a part is a
    link.

    Each directory is opened relative to its parent, so that nobody can replace it by a link meanwhile. `path`
    is relative and has no `..`: callers make it from a digest or a model's name.
    """
    *folders, name = path.split("/")
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            below = os.open(folder, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError as error:
        if error.errno in _ABSENT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        raise
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return os.fdopen(descriptor, "rb", buffering=0)
