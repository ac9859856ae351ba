"""The registry that is served: a local one, seen from outside.

The digest of an index file is remembered with what a stat tells of the file (`scan.mark`), its bytes and what was parsed
from them by that digest: so a warm question costs one stat, and nothing that is remembered can be wrong. Errors name no
local path.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from onnxreg.registry.deliver.trusted_read import check_version_trust
from onnxreg.registry.log import lookup
from onnxreg.registry.read import resolution as resolving
from onnxreg.registry.search import scan
from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.tree_files import open_beneath
from onnxreg.registry.store.blobs import steady
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import BlobKey, blob_path, index_path, keys_of
from onnxreg.registry.store.protocol import MAX_DOCUMENT, IndexFile, MissingBlobError
from onnxreg.registry.support.disk import Disk, host_errors
from onnxreg.registry.trust.checked_source import CheckedReader
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import SERVED, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.log.state import State
from onnxreg.schema.query.request import ResolveRequest

MODELS = 100_000
"""How many models' digests are remembered: some 30 MB."""
REMEMBERED = 32 * 2**20
"""Bytes of index files that are kept, and half as many whose parsed states are, which take several times their room."""

CHECKED = 100_000
"""So many versions are remembered whose summaries are those of their manifests."""


class ServedRegistry(DirectoryRegistry):
    """A registry below `root`, for reading; use `open`."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        super().__init__(root, disk)
        self._tokens: LruCache[str, tuple[str, str]] = LruCache(MODELS)
        self._files: LruCache[str, IndexFile] = LruCache(REMEMBERED)
        self._states: LruCache[tuple[str, str], State] = LruCache(REMEMBERED // 2)
        self._checked: LruCache[tuple[str, str], bool] = LruCache(CHECKED)

    @property
    def url(self) -> str:
        return SERVED

    def blob_url(self, digest: Digest) -> str:
        """From the server's root on: the plain key, under which the server finds every blob."""
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
        """The bytes of `registry.json`. HostError where the registry is gone, in which nothing is merely missing."""
        with host_errors("reading registry.json"), open_beneath(self.root, "registry.json") as file:
            return file.read()

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        with host_errors(f"reading the index of {name}"):
            return self.held_index(name) or self._read_index(name)

    def held_index(self, name: str) -> IndexFile | None:
        """The index file of a model, where it is kept and the same now. Costs one stat."""
        token = self.held_token(name)
        return None if token is None else self._files.get(token)

    def held_token(self, name: str) -> str | None:
        """The token of a model's index file, where it was read before and is the same now. Costs one stat."""
        found = self._tokens.get(name)
        if found is None:
            return None
        try:
            status = os.lstat(f"{self.root}/{index_path(name)}")
        except OSError:
            return None
        return found[1] if scan.mark(status) == found[0] else None

    def _read_index(self, name: str) -> IndexFile | None:
        now = time.time_ns()
        try:
            file = open_beneath(self.root, index_path(name))
        except FileNotFoundError:
            self.read_identity()
            return None
        with file:
            status = os.fstat(file.fileno())
            if status.st_size > MAX_DOCUMENT:
                raise IntegrityError(f"the index of {name} is larger than {MAX_DOCUMENT} bytes")
            data = file.read()
        index = IndexFile(data, Digest.of(data).hex)
        self._files.put(index.token, index, len(data))
        self._tokens.put(name, (scan.settled_mark(status, now), index.token), 1)
        return index

    def state_of(self, name: str, index: IndexFile | None) -> State:
        """The state in an index file; parsed once. NotFoundError where the model is unknown."""
        if index is None:
            raise NotFoundError(f"there is no model {name} here", "GET /v1/models lists those that are")
        state = self._states.get((name, index.token))
        if state is None:
            state = lookup.state_of(self, name, index)
            self._states.put((name, index.token), state, len(index.data))
        return state

    def policy_token(self) -> str:
        """Of the log of policies, by which a channel may be barred; "" where there is none."""
        held = self.held_token(POLICY_LOG)
        if held is None and (index := self.read_index(POLICY_LOG)) is not None:
            return index.token
        return held or ""

    def resolve(self, request: ResolveRequest) -> tuple[resolving.Resolution, str]:
        """The answer to a request, and the token of the index file that it comes from; as `belief.resolve`."""

        heads = CheckpointStore()
        place = CheckedReader(self, heads)

        def read(index: IndexFile | None) -> tuple[resolving.Resolution, str]:
            state = self.state_of(request.ref.name, index)
            assert index is not None, "state_of raises where there is no index file"
            resolution = resolving.resolve_in(self, state, request.ref, request.query, request.device)
            self._check(index.token, state, resolution.found)
            check_version_trust(place, request.ref, resolution.found, index, heads)
            return resolution, index.token

        return steady(place, request.ref.name, read)

    def _check(self, token: str, state: State, found: lookup.LocatedVersion) -> None:
        """IntegrityError where an index file says other things of a version than its manifest does; read once."""
        key = token, str(found.version)
        if self._checked.get(key) is None:
            resolving.check_index(self, state, found)
            self._checked.put(key, True, 1)
