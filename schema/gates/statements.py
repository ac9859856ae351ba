"""Statements about published bytes: evaluations, proofs and measured latencies. Each is a blob and an event of the log.

An evaluation is the certificate that an export writes (with `task`, `metrics` and `resampling`), or a shorter document of
another tool (docs/gates.md). The loss of recall is the check `quant_recall_delta`. A proof says that an artifact is its
parent with rounded weights; anybody can repeat the proof from the two files (docs/prove.md). A latency is attested after
publication, because a manifest records neither the machine nor the time of a measurement. No rule tests latencies. The
checks of a latency are named `latency of batch 8` or `latency, short (17 tokens)`; the metric is `median_ms`, `p95_ms` or
`ratio` (to the parent's latency).
"""

from collections.abc import Collection
from itertools import chain, islice
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import Field

from onnxreg.schema.core.bounds import MAX_MACHINE_CHARS, MAX_SPEEDS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.document import Count, Document, First, Items, JsonObject, RelPath, Text
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.log.state import Speed
from onnxreg.schema.manifest.manifest import Artifact, Check, Manifest
from onnxreg.schema.manifest.vocabulary import LOSS

EVALUATION = "application/vnd.onnxreg.evaluation.v1+json"
MODEL_SUFFIXES = (".onnx", ".ort")
GIVE_A_REPORT = "give a certificate that an export wrote, or the document that docs/gates.md describes"
State = Literal["certified", "refused", "unknown"]


class ItemScores(Document):
    """The path and SHA-256 of the file with the published scores of single items."""

    path: RelPath
    digest: Digest


class MetricRecord(Document):
    """The figures of one metric on one artifact, and the rule that judged them.

    The loss must be below `limit`. `parent` is the parent's figure, `value` the artifact's figure. Figures and `loss`
    are None if not measured. `interval` is the paired 95 % interval of the loss. `package` defines a plug-in metric.
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
    """The settings of the bootstrap that made the intervals."""

    unit: Literal["item", "group"]
    level: float
    resamples: Count
    seed: Count


class EvaluationDocument(Document):
    """One verdict on one artifact: the certificate that an export writes, or a document of another tool."""

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
        """The check of the loss of recall; None if the loss was not measured."""
        check = next((check for check in self.checks if check.name == LOSS), None)
        return None if check is None or check.value is None else check


def read_evaluation(data: bytes, label: str = "report") -> EvaluationDocument:
    """Read an evaluation. Raise InputError if it is not valid or does not name its artifact."""
    try:
        return EvaluationDocument.decode(data, label)
    except InputError as error:
        raise InputError(error.message, error.hint or GIVE_A_REPORT) from error


RULES = 3
"""The version of docs/prove.md that this program follows. Reports of other versions can be read, but prove nothing."""
FULL_PRECISION = "float32"


class RuleCount(Document):
    """A rule of docs/prove.md, and the number of its uses."""

    rule: Text
    count: Annotated[Count, Field(gt=0)]


class LargestError(Document):
    """The largest rounding error of a weight, in steps of its scale, and the weight's tensor and index."""

    steps: Annotated[float, Field(ge=0)]
    tensor: Text
    index: Items[Count] = ()


class FaithfulnessReport(Document):
    """The result of one proof.

    `reasons` say why the verdict is not `proven`. `weights` counts the compared floating-point values, `quantized` the
    values stored as integers, `clipped` the values beyond their scale's range, `ranges` the activations with a fixed range,
    `unread_tensors` and `unread_nodes` the tensors and nodes that no output needs. `rewrites`, `scales` and `roundings`
    name the rules that were used.
    """

    format: Literal["onnxreg-faithfulness"]
    format_version: First
    rules: Annotated[Count, Field(gt=0)]
    artifact: Digest
    parent: Digest
    verdict: Literal["proven", "bounded", "not-provable"]
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
        """True if the report follows the rules of this program; a report by other rules proves nothing."""
        return self.rules == RULES


