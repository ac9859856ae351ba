"""Other registries, as this one knows them: their names and ids, and tracking copies of their logs.

All of it is the user's own, in the user's state directory: another writer of a shared registry does not decide where
`origin` is. `remotes.json` has, by the id of this registry, the configured names and, for each URL that was ever used,
the first registry id that it had: another id under the same URL later is an integrity error.

A tracking copy, in `tracking/<registry id>/`, is a mirror without the files of artifacts: the last index files,
byte by byte, and the sealed parts of their logs. It is the proof behind `via`, it answers `--offline`, and with the
token of an index file, the remote sends the next one only if it changed.
"""

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from onnxreg.registry.log.lookup import read_blob, state_of
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import index_path, other_registry
from onnxreg.registry.store.open import absolute, check_scheme, one_spelling, open_url, path_of
from onnxreg.registry.store.protocol import (
    MAX_DOCUMENT_BYTES,
    IndexFile,
    LocalStore,
    ReaderWrapper,
    RegistryReader,
    RegistryStore,
)
from onnxreg.registry.support.disk import host_errors, read_bounded, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.trust.checked_reader import CheckedReader
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import mapping, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    Advice,
    ConflictError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    suggest,
)
from onnxreg.schema.core.ref import POLICY_LOG, REGISTRY_ID

if TYPE_CHECKING:
    from onnxreg.registry.log.ledger import Ledger

Tell = Callable[[str, float], None]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def _one_spelling(url: str) -> str:
    """See `one_spelling`; a URL that cannot be read stays as it is, until it is opened."""
    with suppress(InputError):
        return one_spelling(url)
    return url


@dataclass
class Remotes:
    """The remotes of one registry that this user configured or used.

    `pins` also has the URLs that were used while no registry was here; a URL of this registry's own comes first.
    """

    registry: DirectoryRegistry
    urls: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, registry: DirectoryRegistry) -> "Remotes":
        everything = _read_remotes()
        own = everything.get(_key(registry), NO_REMOTES)
        pins = {**everything.get("", NO_REMOTES)["pins"], **own["pins"]}
        return cls(
            registry,
            {name: _one_spelling(url) for name, url in own["remotes"].items()},
            {_one_spelling(url): pin for url, pin in pins.items()},
        )

    def add(self, name: str, url: str) -> None:
        """Remember a URL or path under a name. ConflictError if the name has another URL."""
        if not _NAME.fullmatch(name):
            raise InputError(f"not a name for a remote: {name!r}", "use letters and digits, such as origin")
        if not url:
            raise InputError(f"remote {name} needs a path or URL", Advice("give-url", name=name))
        url = absolute(url)
        check_scheme(url)
        with self._changing() as remotes:
            if remotes.urls.get(name, url) != url:
                raise ConflictError(
                    f"remote {name} is {remotes.urls[name]}", Advice("remove-remote", name=name)
                )
            remotes.urls[name] = url

    def remove(self, name: str) -> None:
        """Forget a name. NotFoundError if it is unknown."""
        with self._changing() as remotes:
            if name not in remotes.urls:
                raise NotFoundError(f"there is no remote {name}", Advice("list-remotes"))
            del remotes.urls[name]

    def unpin(self, registry_id: str) -> list[str]:
        """Forget the URLs of a registry and return them. The next registry at such a URL counts as a new one."""
        if registry_id not in self.pins.values():
            return []
        with self._changing() as remotes:
            urls = sorted(url for url, pin in remotes.pins.items() if pin == registry_id)
            remotes.pins = {url: pin for url, pin in remotes.pins.items() if pin != registry_id}
        return urls

    @contextmanager
    def _changing(self) -> Iterator["Remotes"]:
        """Read the file under a lock, yield it, and write it back at the end."""
        from onnxreg.registry.store.directory.scratch import exclusive

        path = remotes_file()
        with host_errors(f"writing {path}"), exclusive(path.with_suffix(".lock")):
            remotes = Remotes.load(self.registry)
            yield remotes
            everything = _read_remotes()
            if common := everything.get(""):
                pins = {url: pin for url, pin in common["pins"].items() if _one_spelling(url) in remotes.pins}
                everything[""] = {**common, "pins": pins}
            everything[_key(self.registry)] = {"remotes": remotes.urls, "pins": remotes.pins}
            data = canonical.encode({"registries": everything}, str(path))
            canonical.decode(data, str(path))
            replace_file(path, data)
        self.urls, self.pins = remotes.urls, remotes.pins

    def url_of(self, remote: str | None) -> str:
        """The URL of a name, URL or path; None is the only remote, or the one with the name origin."""
        if remote is None:
            if len(self.urls) == 1:
                return next(iter(self.urls.values()))
            if "origin" in self.urls:
                return self.urls["origin"]
            if not self.urls:
                raise InputError(
                    "no remote is named, and none is known here",
                    Advice("add-remote"),
                )
            raise InputError(
                "no remote is named, and none of several is called origin",
                f"name one of them: {', '.join(sorted(self.urls))}",
            )
        if remote in self.urls:
            return self.urls[remote]
        if (
            "/" not in remote
            and ":" not in remote
            and remote not in (".", "..")
            and not os.path.lexists(remote)
        ):
            raise NotFoundError(
                f"there is no remote {remote}",
                suggest(remote, self.urls, Advice("list-remotes-or-path", name=remote)),
            )
        return absolute(remote)

    def id_of(self, remote: str) -> str:
        """The id of a registry, given as an id, as a remote that was used before, or as a registry to open."""
        if REGISTRY_ID.fullmatch(remote):
            return remote
        url = self.url_of(remote)
        return self.pins.get(url) or open_url(url).registry_id

    def open(self, remote: str | None, create: bool = False, mirror_of: str | None = None) -> RegistryStore:
        """Open a remote and check that it is the same registry as before; a new one is recorded.

        A registry that was there before and is gone is not created again: perhaps its disk is not mounted.
        """
        store = self.reach(remote, create, mirror_of)
        self.remember(remote, store)
        return store

    def reach(self, remote: str | None, create: bool = False, mirror_of: str | None = None) -> RegistryStore:
        """Open a remote as `open` does, without recording it."""
        url = self.url_of(remote)
        pinned = self.pins.get(url)
        try:
            store = open_url(url, create and pinned is None, mirror_of, pinned)
        except NotFoundError as error:
            if pinned is None:
                raise
            raise NotFoundError(
                f"registry {pinned[:12]}..., which was at {url} before, is gone",
                Advice("mount-or-reset", registry=pinned),
            ) from error
        if pinned not in (None, store.registry_id):
            raise other_registry(store.url, store.registry_id, pinned)
        return store

    def remember(self, remote: str | None, store: RegistryStore) -> None:
        """Record the id of a remote, and that it passed the write check. If this cannot be written, nothing
        fails.
        """
        url = self.url_of(remote)
        if url not in self.pins:
            with suppress(InputError, HostError, OSError), self._changing() as remotes:
                remotes.pins[url] = store.registry_id
        if not isinstance(store, LocalStore):
            from onnxreg.registry.store.require_cas import remember

            remember(store)

    def read(
        self,
        remote: str | None,
        offline: bool = False,
        tell: Tell = lambda name, age: None,
        known_heads: KnownHeads | None = None,
    ) -> RegistryReader:
        """Open a remote to read from, with a tracking copy; `offline` reads that copy only, see
        `OfflineReader`.

        Its index files are compared with `known_heads`.
        """
        if not offline:
            store = self.open(remote)
            tracking = TrackingCopies(store.registry_id, store.url)
            checked = CheckedReader(store, known_heads or KnownHeads(), tracking.store)
            return TrackedReader(checked, tracking)
        url = self.url_of(remote)
        tracking = TrackingCopies(self.pins.get(url, ""), url)
        if url not in self.pins or not tracking.is_there:
            raise NotFoundError(
                f"nothing was ever remembered of {url}",
                Advice("fetch-index-of", remote=remote or url),
            )
        path = path_of(url)
        store = open_url(url, known_id=self.pins[url]) if path is None else DirectoryRegistry(path)
        return OfflineReader(store, tracking, tell)


