"""Statements about published bytes, each a blob and an event of the log: evaluations, proofs, measured speed.

An evaluation is the certificate that an export writes, or a short document of another tool:

    {"format": "onnxreg-evaluation", "format_version": 1, "artifact": digest, "parent"?: digest, "suite": digest,
     "state": "certified" | "refused" | "unknown", "reasons"?: [text], "synthetic"?: bool, "checks": [check]}

`checks` are those of a manifest. The loss is the check `quant_recall_delta`. A certificate also has `task`, `metrics` and
`resampling`. A proof says that an artifact is its parent, rounded; anybody can make it again from the two files
(docs/prove.md). A latency is of the machine and the moment, and a manifest holds nothing of either, so it is attested
after publication; no gate looks at it. Its checks are `latency of batch 8`, metric `median_ms` or `p95_ms`.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, First, Items, JsonObject, RelPath, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.parts import Check
from onnxreg.schema.manifest.vocabulary import LOSS

EVALUATION = "application/vnd.onnxreg.evaluation.v1+json"
GIVE_A_REPORT = "give a certificate that an export wrote, or the document that docs/gates.md describes"
State = Literal["certified", "refused", "unknown"]


class ItemScores(Document):
    """The published scores of single items: the file, and its SHA-256."""

    path: RelPath
    digest: Digest


class MetricRecord(Document):
    """The figures of one metric on one artifact, and the rule that judged them.

    `limit` is the loss that the artifact must stay below. `parent`, `value` and `loss` are None if nothing was measured.
    `interval` is the paired 95 % interval of the loss. `package` names the distribution of a plug-in.
    """

    metric: Text
    version: Count
    package: Text | None = None
    direction: Literal["higher", "lower"]
    rule: Text
    limit: float
    parent: float | None
    value: float | None
    loss: float | None
    interval: tuple[float, float] | None = None
    samples: Count
    groups: Count
    state: State
    reasons: Items[Text] = ()
    settings: JsonObject = {}
    item_scores: ItemScores | None = None


class Resampling(Document):
    """The bootstrap behind the intervals."""

    unit: Literal["item", "group"]
    level: float
    resamples: Count
    seed: Count


class EvaluationDocument(Document):
    """One verdict on one artifact: of another tool, or the certificate that an export writes."""

    format: Literal["onnxreg-evaluation"]
    format_version: First
    artifact: Digest
    parent: Digest | None = None
    suite: Digest
    state: State
    reasons: Items[Text] = ()
    synthetic: bool | None = None
    checks: Items[Check] = ()
    task: Text | None = None
    metrics: Items[MetricRecord] = ()
    resampling: Resampling | None = None

    @property
    def loss(self) -> Check | None:
        """The check of the loss of recall, if it was measured."""
        check = next((check for check in self.checks if check.name == LOSS), None)
        return None if check is None or check.value is None else check


def read_evaluation(data: bytes, label: str = "report") -> EvaluationDocument:
    """Read an evaluation. InputError if it is not valid, or does not say about which bytes it is."""
    try:
        return EvaluationDocument.decode(data, label)
    except InputError as error:
        raise InputError(error.message, error.hint or GIVE_A_REPORT) from error


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


class TimedArtifact(Document):
    """The latency of one artifact, in milliseconds for each run of a whole batch."""

    artifact: Digest
    path: RelPath
    checks: Items[Check]


class BenchmarkDocument(Document):
    """The measured latencies of a version's artifacts on one machine.

    `cpu` is the processor's model, `isa` its widest instruction set, `runtime` name and version, `warm_up`
    the number of runs of each batch before the `runs` that were timed.
    """

    format: Literal["onnxreg-benchmark"]
    format_version: First
    cpu: Text
    isa: Text
    threads: Annotated[Count, Field(gt=0)]
    runtime: Text
    warm_up: Count
    runs: Annotated[Count, Field(gt=0)]
    artifacts: Annotated[Items[TimedArtifact], Field(min_length=1)]
