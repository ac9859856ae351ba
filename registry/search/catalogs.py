"""Store the catalog of a registry in two places: in `local/` for this machine, and as a published file for all readers.

If a catalog is missing or damaged, it is made again from the index files. Users who may write to the registry can write
any bytes into the published file, so its size is limited before and after unpacking.
"""

import gzip
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import msgspec

from onnxreg.registry.remotes import RemoteReader
from onnxreg.registry.search.catalog import Catalog, CatalogError, LaterFormatError, read_lines
from onnxreg.registry.store import protocol
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.system import TIME_FORMAT, open_regular, read_bounded, replace_file
from onnxreg.schema.core.bounds import MAX_CATALOG_BYTES, MAX_DOCUMENT_BYTES
from onnxreg.schema.core.errors import HostError, InputError, LostRaceError, RegError, RemoteError
from onnxreg.schema.core.ref import is_name
from onnxreg.schema.core.units import SILENT, Progress

MODELS, PIECES = "catalog-models.jsonl", "catalog-artifacts.jsonl"
"""The files in `local/` for the two parts of a catalog. `reg ls` needs only the first file."""
COPY = "catalog"
"""The file in `local/` with the copy of a published catalog. Its first line has the registry's URL and the catalog's token."""
MAX_LOCAL_BYTES = 2**30


class LocalCatalog:
    """The catalog of a local registry. It is stored in `local/`, or in memory if that folder cannot be written."""

    def __init__(self, store: DirectoryRegistry) -> None:
        self._store = store
        self._catalog: Catalog | None = None
        self._saved = -1
        self._has_pieces = False

    def refresh(self, pattern: str = "*", artifacts: bool = False, progress: Progress = SILENT) -> Catalog:
        """Update and return the catalog. With `artifacts`, it includes the artifacts of models that match `pattern`."""
        catalog = self._catalog
        if catalog is None:
            catalog = Catalog(self._store.registry_id)
            with suppress(CatalogError, OSError, RegError):
                catalog = Catalog.decode(self._lines(MODELS), self._store.registry_id)
                self._saved = catalog.revision
            self._catalog = catalog
        if artifacts and not self._has_pieces:
            with suppress(CatalogError, OSError, RegError):
                catalog.add_pieces(self._lines(PIECES))
            self._has_pieces = True
        catalog.update(self._store, pattern=pattern, artifacts=artifacts, progress=progress)
        if catalog.revision != self._saved:
            self._saved = catalog.revision
            with suppress(OSError, RegError):
                self._store.write_file(f"local/{MODELS}", b"".join(catalog.model_lines()))
                if self._has_pieces:
                    self._store.write_file(f"local/{PIECES}", b"".join(catalog.piece_lines()))
        return catalog

    def _lines(self, name: str) -> Iterator[bytes]:
        with open_regular(self._store.root / "local" / name) as file:
            yield from read_lines(file.readline, MAX_LOCAL_BYTES)


def read_remote(
    reader: protocol.RegistryReader,
    tell: Callable[[str], None],
    pattern: str = "*",
    artifacts: bool = False,
    progress: Progress = SILENT,
    max_age: int | None = None,
) -> Catalog:
    """Return the published catalog of a remote. If it cannot be used, make a catalog from all index files.

    If `pattern` is a name, only the index file of this model is read. `tell` gets a sentence for the user if the
    published catalog cannot be used. If `artifacts` is set, the artifacts of matching models are read too. `max_age` is
    the maximum age of the published catalog in seconds. 0 ignores the catalog, and None allows any age.
    """
    catalog = Catalog(reader.registry_id)
    problem: RegError | None = None
    if is_name(pattern):
        catalog.update(reader, [pattern], artifacts=artifacts, progress=progress)
        return catalog
    copies = (
        layer.copy.local_path(COPY) for layer in protocol.layers(reader) if isinstance(layer, RemoteReader)
    )
    copy = next(copies, None)
    if max_age != 0:
        try:
            if (stored := _fetch(reader, copy)) is not None:
                published = _decoded(stored, reader.registry_id, artifacts)
                if max_age is None or age_of(published.time) <= max_age:
                    return published
                problem = RemoteError(f"the catalog of {reader.url} is older than allowed")
        except RegError as error:
            problem = error
        except CatalogError as error:
            problem = RemoteError(f"the catalog of {reader.url} {error}")
            if copy is not None:
                with suppress(OSError):
                    copy.unlink()
    try:
        catalog.update(reader, pattern=pattern, artifacts=artifacts, progress=progress)
    except protocol.UnlistedError as error:
        raise problem or error from error
    if problem is not None:
        tell(f"{problem.message}; every index file is read instead")
    return catalog


