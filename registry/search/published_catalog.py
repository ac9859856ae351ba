"""The catalog that one job publishes beside a registry's tree, as one file; and the questions that readers ask it.

The file is `search/catalog.jsonl.gz`. Readers keep a copy, and fetch it again only if it changed. Everybody who can write to
the place can write anything into it, so its size is bounded before and after unpacking, and nothing that decides about a
version reads it.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from onnxreg.registry.read.remote_reader import RemoteReader
from onnxreg.registry.search.catalog import MAX_LINE_BYTES, Catalog, CatalogError, LaterFormatError
from onnxreg.registry.store.layout import CATALOG, UPGRADE
from onnxreg.registry.store.protocol import (
    MAX_DOCUMENT_BYTES,
    PathReader,
    PathStore,
    RegistryReader,
    RegistryStore,
    StoredObject,
    UnlistedError,
    innermost,
    layers,
)
from onnxreg.registry.support.actor import TIME_FORMAT
from onnxreg.registry.support.disk import read_bounded, replace_file
from onnxreg.schema.core.errors import HostError, InputError, LostRaceError, RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import is_name

COPY = "catalog"
"""The copy of a published catalog, in `local/`: a line with its origin, then the file."""
MAX_SILENT_MODELS = 50
"""Models whose index files are read without a word that there is no catalog."""

Answer = TypeVar("Answer")


class AbsentError(CatalogError):
    """Nobody has published a catalog there."""


class _Origin(msgspec.Struct):
    url: str
    token: str


def fetch(reader: RegistryReader, copy: Path | None, only_models: bool = False) -> tuple[Catalog, str]:
    """Read the published catalog, and the token of its file; it is fetched only if it changed since the copy was made.

    `copy` is None if nothing can be kept here. AbsentError if there is no catalog, CatalogError if it cannot be used; errors of
    the place as they are.
    """
    files = innermost(reader)
    former = _former(reader, copy)
    stored = (
        files.read_file(CATALOG, (b"", former[1]) if former else None)
        if isinstance(files, PathReader)
        else None
    )
    if stored is None:
        raise AbsentError("is not there")
    if former is not None and stored[1] == former[1]:
        stored = former
    elif copy is not None and len(stored[0]) <= MAX_DOCUMENT_BYTES:
        with suppress(OSError, RegError):
            replace_file(copy, msgspec.json.encode(_Origin(reader.url, stored[1])) + b"\n" + stored[0])
    catalog = Catalog.decode(_unpacked(stored[0]), reader.registry_id, only_models)
    if not all(map(is_name, catalog.models)):
        raise CatalogError("has a model without a valid name")
    age_of(catalog.time or "")
    return catalog, stored[1]


def _former(reader: RegistryReader, copy: Path | None) -> StoredObject | None:
    """The file and token of the copy, if it came from this place."""
    with suppress(OSError, RegError, msgspec.MsgspecError):
        first, _, data = (b"" if copy is None else read_bounded(copy, 2 * MAX_DOCUMENT_BYTES)).partition(
            b"\n"
        )
        origin = msgspec.json.decode(first, type=_Origin)
        return (data, origin.token) if origin.url == reader.url else None
    return None


def _unpacked(data: bytes) -> Iterator[bytes]:
    if len(data) > MAX_DOCUMENT_BYTES:
        raise CatalogError("is too large")
    try:
        with gzip.open(BytesIO(data)) as lines:
            while line := lines.readline(MAX_LINE_BYTES + 1):
                yield line
    except (EOFError, OSError, zlib.error) as error:
        raise CatalogError(f"is damaged: {error}") from error


class RemoteCatalog:
    """Questions over all models of a remote: to its published catalog; if that cannot be used, to its index files.

    Args:
        tell: takes a sentence for people.
        fresh: read every index file.
        max_age: the most seconds that the published catalog may be old, None for any.
    """

    def __init__(
        self,
        reader: RegistryReader,
        tell: Callable[[str], None],
        fresh: bool = False,
        max_age: int | None = None,
    ) -> None:
        self._reader = reader
        self._tell = tell
        self._fresh = fresh
        self._max_age = max_age
        self.time: str | None = None
        """The time of the catalog that answered, RFC 3339; None if index files did."""

    def ask(
        self,
        question: Callable[[Catalog], Answer],
        pattern: str = "*",
        artifacts: bool = False,
        progress: Progress = SILENT,
    ) -> Answer:
        """Answer a question by a catalog; with `artifacts` it has those of the models whose name fits."""
        catalog = Catalog(self._reader.registry_id)
        if is_name(pattern):
            catalog.update(self._reader, [pattern], artifacts=artifacts, progress=progress)
            return question(catalog)
        problem: Exception | None = None
        reason = ""
        tracked = (layer for layer in layers(self._reader) if isinstance(layer, RemoteReader))
        copy = next((layer.copy.local_path(COPY) for layer in tracked), None)
        try:
            if not self._fresh:
                published, _ = fetch(self._reader, copy, only_models=not artifacts)
                if self._max_age is not None and age_of(published.time or "") > self._max_age:
                    raise CatalogError("is older than allowed")
                answer = question(published)
                self.time = published.time
                return answer
        except RegError as error:
            problem, reason = error, error.message
        except CatalogError as error:
            problem, reason = error, f"the catalog of {self._reader.url} {error}"
            if copy is not None:
                copy.unlink(missing_ok=True)
        try:
            catalog.update(self._reader, pattern=pattern, artifacts=artifacts, progress=progress)
        except UnlistedError as error:
            if isinstance(problem, RegError):
                raise problem from error
            if problem is None or isinstance(problem, AbsentError):
                raise
            raise UnlistedError(f"{error.message}, and {reason}", error.hint) from error
        if reason and not (isinstance(problem, AbsentError) and len(catalog.models) <= MAX_SILENT_MODELS):
            self._tell(f"{reason}; every index file is read instead")
        return question(catalog)


def age_of(time: str) -> float:
    """Seconds since the time of a catalog, at least 0. CatalogError if it is malformed."""
    try:
        moment = datetime.strptime(time, TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise CatalogError("has no time") from error
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


class CatalogPublication(NamedTuple):
    """The catalog after a run: its time, models and artifacts, the models that `changed`, and the damages of the others.

    `size` is in bytes, None if nothing was written.
    """

    time: str
    models: int
    artifacts: int
    changed: int
    size: int | None
    damages: list[str]


def publish(
    store: RegistryStore, copy: Path | None, if_changed: bool = False, progress: Progress = SILENT
) -> CatalogPublication:
    """Publish the catalog of a registry; with `if_changed` only if a model changed since the last one.

    Only index files whose token changed since then are read (a directory, S3 and the Hub list tokens), and only new manifests.
    `copy` is the file of this machine's copy of the last catalog, None if nothing can be kept. InputError for a mirror, or a
    place that is only read; LostRaceError if another run was faster.
    """
    files = innermost(store)
    if store.is_mirror:
        raise InputError(f"{store.url} is a mirror", "publish at the registry; a mirror carries its catalog")
    if not isinstance(files, PathStore):
        raise InputError(f"{store.url} is only read", "publish where the registry is written")
    token: str | None
    try:
        catalog, token = fetch(store, copy)
        artifacts = sum(1 for _ in catalog.query())
    except LaterFormatError as error:
        raise HostError(f"the catalog of {store.url} {error}", UPGRADE) from error
    except CatalogError:
        damaged = files.read_file(CATALOG)
        catalog, token = Catalog(store.registry_id), damaged[1] if damaged else None
    changed = catalog.update(store, artifacts=True, progress=progress)
    if if_changed and catalog.time is not None and not changed:
        time, data = catalog.time, None
    else:
        time, data = datetime.now(UTC).strftime(TIME_FORMAT), BytesIO()
        with gzip.GzipFile("", "wb", 6, data, mtime=0) as packed:
            packed.writelines(catalog.model_lines(time))
            packed.writelines(catalog.piece_lines())
        if data.tell() > MAX_DOCUMENT_BYTES:
            raise InputError(
                f"the catalog has {data.tell():,} bytes, readers take at most {MAX_DOCUMENT_BYTES:,}",
                "split the registry by organisation",
            )
        if not files.swap_file(CATALOG, data.getvalue(), token):
            raise LostRaceError("another run published a catalog meanwhile", "run one job")
    artifacts = sum(1 for _ in catalog.query())
    size = None if data is None else data.tell()
    return CatalogPublication(
        time, len(catalog.models), artifacts, changed, size, catalog.damages(artifacts=True)
    )