class RecordedProof(Struct, frozen=True):
    """A proof in a log. `signers` has, for each trusted key that validly signed the proof, the key's names and id."""

    report: FaithfulnessReport
    signers: tuple[frozenset[str], ...] = ()

    @property
    def authority(self) -> str:
        """The signers in words: `signed by a, b`, or `unsigned`. Each key is named by the shortest of its names and id."""
        names = sorted(min(each_key, key=len) for each_key in self.signers)
        return f"signed by {', '.join(names)}" if names else "unsigned"


def full_precision_ancestor(manifest: Manifest, artifact: Artifact) -> Artifact | None:
    """Return the artifact with which a proof compares `artifact`: its nearest float32 ancestor, else its parent, else None."""
    lineage = manifest.ancestors(artifact)
    exact = (item for item in lineage if item.precision == FULL_PRECISION)
    return next(chain(exact, lineage), None)


def proof_pairs(
    manifest: Manifest, label: str, paths: Collection[str] = (), has_parent: bool = False
) -> list[tuple[Artifact, Artifact | None]]:
    """Return the artifacts that can be proven, each with the artifact with which its proof compares it.

    If `paths` names artifacts of the manifest, only these are returned. If the caller has a parent (`has_parent`), the
    artifacts need none in the manifest, and the second item of each pair is None.

    Raises InputError, about the version `label`, if a named artifact is not a graph or has no parent, or if none has.
    """
    artifacts = {artifact.path: artifact for artifact in manifest.artifacts}
    chosen = [artifacts[path] for path in paths or artifacts]
    models = [artifact for artifact in chosen if artifact.path.endswith(MODEL_SUFFIXES)]
    others = [artifact.path for artifact in chosen if artifact not in models]
    if others and (paths or not models):
        message = f"{others[0]} of {label} is not an .onnx or .ort file"
        raise InputError(message, "only such files can be proven")
    if has_parent:
        return [(artifact, None) for artifact in models]
    pairs = [(artifact, full_precision_ancestor(manifest, artifact)) for artifact in models]
    orphans = [artifact.path for artifact, parent in pairs if parent is None]
    if (paths and orphans) or len(orphans) == len(pairs):
        subject = (
            f"{orphans[0]} of {label} has no parent" if paths else f"no artifact of {label} has a parent"
        )
        raise InputError(f"{subject} in the version", "name a file with --parent")
    return [(artifact, parent) for artifact, parent in pairs if parent is not None]


class TimedArtifact(Document):
    """The measured latency of one artifact, in milliseconds for a batch or for one input of a suite.

    The metric `ratio` is the latency divided by the latency of `parent`, the full-precision file, in the same benchmark.
    """

    artifact: Digest
    path: RelPath
    checks: Items[Check]
    parent: Digest | None = None


class TimedCandidate(Document):
    """The latency of a candidate file of a search, which need not be published."""

    name: Text
    checks: Items[Check]


class BenchmarkDocument(Document):
    """The measured latencies of a version's artifacts on one machine.

    `cpu` is the processor's model, `isa` its widest instruction set, `runtime` the name and version of the runtime,
    `warm_up` the number of untimed runs of each batch before the `runs` that were timed.
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
    candidates: Items[TimedCandidate] = ()

    @property
    def speeds(self) -> dict[Digest, Speed]:
        """For each artifact, the speed with the largest ratio, as a `timing` event records it."""
        machine = {"isa": self.isa[:MAX_MACHINE_CHARS], "runtime": self.runtime[:MAX_MACHINE_CHARS]}
        speeds: dict[Digest, Speed] = {}
        for item in self.artifacts:
            medians = {check.name: check.value for check in item.checks if check.metric == "median_ms"}
            for check in item.checks:
                if check.metric != "ratio" or check.value is None:
                    continue
                low = check.interval[0] if check.interval else check.value
                figures = {"ratio": check.value, "low": low, "median_ms": medians.get(check.name)}
                with about(f"the ratio of {item.path}"):
                    speed = Speed.read({**machine, "threads": self.threads, **figures})
                faster = speeds.get(item.artifact)
                if faster is None or speed.ratio > faster.ratio:
                    speeds[item.artifact] = speed
        return dict(islice(speeds.items(), MAX_SPEEDS))