def _fetch(reader: protocol.RegistryReader, copy: Path | None) -> protocol.StoredObject | None:
    """Return the published catalog with its token, or None if there is none. If `copy` is current, return the copy."""
    files, former = protocol.innermost(reader), None
    if copy is not None:
        with suppress(OSError, RegError, msgspec.MsgspecError):
            first, _, data = read_bounded(copy, 2 * MAX_DOCUMENT_BYTES).partition(b"\n")
            url, token = msgspec.json.decode(first, type=tuple[str, str])  # the place and token of the copy
            former = protocol.StoredObject(data, token) if url == reader.url else None
    stored = files.read_file(protocol.CATALOG, protocol.StoredObject(b"", former.token) if former else None)
    if stored is None or (former is not None and stored.token == former.token):
        return stored and former
    if copy is not None and len(stored.data) <= MAX_DOCUMENT_BYTES:
        with suppress(OSError, RegError):
            replace_file(copy, msgspec.json.encode((reader.url, stored.token)) + b"\n" + stored.data)
    return stored


def _decoded(stored: protocol.StoredObject, registry_id: str, artifacts: bool = True) -> Catalog:
    if len(stored.data) > MAX_DOCUMENT_BYTES:
        raise CatalogError("is too large")
    with gzip.open(BytesIO(stored.data)) as file:
        lines = read_lines(file.readline, MAX_CATALOG_BYTES)
        catalog = Catalog.decode(lines, registry_id)
        if not all(map(is_name, catalog.models)):
            raise CatalogError("has a model without a valid name")
        age_of(catalog.time)
        if artifacts:
            catalog.add_pieces(lines)
    return catalog


def age_of(time: str | None) -> float:
    """Return the age of a catalog in seconds, at least 0. Raises CatalogError if `time` is malformed."""
    try:
        moment = datetime.strptime(time or "", TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError as error:
        raise CatalogError("has no time") from error
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())


class CatalogPublication(NamedTuple):
    """The result of `publish`: the time, and what the published catalog has."""

    time: str
    models: int
    artifacts: int
    size: int  # in bytes
    damages: list[str]  # why models or versions are missing


def publish(
    store: protocol.RegistryStore, copy: Path | None, progress: Progress = SILENT
) -> CatalogPublication:
    """Publish the catalog of a registry.

    `copy` is this machine's copy of the last catalog, or None if no file can be written. Raises InputError if the
    registry is a mirror, RemoteError if the registry is read-only, and LostRaceError if another run published
    meanwhile.
    """
    if store.is_mirror:
        raise InputError(f"{store.url} is a mirror", "publish at the registry; a mirror carries its catalog")
    stored, catalog = _fetch(store, copy), Catalog(store.registry_id)
    if stored is not None:
        try:
            catalog = _decoded(stored, store.registry_id)
        except CatalogError as error:
            if isinstance(error, LaterFormatError):
                raise HostError(f"the catalog of {store.url} {error}", protocol.UPGRADE) from error
    catalog.update(store, artifacts=True, progress=progress)
    damages, reason = catalog.damages(artifacts=True), "could not be read when the catalog was published"
    for model in catalog.models.values():  # the full reasons may name paths of this machine
        model.damage = model.damage and f"{model.name} {reason}"
        for piece in catalog.pieces.get(model.name, ()):
            piece.gaps = [f"{gap.partition(': ')[0]} {reason}" for gap in piece.gaps]
    time = datetime.now(UTC).strftime(TIME_FORMAT)
    lines = b"".join([*catalog.model_lines(time), *catalog.piece_lines()])
    packed = gzip.compress(lines, 6, mtime=0)
    if len(packed) > MAX_DOCUMENT_BYTES or len(lines) > MAX_CATALOG_BYTES:
        raise InputError(
            f"the catalog has {len(lines):,} bytes, {len(packed):,} compressed; readers take {MAX_CATALOG_BYTES:,} and "
            f"{MAX_DOCUMENT_BYTES:,}",
            "split the registry by organisation",
        )
    if not store.swap_file(protocol.CATALOG, packed, stored.token if stored else None):
        raise LostRaceError("another run published a catalog meanwhile", "run one job")
    artifacts = sum(1 for _ in catalog.query())
    return CatalogPublication(time, len(catalog.models), artifacts, len(packed), damages)
