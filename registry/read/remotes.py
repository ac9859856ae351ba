"""Registries elsewhere: their names, and opening one by name.

`local/remotes.json` holds the configured names and, for each URL that was ever used, the registry id seen there
first: another id under the same URL later is an integrity error.
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
from onnxreg.registry.store.identity import other_registry
from onnxreg.registry.store.open import absolute, check_scheme, open_url, path_of
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore
from onnxreg.registry.trust.checked_source import CheckedReader
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.core import canonical
from onnxreg.schema.core.codec import mapping, required, text
from onnxreg.schema.core.errors import (
    ConflictError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
)
from onnxreg.schema.core.ref import REGISTRY_ID
from onnxreg.schema.core.suggest import suggest

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
        """Remember a URL or path under a name. ConflictError where the name stands for another one."""
        if not _NAME.fullmatch(name):
            raise InputError(f"not a name for a remote: {name!r}", "use letters and digits, such as origin")
        if not url:
            raise InputError(f"remote {name} needs a path or URL", f"reg remote add {name} PATH|URL")
        url = absolute(url)
        check_scheme(url)
        with self._changing() as known:
            if known.urls.get(name, url) != url:
                raise ConflictError(
                    f"remote {name} is {known.urls[name]}", f"`reg remote remove {name}` first"
                )
            known.urls[name] = url

    def remove(self, name: str) -> None:
        """Forget a name. NotFoundError where there is none."""
        with self._changing() as known:
            if name not in known.urls:
                raise NotFoundError(f"there is no remote {name}", "see `reg remote list`")
            del known.urls[name]

    def unpin(self, registry_id: str) -> list[str]:
        """Forget where a registry was; returns the URLs. The next registry that is found there is taken for a new one."""
        if registry_id not in self.pins.values():
            return []
        with self._changing() as known:
            gone = sorted(url for url, pin in known.pins.items() if pin == registry_id)
            known.pins = {url: pin for url, pin in known.pins.items() if pin != registry_id}
        return gone

    @contextmanager
    def _changing(self) -> Iterator["Remotes"]:
        """What is on disk now, alone, and written back at the end."""
        from onnxreg.registry.store.directory.scratch import exclusive

        self.registry.refuse_strangers()
        self.registry.make_scratch()
        with exclusive(self.registry.root / "local" / "locks" / "remotes.lock"):
            known = Remotes.load(self.registry)
            yield known
            value = {"remotes": known.urls, "pins": known.pins}
            data = json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"
            self.registry.write_file("local/remotes.json", data)
        self.urls, self.pins = known.urls, known.pins

    def url_of(self, place: str | None) -> str:
        """The URL that a name, URL or path means; None means the sole remote, or the one called origin."""
        if place is None:
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
        if place in self.urls:
            return self.urls[place]
        if "/" not in place and ":" not in place and place not in (".", "..") and not os.path.lexists(place):
            raise NotFoundError(
                f"there is no remote {place}",
                suggest(place, self.urls, f"see `reg remote list`; a directory is written ./{place}"),
            )
        return absolute(place)

    def id_of(self, place: str) -> str:
        """The id of a registry: given as such, as a remote that was used before, or as a place that is asked."""
        if REGISTRY_ID.fullmatch(place):
            return place
        url = self.url_of(place)
        return self.pins.get(url) or open_url(url).registry_id

    def open(self, place: str | None, create: bool = False, mirror_of: str | None = None) -> RegistryStore:
        """Open a remote and check that it is the registry that was there before; a new one is remembered.

        A registry that was there before and is gone is not made again: its disk may just not be mounted.
        """
        remote = self.reach(place, create, mirror_of)
        self.remember(place, remote)
        return remote

    def reach(self, place: str | None, create: bool = False, mirror_of: str | None = None) -> RegistryStore:
        """As `open`; nothing is written here."""
        url = self.url_of(place)
        pinned = self.pins.get(url)
        try:
            remote = open_url(url, create and pinned is None, mirror_of, pinned)
        except NotFoundError as error:
            if pinned is None:
                raise
            raise NotFoundError(
                f"registry {pinned[:12]}..., which was at {url} before, is gone",
                f"mount its disk; or, if it was removed for good: reg trust reset {pinned}",
            ) from error
        if pinned not in (None, remote.registry_id):
            raise other_registry(remote.url, remote.registry_id, pinned)
        return remote

    def remember(self, place: str | None, remote: RegistryStore) -> None:
        """Which registry is there, and what is proven of it; where nothing can be written here, that is no failure."""
        url = self.url_of(place)
        if url not in self.pins:
            with suppress(InputError, HostError, OSError), self._changing() as known:
                known.pins[url] = remote.registry_id
        if not isinstance(remote, DirectoryRegistry):
            from onnxreg.registry.store.require_cas import remember

            remember(remote, self.registry)

    def read(
        self,
        place: str | None,
        offline: bool = False,
        tell: Tell = lambda name, age: None,
        heads: CheckpointStore | None = None,
    ) -> RegistryReader:
        """A remote to read from, its index files remembered; `offline` as it was last seen, see `OfflineReader`.

        What it says is held against the known `heads`.
        """
        if not offline:
            remote = self.open(place)
            tracking = TrackingCopies(self.registry, remote.registry_id, remote.url)
            return TrackedReader(CheckedReader(remote, heads or CheckpointStore(), tracking.store), tracking)
        url = self.url_of(place)
        tracking = TrackingCopies(self.registry, self.pins.get(url, ""), url)
        if url not in self.pins or not tracking.is_there:
            from shlex import quote

            raise NotFoundError(
                f"nothing was ever remembered of {url}",
                f"fetch what is needed offline: reg fetch-index --remote {quote(place or url)}",
            )
        path = path_of(url)
        remote = open_url(url, known_id=self.pins[url]) if path is None else DirectoryRegistry(path)
        return OfflineReader(remote, tracking, tell)


def _texts(value: Any) -> dict[str, str]:
    return {key: text(item) for key, item in mapping(value).items()}
