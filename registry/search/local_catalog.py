"""The catalog of a registry in a directory of this machine, kept in `local/`, where it may be deleted at any time.

Each question first compares the tokens of all index files and reads those that changed. If the cache is missing,
damaged or of another registry, it is made again; if it cannot be written (a read-only directory, a full disk), it
stays in memory. So the cache can make an answer slow, but not wrong. Operations on one model never use it.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from onnxreg.registry.search.catalog import MAX_LINE_BYTES, Catalog, CatalogError
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.support.disk import open_regular
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.progress import SILENT, Progress

MODELS, PIECES = "catalog-models.jsonl", "catalog-artifacts.jsonl"
"""The two parts of the catalog: a list of models reads only the first."""

Answer = TypeVar("Answer")


class LocalCatalog:
    """The content of a registry's index files, for questions over all models."""

    def __init__(self, store: DirectoryRegistry) -> None:
        self._store = store
        self._catalog: Catalog | None = None
        self._saved = -1
        self._has_pieces = False
        self.time: str | None = None
        """None: index files answer."""

    def ask(
        self,
        question: Callable[[Catalog], Answer],
        pattern: str = "*",
        artifacts: bool = False,
        progress: Progress = SILENT,
    ) -> Answer:
        """Answer a question by the catalog; with `artifacts` it has those of the models whose name fits."""
        try:
            return question(self.refresh(pattern, artifacts, progress))
        except CatalogError:
            self._catalog, self._has_pieces = Catalog(self._store.registry_id), True
            return question(self.refresh(pattern, artifacts, progress))

    def refresh(self, pattern: str = "*", artifacts: bool = False, progress: Progress = SILENT) -> Catalog:
        """The catalog, up to date with the index files. HostError if these cannot be listed."""
        registry_id = self._store.registry_id
        if self._catalog is None or self._catalog.registry_id != registry_id:
            try:
                self._catalog = Catalog.decode(self._lines(MODELS), registry_id)
                self._saved = self._catalog.revision
            except (CatalogError, OSError, RegError):
                self._catalog = Catalog(registry_id)
        if artifacts and not self._has_pieces:
            with suppress(OSError, RegError):
                self._catalog.add_pieces(self._lines(PIECES))
            self._has_pieces = True
        self._catalog.update(self._store, pattern=pattern, artifacts=artifacts, progress=progress)
        self.save()
        return self._catalog

    def save(self) -> None:
        """Write the parts that changed, if that is possible here."""
        catalog = self._catalog
        if catalog is None or catalog.revision == self._saved:
            return
        self._saved = catalog.revision
        with suppress(RegError, OSError):
            self._store.write_local(MODELS, b"".join(catalog.model_lines()))
            if self._has_pieces:
                self._store.write_local(PIECES, b"".join(catalog.piece_lines()))

    def _lines(self, name: str) -> Iterator[bytes]:
        with open_regular(self._store.root / "local" / name) as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                yield line