NO_REMOTES: dict[str, dict[str, str]] = {"remotes": {}, "pins": {}}


def remotes_file() -> Path:
    """The file of all remotes of this user."""
    return state_directory() / "remotes.json"


def _key(registry: DirectoryRegistry) -> str:
    """The id of a registry; "" if there is none yet."""
    return registry.registry_id if registry.is_there else ""


def _read_remotes() -> dict[str, dict[str, dict[str, str]]]:
    """The remotes of each registry, by its id. IntegrityError if the file cannot be read."""
    path = remotes_file()
    with host_errors(f"reading {path}"):
        try:
            data = read_bounded(path, MAX_DOCUMENT_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            return {}
    try:
        registries = mapping(required(mapping(canonical.decode(data, str(path))), "registries"))
        return {
            key: {kind: _texts(required(mapping(value), kind)) for kind in NO_REMOTES}
            for key, value in registries.items()
        }
    except InputError as error:
        raise IntegrityError(
            f"{path} is damaged: {error.message}", "remove it, then add the remotes again"
        ) from error


def _texts(value: Any) -> dict[str, str]:
    return {key: text(item) for key, item in mapping(value).items()}


class TrackingCopies:
    """The tracking copy of one registry in the user's state directory."""

    def __init__(self, registry_id: str, url: str) -> None:
        self._id = registry_id
        self._url = url
        self.store = DirectoryRegistry(state_directory() / "tracking" / registry_id)

    @property
    def is_there(self) -> bool:
        """True if there is a tracking copy."""
        return (self.store.root / "registry.json").exists()

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
            self._create()
            self.store.make_scratch()
            return self.store.root / "local" / name
        return None

    def _create(self) -> None:
        DirectoryRegistry.create(self.store.root, mirror_of=self._id)

    def keep_log(self, ledger: "Ledger", documents: Collection[Digest] = ()) -> None:
        """Verify the chain of a log and keep its sealed parts, and more small documents."""
        for _ in ledger.lines():
            pass
        blobs = {Digest.of(blob): blob for blob in ledger.blobs}
        digests = {*ledger.segments, *([ledger.checkpoint] if ledger.checkpoint else []), *documents}
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
        if index is not None:
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
