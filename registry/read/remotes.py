"""Other registries, by the names that this user gave them here.

All of it is the user's own, in the user's state directory: another writer of a shared registry does not decide where
`origin` is. `remotes.json` has the names by the path of the registry that they are used in, and for each URL that was
ever used the first registry id that it had: another id under the same URL later is an integrity error.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from onnxreg.registry.read.remote_reader import RemoteCopy, RemoteReader, TellAge
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import other_registry
from onnxreg.registry.store.open import absolute, check_scheme, open_url, path_of
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.support.disk import host_errors, read_bounded, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.canonical import Record
from onnxreg.schema.core.errors import (
    ConflictError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    about,
    suggest,
)
from onnxreg.schema.core.ref import REGISTRY_ID

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class _RemotesFile(Record, frozen=True, forbid_unknown_fields=True):
    """`names`: the URL of each remote, by the path of a registry. `pins`: the id of the registry at each URL."""

    names: dict[str, dict[str, str]] = {}
    pins: dict[str, str] = {}

    @classmethod
    def load(cls) -> "_RemotesFile":
        path = remotes_file()
        with host_errors(f"reading {path}"):
            try:
                data = read_bounded(path, MAX_DOCUMENT_BYTES)
            except (FileNotFoundError, NotADirectoryError):
                return cls()
        with about(f"{path} is damaged", IntegrityError, "remove it, then add the remotes again"):
            return cls.decode(data, str(path))


def remotes_file() -> Path:
    """The file of all remotes of this user."""
    return state_directory() / "remotes.json"


@dataclass
class Remotes:
    """The remotes that this user configured in one registry, and the ids of all that the user ever used."""

    registry: DirectoryRegistry
    urls: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, registry: DirectoryRegistry) -> "Remotes":
        file = _RemotesFile.load()
        return cls(registry, dict(file.names.get(_key(registry), {})), dict(file.pins))

    def add(self, name: str, url: str) -> None:
        """Remember a URL or path under a name. ConflictError if the name has another URL."""
        if not _NAME.fullmatch(name):
            raise InputError(f"not a name for a remote: {name!r}", "use letters and digits, such as origin")
        if not url:
            raise InputError(f"remote {name} needs a path or URL", f"reg remote add {name} PATH|URL")
        url = absolute(url)
        check_scheme(url)
        with self._changing() as remotes:
            if remotes.urls.get(name, url) != url:
                raise ConflictError(
                    f"remote {name} is {remotes.urls[name]}", f"`reg remote remove {name}` first"
                )
            remotes.urls[name] = url

    def remove(self, name: str) -> None:
        """Forget a name. NotFoundError if it is unknown."""
        with self._changing() as remotes:
            if name not in remotes.urls:
                raise NotFoundError(f"there is no remote {name}", "see `reg remote list`")
            del remotes.urls[name]

    def unpin(self, registry_id: str) -> list[str]:
        """Forget the URLs of a registry and return them. The next registry at such a URL counts as a new one."""
        urls = sorted(url for url, pin in self.pins.items() if pin == registry_id)
        if urls:
            with self._changing() as remotes:
                remotes.pins = {url: pin for url, pin in remotes.pins.items() if pin != registry_id}
        return urls

    @contextmanager
    def _changing(self) -> Iterator["Remotes"]:
        """Read the file under a lock, yield it, and write it back at the end."""
        from onnxreg.registry.store.directory.scratch import exclusive

        file, key = remotes_file(), _key(self.registry)
        with host_errors(f"writing {file}"), exclusive(file.with_suffix(".lock")):
            remotes = Remotes.load(self.registry)
            yield remotes
            names = {**_RemotesFile.load().names, key: remotes.urls}
            names = {path: urls for path, urls in names.items() if urls}
            data = _RemotesFile(names, remotes.pins).encode()
            _RemotesFile.decode(data, str(file))
            replace_file(file, data)
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
                    "name a path or URL, or give one a name: reg remote add origin PATH|URL",
                )
            raise InputError(
                "no remote is named, and none of several is called origin",
                f"name one of them: {', '.join(sorted(self.urls))}",
            )
        if remote in self.urls:
            return self.urls[remote]
        is_path = "/" in remote or remote in (".", "..") or os.path.lexists(remote)
        if not is_path and ":" not in remote:
            raise NotFoundError(
                f"there is no remote {remote}",
                suggest(remote, self.urls, f"see `reg remote list`; a directory is written ./{remote}"),
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
                f"mount its disk; or, if it was removed for good: reg trust reset {pinned}",
            ) from error
        if pinned not in (None, store.registry_id):
            raise other_registry(store.url, store.registry_id, pinned)
        return store

    def remember(self, remote: str | None, store: RegistryStore) -> None:
        """Record the id of a remote. If this cannot be written, nothing fails."""
        url = self.url_of(remote)
        if url not in self.pins:
            with suppress(InputError, HostError, OSError), self._changing() as remotes:
                remotes.pins[url] = store.registry_id

    def read(
        self, remote: str | None, known_heads: KnownHeads | None = None, offline: TellAge | None = None
    ) -> RemoteReader:
        """Open a remote to read from; with `offline` without a request, see `RemoteReader`."""
        known_heads = known_heads or KnownHeads()
        if offline is None:
            store: RegistryReader = self.open(remote)
            return RemoteReader(store, known_heads, RemoteCopy(store.registry_id, store.url))
        url = self.url_of(remote)
        copy = RemoteCopy(self.pins.get(url, ""), url)
        if url not in self.pins or not copy.store.is_there:
            raise NotFoundError(
                f"nothing was ever remembered of {url}",
                f"fetch what is needed offline: reg fetch-index --remote {quote(remote or url)}",
            )
        path = path_of(url)
        store = open_url(url, known_id=self.pins[url]) if path is None else DirectoryRegistry(path)
        return RemoteReader(store, known_heads, copy, offline)


def _key(registry: DirectoryRegistry) -> str:
    return str(registry.root.resolve())


def check_distinct(remote: RegistryStore, store: RegistryStore) -> None:
    """ConflictError if both are the same registry."""

    def whereabouts(registry: RegistryStore) -> str | Path:
        return registry.root.resolve() if isinstance(registry, DirectoryRegistry) else registry.url

    if whereabouts(remote) == whereabouts(store):
        raise ConflictError(
            "that remote is this registry itself",
            "name another place; to write files: reg --registry OTHER pull REF PLACE --output DIRECTORY",
        )
