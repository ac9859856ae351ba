"""The witnesses that the trust file demands of a registry elsewhere."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from onnxreg.registry.store.abilities import carried_by
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, innermost
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.trust.read_trust_file import trust_if_any
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.core.units import counted

if TYPE_CHECKING:
    from onnxreg.registry.witness.reader import WitnessedReader
    from onnxreg.schema.inputs.trust_file import WitnessRequirement
    from onnxreg.schema.witness.merkle_map import MapEntry


def forget_witnessed(registry_id: str) -> bool:
    """Forget the witnessed trees and lines that this user saw of a registry; False if there were none."""
    import shutil

    folder = state_directory() / "witness" / "seen" / registry_id
    is_there = folder.is_dir()
    shutil.rmtree(folder, ignore_errors=True)
    return is_there


class WitnessCheck:
    """Compares one place with what its witnesses saw, if the trust file demands witnesses."""

    def __init__(self, reader: RegistryReader) -> None:
        self._source = reader
        self._reader: WitnessedReader | None = None

    def check(self, name: str, index: IndexFile | None) -> None:
        """Raise IntegrityError if a log is not witnessed as the trust file demands."""
        needs = self._needs(name)
        if needs and not (index is None and self._is_partial):
            self._witnessed().check(name, index, needs)

    def audit(self, name: str, index: IndexFile | None) -> Iterator[tuple[str, str]]:
        """Yield the fault that `check` raises; see `verification.Audit`."""
        try:
            self.check(name, index)
        except RegError as error:
            yield "witness", error.message

    def missing(self, names: Collection[str]) -> "list[MapEntry]":
        """List the logs that witnesses saw under other names than these. Raise IntegrityError as `check`."""
        needs = [] if self._is_partial else self._needs(POLICY_LOG)
        return self._witnessed().missing({*names, POLICY_LOG}, needs) if needs else []

    def audit_missing(self, names: Collection[str]) -> Iterator[str]:
        """Yield the faults that `missing` returns or raises."""
        try:
            for entry in self.missing(names):
                yield f"{entry.name} is gone: witnesses saw {counted(entry.seq, 'line')} of it"
        except RegError as error:
            yield error.message

    def audit_place(self) -> str | None:
        """Find a fault of the whole place: too few cosignatures, or only old ones. Return None if it has no fault."""
        try:
            for need in self._needs(POLICY_LOG):
                self._witnessed().newest(need)
        except RegError as error:
            return error.message
        return None

    @property
    def _is_partial(self) -> bool:
        """True if the place has only some models of the registry, as an archive does."""
        return carried_by(innermost(self._source)) is not None

    def _needs(self, name: str) -> "list[WitnessRequirement]":
        trust = trust_if_any()
        return [] if trust is None else trust.witnesses(self._source.registry_id, name)

    def _witnessed(self) -> "WitnessedReader":
        from onnxreg.registry.witness.reader import WitnessedReader

        self._reader = self._reader or WitnessedReader(self._source)
        return self._reader
