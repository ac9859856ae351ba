"""Open registries by URL or path, and remotes also by name. Files that are read from a remote are checked, and copied.

All files are in the user's state directory. `remotes.json` has the names and URLs of the remotes, and the id of the
registry that was first seen at each URL. If the URL has another id later, an error is raised. `tracking/<registry id>/`
is a copy of a remote for offline use: its last index files and the sealed parts of their logs, without artifacts.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from shlex import quote
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

from onnxreg.registry.log.log import Log, read_blob
from onnxreg.registry.store.directory import DirectoryRegistry, exclusive
from onnxreg.registry.store.protocol import (
    MissingBlobError,
    RegistryReader,
    RegistryStore,
    StoredObject,
    index_path,
    open_registry,
    other_registry,
)
from onnxreg.registry.system import host_errors, path_text, read_bounded, replace_file, state_directory
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Digest, Record
from onnxreg.schema.core.errors import (
    ConflictError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    about,
    hub_library,
    missing_extra,
    suggest,
    why,
)
from onnxreg.schema.core.ref import REGISTRY_ID

MAX_KEPT, MAX_KEPT_BYTES = 64, 2**18
"""A reader keeps at most `MAX_KEPT` documents of a remote in memory, each of at most `MAX_KEPT_BYTES` bytes."""
BUCKETS = ("s3", "gs", "az")
SPELLINGS = "write a path, s3://bucket/prefix or hf://org/repo"
_SECRET = re.compile(r"(?i)(^|&)[^=&]*(token|secret|password|signature|credential)[^=&]*=")
TellAge = Callable[[str, float], None]
"""A function that is called with a model's name and the age of the model's index file in seconds."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def open_url(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> RegistryStore:
    """Open the registry at a URL (`file://`, `s3://`, `https://`, `hf://`, ...) or path.

    If `create` is set, a missing registry is made. If `mirror_of` is given too, it is made as a mirror of the registry
    with this id. `known_id` is the registry's id at the last use. It saves a request, and is checked when the first
    index file is read.
    """
    scheme = _scheme(url)
    if scheme in BUCKETS:
        try:
            from onnxreg.registry.store.bucket import BucketStore
        except ModuleNotFoundError as error:
            extra = "s3" if scheme == "s3" else "bucket"
            raise missing_extra(error.name or "obstore", extra, f"a registry at {scheme}://") from None
        return open_registry(BucketStore(url), create, mirror_of, known_id)
    if scheme in ("http", "https"):
        from onnxreg.registry.store.requests import HttpStore

        return open_registry(HttpStore(url), known_id=known_id)
    if scheme == "hf":
        with hub_library("a registry on the Hugging Face Hub"):
            from onnxreg.registry.store.hub import open_hub
        return open_hub(url, create, mirror_of, known_id)
    path = path_of(url)
    if path is None:
        from onnxreg.registry.store.fsspec_store import file_remote

        return file_remote(url, create, mirror_of, known_id)
    try:
        if path.is_file():
            from onnxreg.registry.archive import open_archive

            return open_archive(path)
        if create and path.suffix == ".onnxreg" and not path.exists():
            raise InputError(f"{path} would be an archive", "`reg archive create` makes one")
        return DirectoryRegistry.create(path, mirror_of=mirror_of) if create else DirectoryRegistry.open(path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise InputError(f"{url[:80]}... is too long for a path", "name a shorter path") from error


def path_of(address: str) -> Path | None:
    """Return the path of an address that is a path or a `file://` URL. Return None for any other URL."""
    scheme, parts = _scheme(address), urlsplit(address)
    if len(scheme) <= 1:  # a path, maybe with a drive of Windows
        try:
            return Path(address).expanduser()
        except RuntimeError as error:
            raise InputError(f"{address}: {error}", "write the directory out in full") from error
    if scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InputError(f"{address} names the host {parts.netloc!r}", "write file:///absolute/path")
    return Path(unquote(parts.path, errors="surrogateescape"))


def _scheme(address: str) -> str:
    if "\0" in address:
        raise InputError(f"not a path or URL: {address[:80]!r}", SPELLINGS)
    try:
        return urlsplit(address).scheme
    except ValueError as error:
        raise InputError(f"not a URL: {address[:80]!r}: {why(error)}", SPELLINGS) from error


def absolute(address: str) -> str:
    """Return an address as an absolute path or a normalized URL. Raises InputError if a URL contains a secret."""
    parts = urlsplit(address) if len(_scheme(address)) > 1 else None
    if parts and (parts.password is not None or _SECRET.search(parts.query)):
        hint = "leave them out: each kind of place finds them where its own tools do"
        raise InputError("the URL holds credentials, which would be written to disk and shown", hint)
    path = path_of(address)
    if parts is None and path is not None:
        return path_text(Path(os.path.abspath(path)))  # noqa: PTH100
    if parts and parts.scheme in BUCKETS:
        from onnxreg.registry.store.bucket_url import BucketUrl

        return BucketUrl.parse(address).url
    base, mark, options = address.partition("?")
    return re.sub(r"(?<=[^:/])/+$", "", base) + mark + options


class _Token(Record, frozen=True):
    """The token of an index file in a `RemoteCopy`. With the token, a remote need not send an unchanged file again."""

    index: str  # the digest of an index file, in hex
    token: str  # the token that the remote sent with this file
    url: str  # the URL of the remote


class RemoteCopy:
    """The local copy of a remote for offline use (`tracking/<registry id>`)."""

    def __init__(self, registry_id: str, url: str) -> None:
        self._id, self.url = registry_id, url
        self.store = DirectoryRegistry(state_directory() / "tracking" / registry_id)

    def read_index(self, name: str) -> StoredObject | None:
        """Return the copy of an index file, with the token that the remote gave to these bytes ("" if unknown)."""
        if (index := self.store.read_index(name)) is None:
            return None
        with suppress(InputError):
            token = _Token.decode(self.store.store.read(f"local/tokens/{name}.json") or b"", "token")
            if (token.index, token.url) == (index.token, self.url):
                return StoredObject(index.data, token.token)
        return StoredObject(index.data, "")

    def age(self, name: str) -> float:
        """Return the seconds since the remote last confirmed the index file."""
        try:
            return abs(time.time() - self._token(name).stat().st_mtime)
        except OSError:
            raise NotFoundError(f"{name} was never seen there", "`reg index fetch` fetches it") from None

    def keep(self, name: str, index: StoredObject, former: StoredObject | None = None) -> None:
        """Store the current index file of the remote. `former` is the stored copy, if the caller just read it."""
        if index == (former or self.read_index(name)):
            with host_errors(f"remembering the index of {name}"):
                os.utime(self._token(name))
            return
        self._create()
        token = _Token(Digest.of(index.data).hex, index.token, self.url)
        self.store.write_file(f"local/tokens/{name}.json", token.encode())
        self.store.write_file(index_path(name), index.data)

    def keep_log(self, log: Log, documents: Collection[Digest] = ()) -> None:
        """Verify the chain of a log, and store its segments, its checkpoint and these small documents."""
        for _ in log.lines():
            pass
        blobs = {Digest.of(blob): blob for blob in log.blobs}
        digests = {*log.segments, *([log.checkpoint] if log.checkpoint else []), *documents}
        if missing := sorted(digests - self.store.has(digests)):
            self._create()
            with self.store.push() as push:
                for digest in missing:
                    push.put(BytesIO(blobs.get(digest) or log.fetch(digest)), digest)
                push.flush()

    @contextmanager
    def refetch_after_error(self, name: str) -> Iterator[None]:
        """A context. After an IntegrityError in it, the next read of the index file of `name` requests the whole file,
        even if it has not changed.
        """
        try:
            yield
        except IntegrityError:
            with suppress(RegError, OSError):
                if self._token(name).exists():
                    self.store.write_file(f"local/tokens/{name}.json", b"{}")
            raise

    def local_path(self, name: str) -> Path | None:
        """Return the path for the cached file `name`, or None if no file can be written. Others may delete the file."""
        with suppress(RegError, OSError):
            self._create()
            self.store.store.make_scratch()
            return self.store.root / "local" / name
        return None

    def _create(self) -> None:
        DirectoryRegistry.create(self.store.root, mirror_of=self._id)

    def _token(self, name: str) -> Path:
        return self.store.root / "local" / "tokens" / f"{name}.json"


class _Document(BufferedReader):
    """A stream over a blob of a remote. A small blob that is read in one `read` is added to `documents`."""

    def __init__(self, stream: BinaryIO, digest: Digest, documents: dict[Digest, bytes]) -> None:
        super().__init__(cast(RawIOBase, stream))
        self._digest, self._documents = digest, documents

    def read(self, size: int | None = -1, /) -> bytes:
        data, documents = super().read(size), self._documents
        if len(data) <= MAX_KEPT_BYTES and len(documents) < MAX_KEPT and Digest.of(data) == self._digest:
            documents[self._digest] = data
        return data


class RemoteReader(CheckedReader):
    """Reads a remote. Index files are checked against known heads and trust file, and copied for offline use."""

    def __init__(self, source: RegistryReader, known_heads: KnownHeads) -> None:
        super().__init__(source, known_heads)
        self.copy = RemoteCopy(source.registry_id, source.url)
        self._documents: dict[Digest, bytes] = {}

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
        former = self.copy.read_index(name)
        index = self._known_heads.read_index(self.source, name, cached or former, [self.copy.store])
        if index is not None:
            with suppress(RegError, OSError):
                self.copy.keep(name, index, former)
        return index

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        with suppress(RegError):
            return BytesIO(read_blob(self.copy.store, digest)[start:])
        if digest in self._documents:
            return BytesIO(self._documents[digest][start:])
        return _Document(self.source.open_blob(digest, start), digest, self._documents)


class OfflineReader(CheckedReader):
    """Reads the local copy of a remote, without requests. Logs must have the signatures that the trust file requires.
    For each index file that is read, `tell` is called with the model's name and the file's age in seconds.
    """

    def __init__(self, remote: RegistryReader, copy: RemoteCopy, heads: KnownHeads, tell: TellAge) -> None:
        super().__init__(copy.store, heads)
        self.url, self._remote, self._copy, self._tell = remote.url, remote, copy, tell

    def blob_url(self, digest: Digest) -> str:
        return self._remote.blob_url(digest)

    def read_index(self, name: str, cached: StoredObject | None = None) -> StoredObject | None:
        index = self._copy.read_index(name)
        if index is not None:
            self._known_heads.enforce(self, name, index)
            self._tell(name, self._copy.age(name))
        return index

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        with suppress(MissingBlobError):
            return super().open_blob(digest, start)
        error = MissingBlobError(digest, f"the local copy of {self.url}")
        error.family, error.hint = "remote", "run `reg index fetch`; for an old version, leave --offline out"
        raise error


class _RemotesFile(Record, frozen=True, forbid_unknown_fields=True):
    """The content of `remotes.json`.

    `names[path]` has the remotes of the registry at `path`: their URLs by name. `pins` has the id of the registry at
    each URL.
    """

    names: dict[str, dict[str, str]] = {}
    pins: dict[str, str] = {}


class Remotes:
    """The remotes of a registry, as this user named them.

    `urls` has their URLs by name. `pins` has the id of the registry at each URL.
    """

    def __init__(self, registry: DirectoryRegistry) -> None:
        self.registry, self._file = registry, state_directory() / "remotes.json"
        self._read()

    def _read(self) -> None:
        path, data = self._file, b"{}"
        with host_errors(f"reading {path}"), suppress(FileNotFoundError, NotADirectoryError):
            data = read_bounded(path, MAX_DOCUMENT_BYTES)
        with about(f"{path} is damaged", IntegrityError, "remove it, then add the remotes again"):
            file = _RemotesFile.decode(data, str(path))
        self._names, self.pins = file.names, file.pins
        self.urls = self._names.get(str(self.registry.root.resolve()), {})

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A context that locks `remotes.json` and reads it again. At the end, the changed remotes are written."""
        with host_errors(f"writing {self._file}"), exclusive(self._file.with_suffix(".lock")):
            self._read()
            yield
            names = {**self._names, str(self.registry.root.resolve()): self.urls}
            data = _RemotesFile({path: urls for path, urls in names.items() if urls}, self.pins).encode()
            _RemotesFile.decode(data, str(self._file))
            replace_file(self._file, data)

    def add(self, name: str, url: str) -> None:
        """Add a remote: a name for a URL or path. Raise ConflictError if the name has another URL already."""
        if not _NAME.fullmatch(name):
            raise InputError(f"not a name for a remote: {name!r}", "use letters and digits, such as origin")
        if not url:
            raise InputError(f"remote {name} needs a path or URL", f"reg remote add {name} PATH|URL")
        url = absolute(url)
        with self._changing():
            if (present := self.urls.setdefault(name, url)) != url:
                raise ConflictError(f"remote {name} is {present}", f"`reg remote remove {name}` first")

    def remove(self, name: str) -> None:
        with self._changing():
            if self.urls.pop(name, None) is None:
                near = suggest(name, self.urls, "see `reg remote list`")
                raise NotFoundError(f"there is no remote {name}", near)

    def unpin(self, registry_id: str) -> list[str]:
        """Forget the URLs at which a registry was seen, so that another registry may be there. Return these URLs."""
        urls = sorted(url for url, pin in self.pins.items() if pin == registry_id)
        if urls:
            with self._changing():
                self.pins = {url: pin for url, pin in self.pins.items() if pin != registry_id}
        return urls

    def url_of(self, remote: str | None) -> str:
        """Return the URL of a remote (a name, URL or path). None means the only remote or, among several, `origin`."""
        if remote is None and len(self.urls) == 1:
            return next(iter(self.urls.values()))
        if remote is None and "origin" not in self.urls:
            lack = "here is called origin" if self.urls else "is known here"
            names = f"name one of them: {', '.join(sorted(self.urls))}"
            first = "name a path or URL, or give one a name: reg remote add origin PATH|URL"
            raise InputError(f"no remote is named, and none {lack}", names if self.urls else first)
        remote = "origin" if remote is None else remote
        if remote in self.urls:
            return self.urls[remote]
        if not (":" in remote or "/" in remote or remote in (".", "..") or os.path.lexists(remote)):
            names = ", ".join(sorted(self.urls)) or "none"
            hint = f"the remotes of this registry: {names}; a directory is written ./{remote}"
            raise NotFoundError(f"there is no remote {remote}", suggest(remote, self.urls, hint))
        return absolute(remote)

    def id_of(self, remote: str) -> str:
        """Return the id of a registry, given as an id or as a remote. If the remote was never used before, open it."""
        if REGISTRY_ID.fullmatch(remote):
            return remote
        url = self.url_of(remote)
        return self.pins.get(url) or open_url(url).registry_id

    def open(self, remote: str | None, create: bool = False, mirror_of: str | None = None) -> RegistryStore:
        """Open a remote and check its registry id, or record the id if the remote is new."""
        store = self.reach(remote, create, mirror_of)
        self.remember(store, remote)
        return store

    def remember(self, store: RegistryStore, remote: str | None) -> None:
        """Record the registry id of a remote in `remotes.json`, if the file can be written."""
        url = self.url_of(remote)
        if url not in self.pins:
            with suppress(InputError, HostError, OSError), self._changing():
                self.pins[url] = store.registry_id

    def reach(self, remote: str | None, create: bool = False, mirror_of: str | None = None) -> RegistryStore:
        """Open a remote and check its registry id, if an id is recorded."""
        url = self.url_of(remote)
        pinned = self.pins.get(url)
        try:
            # where a registry was seen before, none is made: its disk may only be unmounted
            store = open_url(url, create and pinned is None, mirror_of, pinned)
        except NotFoundError as error:
            if pinned is None:
                raise
            raise NotFoundError(
                f"registry {pinned[:12]}..., which was at {url} before, is gone",
                f"mount its disk; or, if it was removed for good: reg trust reset {pinned}",
            ) from error
        if pinned not in (None, store.registry_id):
            raise other_registry(store.url, store.registry_id, pinned)
        return store

    def read(
        self, remote: str | None, known_heads: KnownHeads | None = None, offline: TellAge | None = None
    ) -> RemoteReader | OfflineReader:
        """Open a remote for reading.

        If `offline` is given, open the local copy of the remote. Then `offline` is called with the age of each index
        file.
        """
        if offline is None:
            return RemoteReader(self.open(remote), known_heads or KnownHeads())
        url = self.url_of(remote)
        copy = RemoteCopy(self.pins.get(url, ""), url)
        if url not in self.pins or not copy.store.is_there:
            hint = f"fetch what is needed offline: reg index fetch --remote {quote(remote or url)}"
            raise NotFoundError(f"nothing was ever remembered of {url}", hint)
        path = path_of(url)
        store = open_url(url, known_id=self.pins[url]) if path is None else DirectoryRegistry(path)
        return OfflineReader(store, copy, known_heads or KnownHeads(), offline)


def check_distinct(remote: RegistryStore, store: RegistryStore) -> None:
    """Raise ConflictError if a remote is the registry `store` itself."""
    both = (remote, store)
    places = [item.root.resolve() if isinstance(item, DirectoryRegistry) else item.url for item in both]
    if places[0] == places[1]:
        hint = "name another place; to write files: reg --registry OTHER pull REF PLACE --output DIRECTORY"
        raise ConflictError("that remote is this registry itself", hint)
