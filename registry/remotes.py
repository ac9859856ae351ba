"""Registries elsewhere: their names, and opening one by URL, path or name.

`local/remotes.json` holds the configured names and, for each URL that was ever used, the registry id seen there
first: another id under the same URL later is an integrity error.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.identity import other_registry
from onnxreg.registry.storage import Remote, Source
from onnxreg.registry.tracking import Offline, Tracked, Tracking
from onnxreg.registry.trust.heads import Heads
from onnxreg.registry.trust.watched import Watched
from onnxreg.schema import canonical
from onnxreg.schema.errors import (
    ConflictError,
    HostError,
    InputError,
    IntegrityError,
    NotFoundError,
    missing_extra,
    why,
)
from onnxreg.schema.nearest import suggest
from onnxreg.schema.reading import mapping, required, text
from onnxreg.schema.ref import REGISTRY_ID

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_MEMORY: dict[str, Remote] = {}

Tell = Callable[[str, float], None]


def open_url(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> Remote:
    """Open the registry at a URL (`file://`, `s3://`, `https://`, `hf://`, `gs://`, ..., `memory:NAME`) or path.

    `create` makes one where there is none, which may be a mirror of that with this id. `known_id` is the id that was
    there before: a place that asks for it in a request may take it on trust until it reads an index file.
    """
    scheme = _scheme(url)
    if scheme == "memory":
        from onnxreg.registry.backends.memory import memory_remote

        return _MEMORY.setdefault(url, memory_remote(mirror_of, url, mirror_of is not None))
    if scheme == "s3":
        from onnxreg.registry.backends.s3 import s3_remote

        return s3_remote(url, create, mirror_of, known_id)
    if scheme in ("http", "https"):
        from onnxreg.registry.backends.http import http_remote

        return http_remote(url, known_id)
    if scheme == "hf":
        with _needs_extra("hf", "a registry on the Hugging Face Hub"):
            from onnxreg.registry.backends.hub import open_hub
        return open_hub(url, create, mirror_of, known_id)
    _check_scheme(url)
    if scheme != "file" and len(scheme) > 1:
        from onnxreg.registry.backends.filesystem import file_remote

        return file_remote(url, create, mirror_of)
    return _open_path(_path(url), create, mirror_of)


def _open_path(path: Path, create: bool, mirror_of: str | None) -> Remote:
    """The registry in a directory, or in an archive."""
    if path.is_file():
        from onnxreg.registry.backends.archive import open_archive

        return open_archive(path)
    if create and path.suffix == ".onnxreg" and not path.exists():
        raise InputError(f"{path} would be an archive", "`reg archive create` makes one")
    return LocalRemote.create(path, mirror_of=mirror_of) if create else LocalRemote.open(path)


def _check_secret(url: str) -> None:
    """InputError where a URL holds a password or token: it would be written to disk and shown. It is not repeated."""
    parts = urlsplit(url)
    if len(parts.scheme) > 1 and (parts.password is not None or _SECRET.search(parts.query)):
        raise InputError(
            "the URL holds credentials, which would be written to disk and shown",
            "leave them out: each kind of place finds them where its own tools do",
        )


_SECRET = re.compile(r"(?i)(^|&)[^=&]*(token|secret|password|signature|credential)[^=&]*=")


def _check_scheme(url: str) -> None:
    scheme = _scheme(url)
    if scheme == "s3":
        from onnxreg.registry.backends.s3client import Place

        Place.parse(url)
    elif scheme in ("http", "https"):
        from onnxreg.registry.backends import http

        http.check_url(url)
    elif scheme == "hf":
        with _needs_extra("hf", "a registry on the Hugging Face Hub"):
            from onnxreg.registry.backends.hubplace import Place as HubPlace

        HubPlace.parse(url)
    elif scheme not in ("", "file", "memory") and len(scheme) > 1:
        from onnxreg.registry.backends import filesystem

        if scheme not in filesystem.PROTOCOLS:
            known = "s3, https, hf, file, " + ", ".join(sorted(filesystem.PROTOCOLS))
            raise InputError(f"no backend for {scheme}:", f"name a path or a URL of one of {known}")
        filesystem.check_url(url)


@contextmanager
def _needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Where the library of a backend is not installed: a HostError that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra((error.name or "").partition(".")[0], extra, purpose) from None


def _path(place: str) -> Path:
    """The path that a `file://` URL or a path names."""
    parts = urlsplit(place)
    if parts.scheme != "file":
        try:
            return Path(place).expanduser()
        except RuntimeError as error:
            raise InputError(f"{place}: {error}", "write the directory out in full") from error
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InputError(f"{place} names the host {parts.netloc!r}", "write file:///absolute/path")
    return Path(unquote(parts.path))


@dataclass
class Remotes:
    """The remotes of one registry, kept in its `local/remotes.json`."""

    registry: LocalRemote
    urls: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, registry: LocalRemote) -> "Remotes":
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
        url = _absolute(url)
        _check_scheme(url)
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

    @contextmanager
    def _changing(self) -> Iterator["Remotes"]:
        """What is on disk now, alone, and written back at the end."""
        from onnxreg.registry.backends.staging import exclusive

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
        return _absolute(place)

    def id_of(self, place: str) -> str:
        """The id of a registry: given as such, as a remote that was used before, or as a place that is asked."""
        if REGISTRY_ID.fullmatch(place):
            return place
        url = self.url_of(place)
        return self.pins.get(url) or open_url(url).registry_id

    def open(self, place: str | None, create: bool = False, mirror_of: str | None = None) -> Remote:
        """Open a remote and check that it is the registry that was there before; a new one is remembered.

        A registry that was there before and is gone is not made again: its disk may just not be mounted.
        """
        remote = self.reach(place, create, mirror_of)
        self.remember(place, remote)
        return remote

    def reach(self, place: str | None, create: bool = False, mirror_of: str | None = None) -> Remote:
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
                "mount its disk; or, if it was removed for good, take its pin out of local/remotes.json of your registry",
            ) from error
        if pinned not in (None, remote.registry_id):
            raise other_registry(remote.url, remote.registry_id, pinned)
        return remote

    def remember(self, place: str | None, remote: Remote) -> None:
        """Which registry is there, and what is proven of it; where nothing can be written here, that is no failure."""
        url = self.url_of(place)
        if url not in self.pins:
            with suppress(InputError, HostError, OSError), self._changing() as known:
                known.pins[url] = remote.registry_id
        if not isinstance(remote, LocalRemote):
            from onnxreg.registry.backends.proven import remember

            remember(remote, self.registry)

    def read(
        self,
        place: str | None,
        offline: bool = False,
        tell: Tell = lambda name, age: None,
        heads: Heads | None = None,
    ) -> Source:
        """A remote to read from, its index files remembered; `offline` as it was last seen, see `Offline`.

        What it says is held against the known `heads`.
        """
        if not offline:
            remote = self.open(place)
            tracking = Tracking(self.registry, remote.registry_id, remote.url)
            return Tracked(Watched(remote, heads or Heads()), tracking)
        url = self.url_of(place)
        tracking = Tracking(self.registry, self.pins.get(url, ""), url)
        if url not in self.pins or not tracking.is_there:
            raise NotFoundError(
                f"nothing was ever remembered of {url}", "`reg fetch-index` fetches what is needed offline"
            )
        path = _scheme(url) in ("", "file") or len(_scheme(url)) == 1
        remote = LocalRemote(_path(url)) if path else open_url(url, known_id=self.pins[url])
        return Offline(remote, tracking, tell)


def _one_spelling(url: str) -> str:
    """The URL as it is always written: what a place is known by must not depend on a slash at its end."""
    if _scheme(url) != "s3":
        return url
    from onnxreg.registry.backends.s3client import Place

    return Place.parse(url).url


def _texts(value: Any) -> dict[str, str]:
    return {key: text(item) for key, item in mapping(value).items()}


def _scheme(place: str) -> str:
    """The scheme of a URL, "" for a path. InputError for what is neither."""
    if "\0" in place:
        raise InputError(
            f"not a path or URL: {place[:80]!r}", "write a path, s3://bucket/prefix or hf://org/repo"
        )
    try:
        return urlsplit(place).scheme
    except ValueError as error:
        raise InputError(
            f"not a URL: {place[:80]!r}: {why(error)}", "write a path, s3://bucket/prefix or hf://org/repo"
        ) from error


def _absolute(place: str) -> str:
    """Paths are kept absolute, so that a remote means the same from every working directory."""
    if len(_scheme(place)) > 1:
        _check_secret(place)
        return _one_spelling(place)
    return os.path.abspath(_path(place))  # noqa: PTH100
