"""A registry with a witness log, and keys of its publisher and of witnesses."""

from dataclasses import dataclass, field
from functools import cached_property

from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.witness.copies import merge_proofs
from onnxreg.registry.witness.signers import Cosignature, LogPublisher, WitnessPublication, cosign, path_store
from onnxreg.schema.witness.note import COSIGNATURE, ED25519, VerifierKey, origin_of


@dataclass
class WitnessedRegistry:
    """The log of a registry and two witnesses, `w1` and `w2`."""

    store: RegistryStore
    key: PrivateKey = field(default_factory=lambda: generate("ed25519"))
    witnesses: dict[str, PrivateKey] = field(
        default_factory=lambda: {name: generate("ed25519") for name in ("w1", "w2")}
    )

    @cached_property
    def log_key(self) -> VerifierKey:
        return VerifierKey.of(origin_of(self.store.registry_id), ED25519, self.key.public)

    def vkey(self, name: str) -> str:
        return str(VerifierKey.of(name, COSIGNATURE, self.witnesses[name].public))

    def publish(self, *accept: str) -> WitnessPublication:
        return LogPublisher(self.store, self.key).publish(accept)

    def cosign(self, *names: str) -> list[Cosignature]:
        """Let witnesses, by default all, cosign, and show that to readers."""
        signed = [
            cosign(self.store, name, self.witnesses[name], str(self.log_key))
            for name in names or self.witnesses
        ]
        merge_proofs(path_store(self.store), [each.note for each in signed], self.log_key)
        return signed

    def witness(self) -> None:
        self.publish()
        self.cosign()
