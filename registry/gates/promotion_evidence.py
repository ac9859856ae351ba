"""The evidence of a promotion: which version met which policy, what was found, and what that relied on.

    {"format": "onnxreg-evidence", "format_version": 1, "name", "channel", "version", "manifest", "policy",
    "before"?: digest,
     "findings": [{"requirement", "verdict", "detail"}], "statements": [digests]}

`before` is the manifest that breaking changes were looked for against; `statements` are the attestations
about the manifest that stood in the log. Nothing in it is believed: a reader finds everything anew and only
asks that it is about this move.
"""

from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.codec import items, mapping, optional, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.version import Version
from onnxreg.schema.gates.channel_rules import GateFinding

_HEAD = {"format": "onnxreg-evidence", "format_version": 1}


@dataclass(frozen=True)
class PromotionEvidence:
    """Read and written as the module says."""

    name: str
    channel: str
    version: Version
    manifest: Digest
    policy: Digest
    before: Digest | None
    findings: tuple[GateFinding, ...]
    statements: tuple[Digest, ...]

    def encode(self) -> bytes:
        value: dict[str, Any] = {
            **_HEAD,
            "name": self.name,
            "channel": self.channel,
            "version": str(self.version),
            "manifest": str(self.manifest),
            "policy": str(self.policy),
            "findings": [finding.to_json() for finding in self.findings],
            "statements": [str(statement) for statement in self.statements],
        }
        return canonical.encode(value | ({"before": str(self.before)} if self.before else {}))

    @classmethod
    def decode(cls, data: bytes) -> "PromotionEvidence":
        """Raise InputError if it is not evidence of a promotion."""
        value = mapping(canonical.decode(data, "evidence"))
        if any(value.get(key) != item for key, item in _HEAD.items()):
            raise InputError("it is not evidence of a promotion")
        return cls(
            text(required(value, "name")),
            text(required(value, "channel")),
            Version.parse(text(required(value, "version"))),
            Digest.parse(required(value, "manifest")),
            Digest.parse(required(value, "policy")),
            optional(value.get("before"), Digest.parse),
            items(required(value, "findings"), _finding),
            items(required(value, "statements"), Digest.parse),
        )


def _finding(value: Any) -> GateFinding:
    finding = mapping(value)
    verdict = required(finding, "verdict")
    if verdict not in ("pass", "fail"):
        raise InputError("a finding is neither pass nor fail")
    return GateFinding(text(required(finding, "requirement")), verdict, text(required(finding, "detail")))
