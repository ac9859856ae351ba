"""The statement that one key replaces another: an in-toto Statement v1 that both keys sign."""

from dataclasses import dataclass

from onnxreg.schema.core import canonical
from onnxreg.schema.core.codec import items, mapping, required, text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.dsse import STATEMENT
from onnxreg.schema.signing.keys import PublicKey

ROTATION = "urn:onnxreg:rotation:v1"
"""The predicate type: the subject is a key that replaces another."""


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """The key `new` replaces the key `old`."""

    old: PublicKey
    new: PublicKey

    def encode(self) -> bytes:
        """The canonical bytes of the statement, the payload to be signed."""
        return canonical.encode(
            {
                "_type": STATEMENT,
                "subject": [{"name": str(self.new), "digest": {"sha256": self.new.id}}],
                "predicateType": ROTATION,
                "predicate": {"replaces": str(self.old)},
            }
        )

    @classmethod
    def decode(cls, payload: bytes) -> "KeyRotation":
        """Read a statement. InputError if it is malformed or says anything else."""
        value = mapping(canonical.decode(payload, "statement"))
        subjects = items(required(value, "subject"), mapping)
        if value.get("predicateType") != ROTATION or len(subjects) != 1:
            raise InputError("not the statement of a rotation")
        old = PublicKey.parse(text(required(mapping(required(value, "predicate")), "replaces")))
        rotation = cls(old, PublicKey.parse(text(required(subjects[0], "name"))))
        if rotation.encode() != payload:
            raise InputError("the statement of a rotation has other parts than the two keys")
        return rotation
