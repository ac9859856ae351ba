"""Proof that an artifact is its parent, rounded: what was compared, and the verdict.

    {"format": "onnxreg-faithfulness", "format_version": 1, "rules": 2, "artifact": digest, "parent": digest,
     "verdict": "proven" | "bounded" | "not-provable", "reasons"?: [text], "tensors", "weights", "quantized", ...}

Anybody can make it again from the two files: `reg prove`. docs/prove.md has the rules.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, First, Items, Text
from onnxreg.schema.manifest.manifest import Artifact, Manifest

RULES = 2
"""The version of docs/prove.md that a verdict follows. Reports of other versions are read, and prove nothing."""
FULL_PRECISION = "float32"
Verdict = Literal["proven", "bounded", "not-provable"]


class RuleCount(Document):
    """A rule of docs/prove.md, and how often it was used."""

    rule: Text
    count: Annotated[Count, Field(gt=0)]


class LargestError(Document):
    """The largest error of a weight, in steps of its own scale, and its place."""

    steps: Annotated[float, Field(ge=0)]
    tensor: Text
    index: Items[Count] = ()


class FaithfulnessReport(Document):
    """The result of one proof.

    `reasons` say why it is not `proven`. `weights` are the floating-point values that were compared, `quantized` those of
    them that are codes, `clipped` those beyond the range of their scale. `ranges` counts activations whose range is fixed
    in the file. `rewrites`, `scales` and `roundings` name the rules that were used. Nodes and tensors that no output needs are `unread`.
    """

    format: Literal["onnxreg-faithfulness"]
    format_version: First
    rules: Annotated[Count, Field(gt=0)]
    artifact: Digest
    parent: Digest
    verdict: Verdict
    reasons: Items[Text] = ()
    nodes: Count = 0
    tensors: Count = 0
    weights: Count = 0
    quantized: Count = 0
    clipped: Count = 0
    ranges: Count = 0
    unread_tensors: Count = 0
    unread_nodes: Count = 0
    largest: LargestError | None = None
    rewrites: Items[RuleCount] = ()
    scales: Items[RuleCount] = ()
    roundings: Items[RuleCount] = ()

    @property
    def is_current(self) -> bool:
        """True if it follows the rules of this program; a report by other rules proves nothing."""
        return self.rules == RULES


@dataclass(frozen=True)
class RecordedProof:
    """A proof in a log; `signers` are the name and the id of each trusted key that validly signed it."""

    report: FaithfulnessReport
    signers: tuple[frozenset[str], ...] = ()

    def is_signed_by(self, names: Collection[str]) -> bool:
        """True if a key of one of these names or ids signed it."""
        return any(name in key for name in names for key in self.signers)

    @property
    def authority(self) -> str:
        """Who answers for it, in words: `signed by a, b`, or `unsigned`. A key has the shorter of its names."""
        names = sorted(min(each_key, key=len) for each_key in self.signers)
        return f"signed by {', '.join(names)}" if names else "unsigned"


def full_precision_ancestor(manifest: Manifest, artifact: Artifact) -> Artifact | None:
    """The artifact that a proof compares with: the nearest float32 one, else the parent; None without a parent."""
    lineage = manifest.ancestors(artifact)
    return next(
        (item for item in lineage if item.precision == FULL_PRECISION), lineage[0] if lineage else None
    )
