"""Remotes: other registries by name, URL or path.

`local/remotes.json` has the configured names and, for each URL that was ever used, the first registry id that
it had: another id under the same URL later is an integrity error.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from onnxreg.registry.read.tracking import OfflineReader, TrackedReader, TrackingCopies
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import other_registry
from onnxreg.registry.store.open import absolute, check_scheme, open_url, path_of
from onnxreg.registry.store.protocol import LocalStore, RegistryReader, RegistryStore
from onnxreg.registry.trust.checked_reader import CheckedReader
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import mapping, required, text
from onnxreg.schema.core.errors import (
    Advice,
    ConflictError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    suggest,
)
from onnxreg.schema.core.ref import REGISTRY_ID

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")

Tell = Callable[[str, float], None]


@dataclass
class Remotes:
    """The remotes of one registry, kept in its `local/remotes.json`."""

    registry: DirectoryRegistry
    urls: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, registry: DirectoryRegistry) -> "Remotes":
        data = registry.read_local("remotes.json")
        if data is None:
            return cls(registry)
        try:
            value = mapping(canonical.decode(data, "local/remotes.json"))
            return cls(registry, *(_texts(required(value, key)) for key in ("remotes", "pins")))
        except InputError as error:
            hint = "remove it, then add the remotes again"
            raise IntegrityError(f"local/remotes.json is damaged: {error.message}", hint) from error

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

        self.registry.check_not_foreign()
        self.registry.make_scratch()
        with exclusive(self.registry.root / "local" / "locks" / "remotes.lock"):
            remotes = Remotes.load(self.registry)
            yield remotes
            value = {"remotes": remotes.urls, "pins": remotes.pins}
            data = json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
            self.registry.write_local("remotes.json", data)
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

            remember(store, self.registry)

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
            tracking = TrackingCopies(self.registry, store.registry_id, store.url)
            checked = CheckedReader(store, known_heads or KnownHeads(), tracking.store, is_elsewhere=True)
            return TrackedReader(checked, tracking)
        url = self.url_of(remote)
        tracking = TrackingCopies(self.registry, self.pins.get(url, ""), url)
        if url not in self.pins or not tracking.is_there:
            raise NotFoundError(
                f"nothing was ever remembered of {url}",
                Advice("fetch-index-of", remote=remote or url),
            )
        path = path_of(url)
        store = open_url(url, known_id=self.pins[url]) if path is None else DirectoryRegistry(path)
        return OfflineReader(store, tracking, tell)


def _texts(value: Any) -> dict[str, str]:
    return {key: text(item) for key, item in mapping(value).items()}
