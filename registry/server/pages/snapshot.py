"""One model as one index file has it: its state, every version, the log, and the manifests of those that are shown."""

from functools import cached_property

from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import read_ledger
from onnxreg.registry.server.pages import views
from onnxreg.registry.server.pages.log_view import LogView
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.manifests import read_manifest
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.suggest import nearest
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import VersionEntry
from onnxreg.schema.manifest.manifest import Manifest

NEAR = 4
"""How many near names are told."""


class UnknownModelError(NotFoundError):
    """A model or a version that is not here; `near` are those that may have been meant."""

    def __init__(self, message: str, near: list[Ref]) -> None:
        super().__init__(message, "did you mean one of these?" if near else "")
        self.near = near


class ModelSnapshot:
    """A model; UnknownError where there is none. What is asked for is read once."""

    def __init__(self, place: ServedRegistry, name: str, index: IndexFile | None) -> None:
        if index is None:
            near = nearest(name, place.names(), most=NEAR)
            raise UnknownModelError(f"There is no model {name} here", [Ref(each) for each in near])
        self._place = place
        self._index = index
        self.state = place.state_of(name, index)
        self.token = index.token

    @cached_property
    def entries(self) -> dict[Version, VersionEntry]:
        return lookup.all_versions(self._place, self.state)

    @cached_property
    def order(self) -> list[Version]:
        """All versions, newest first."""
        return sorted(self.entries, reverse=True)

    @cached_property
    def history(self) -> LogView | IntegrityError:
        """The log, its chain verified; or what is wrong with it."""
        try:
            return LogView(read_ledger(self._place, self.state.name, self._index))
        except IntegrityError as error:
            return error

    @cached_property
    def sound(self) -> LogView | None:
        """The log, where nothing is wrong with it."""
        return self.history if isinstance(self.history, LogView) else None

    def rows(self, versions: list[Version]) -> list[views.VersionRow]:
        return views.version_rows(self.state, {each: self.entries[each] for each in versions}, self.sound)

    def find(self, ref: Ref) -> views.VersionRow:
        """The version that a ref means, whatever became of it. UnknownError where there is none."""
        try:
            found = lookup.find_in(self._place, self.state, ref, yanked=True, gone=True)
        except MissingBlobError:
            raise
        except NotFoundError as error:
            tags = [*self.state.channels, *map(str, self.order)]
            near = nearest(ref.tag or "", tags, 0.3, NEAR)
            raise UnknownModelError(error.message, [Ref(ref.name, tag) for tag in near]) from error
        return self.rows([found.version])[0]

    def manifest(self, entry: VersionEntry) -> Manifest | None:
        """A version's manifest; None where it was taken down with its files."""
        try:
            data = read_blob(self._place, entry.manifest)
        except MissingBlobError:
            if entry.gone is None:
                raise
            return None
        return read_manifest(data, entry.manifest, self.state.name)

    def before(self, version: Version) -> Version | None:
        """The next older version."""
        place = self.order.index(version) + 1
        return self.order[place] if place < len(self.order) else None
