"""The witnesses that the trust file demands of a registry elsewhere."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.registry.trust.read_trust_file import trust_if_any
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.registry.witness.reader import WitnessedReader
    from onnxreg.schema.inputs.trust_file import WitnessRequirement


class WitnessCheck:
    """Compares what one place says with what its witnesses saw, if the trust file demands any."""

    def __init__(self, source: RegistryReader) -> None:
        self._source = source
        self._reader: WitnessedReader | None = None

    def check(self, name: str, index: IndexFile | None) -> None:
        """Raise IntegrityError if a log is not witnessed as the trust file demands."""
        needs = self._needs(name)
        if needs:
            self._witnessed().check(name, index, needs)

    def audit(self, name: str, index: IndexFile | None) -> Iterator[tuple[str, str]]:
        """Yield the fault that `check` raises; see `verification.Audit`."""
        try:
            self.check(name, index)
        except RegError as error:
            yield "witness", error.message

    def audit_missing(self, names: Collection[str]) -> Iterator[str]:
        """Yield the logs that witnesses saw, and that are not among these names."""
        try:
            needs = self._needs(POLICY_LOG)
            for entry in self._witnessed().missing({*names, POLICY_LOG}, needs) if needs else ():
                yield f"{entry.name} is gone: witnesses saw {entry.seq} lines of it"
        except RegError as error:
            yield error.message

    def _needs(self, name: str) -> "list[WitnessRequirement]":
        trust = trust_if_any()
        return [] if trust is None else trust.witnesses(self._source.registry_id, name)

    def _witnessed(self) -> "WitnessedReader":
        from onnxreg.registry.witness.reader import WitnessedReader

        self._reader = self._reader or WitnessedReader(self._source)
        return self._reader
