"""The proofs on record."""

from onnxreg.registry.log.contents import read_version
from onnxreg.registry.log.log import load
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.known_heads import load_trust
from onnxreg.registry.trust.signatures import attestations, recorded_proofs
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.statements import RecordedProof


def read_proofs(reader: RegistryReader, ref: Ref) -> list[RecordedProof]:
    """The proofs that a log attests of a version, oldest first."""
    version = read_version(reader, ref)
    ledger = load(reader, version.name)
    return list(
        recorded_proofs(
            ledger, attestations(ledger, version.digest, version.manifest), version.manifest, load_trust()
        )
    )
