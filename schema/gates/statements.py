"""Statements about published files: evaluations, proofs, and measured latencies. A statement is stored as a blob, and
an event of the log refers to it.

An evaluation is a certificate that an export wrote, or a shorter document of another tool (docs/gates.md). A proof says
that an artifact is its parent with rounded weights (docs/prove.md). A latency depends on the machine, so manifests have
no latencies. The check of a latency has a name such as `latency of batch 8` or `latency, short (17 tokens)`.
"""

from collections.abc import Collection
from itertools import chain, islice
from typing import Annotated, Literal

from msgspec import Struct
from pydantic import Field

from onnxreg.schema.core.bounds import MAX_MACHINE_CHARS, MAX_SPEEDS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.document import Count, Document, First, Items, JsonObject, RelPath, Table, Text
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.log.state import Speed
from onnxreg.schema.manifest.manifest import Artifact, Check, Manifest, Positive

EVALUATION = "application/vnd.onnxreg.evaluation.v1+json"
MODEL_SUFFIXES = (".onnx", ".ort")
GIVE_A_REPORT = "give a certificate that an export wrote, or the document that docs/gates.md describes"
State = Literal["certified", "refused", "unknown"]


class ItemScores(Document):
    """A file with the scores of single items: its path and its digest."""

    path: RelPath
    digest: Digest


class MetricRecord(Document):
    """The figures of one metric on one artifact, and the rule that judged them.

    `parent` and `value` are the figures of the parent and of the artifact. The `loss` must be below `limit`. If nothing
    was measured, `parent`, `value` and `loss` are null. `interval` is the paired 95 % interval of the loss. If the
    metric is a plug-in, `package` is the package that defines the metric.
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
    """The verdict on one artifact: a certificate that an export wrote, or a document of another tool.

    `external_data` maps a graph's digest to the digests of the files with its external data, in the order of their
    paths.
    """

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
    external_data: Table[Items[Digest]] = {}


def read_evaluation(data: bytes, label: str = "report") -> EvaluationDocument:
    """Read an evaluation. Raise InputError if it is malformed."""
    try:
        return EvaluationDocument.decode(data, label)
    except InputError as error:
        raise InputError(error.message, error.hint or GIVE_A_REPORT) from error


RULES = 3  # the version of docs/prove.md; reports of other versions prove nothing
FULL_PRECISION = "float32"


class RuleCount(Document):
    """The number of times that a proof used `rule`, one of the rules in docs/prove.md."""

    rule: Text
    count: Positive


class LargestError(Document):
    """The weight with the largest rounding error: its tensor, its index, and the error in steps of the scale."""

    steps: Annotated[float, Field(ge=0)]
    tensor: Text
    index: Items[Count] = ()


class FaithfulnessReport(Document):
    """The result of one proof. `reasons` say why the verdict is not `proven`.

    `weights` counts the compared floating-point values. `quantized` counts the values that are stored as integers.
    `clipped` counts the values beyond the range of their scale. `ranges` counts the activations with a fixed range.
    `unread_tensors` and `unread_nodes` count the tensors and nodes that no output needs. `rewrites`, `scales` and
    `roundings` name the rules that were used. `external_data` is as in an evaluation.
    """

    format: Literal["onnxreg-faithfulness"]
    format_version: First
    rules: Positive
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
    external_data: Table[Items[Digest]] = {}

    @property
    def is_current(self) -> bool:
        """True if the report follows the rules of this program. A report that follows other rules proves nothing."""
        return self.rules == RULES


class RecordedProof(Struct, frozen=True):
    """A proof in a log. `signers` has a set for each trusted signer, with the names and ids of the signer's keys."""

    report: FaithfulnessReport
    signers: tuple[frozenset[str], ...] = ()

    @property
    def authority(self) -> str:
        """The signers in words: `signed by a, b` or `unsigned`."""
        names = sorted(min(each_key, key=len) for each_key in self.signers)
        return f"signed by {', '.join(names)}" if names else "unsigned"


def full_precision_ancestor(manifest: Manifest, artifact: Artifact) -> Artifact | None:
    """Return the ancestor with which a proof compares an artifact: the nearest float32 ancestor. If no ancestor is
    float32, return the parent. Return None if the artifact has no parent.
    """
    lineage = manifest.ancestors(artifact)
    exact = (item for item in lineage if item.precision == FULL_PRECISION)
    return next(chain(exact, lineage), None)


def proof_pairs(
    manifest: Manifest, label: str, paths: Collection[str] = (), has_parent: bool = False
) -> list[tuple[Artifact, Artifact | None]]:
    """Return the artifacts that can be proven, each with the ancestor to compare it with.

    `paths` selects artifacts. Raise InputError if a selected artifact is not a graph or has no parent. Without `paths`,
    raise InputError if the version has no graph with a parent. The error names the version by `label`.

    With `has_parent`, the caller compares with its own file. Then no parent is needed, and each ancestor is None.
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
        fault = f"{orphans[0]} of {label} has no parent" if paths else f"no artifact of {label} has a parent"
        raise InputError(f"{fault} in the version", "name a file with --parent")
    return [(artifact, parent) for artifact, parent in pairs if parent is not None]


def timed_pairs(
    manifest: Manifest, label: str, paths: Collection[str] = ()
) -> list[tuple[Artifact, Artifact]]:
    """Return the artifacts that have an ancestor in full precision, each with this ancestor.

    `paths` selects artifacts. Raise InputError if the version has several graphs, if a selected artifact has no such
    ancestor, or if no artifact has one. The error names the version by `label`.
    """
    if manifest.stages:
        message = f"{label} is made of several graphs, and only single graphs are timed"
        raise InputError(message, "time them in an app, with the clients in examples/")
    pairs = {
        artifact.path: (artifact, parent)
        for artifact in manifest.artifacts
        if (parent := full_precision_ancestor(manifest, artifact)) and parent.precision == FULL_PRECISION
    }
    if not pairs or not pairs.keys() >= {*paths}:
        subject = min({*paths} - pairs.keys(), default="a file")
        hint = f"files made from full precision: {', '.join(pairs) or 'none (export --quantize makes one)'}"
        raise InputError(f"{label} has no parent in full precision to time {subject} beside", hint)
    return [pairs[path] for path in paths or pairs]


class TimedArtifact(Document):
    """A part of a benchmark: the measured latency of one artifact. The metric `ratio` is the latency divided by the
    latency of `parent`, the file in full precision.
    """

    artifact: Digest
    path: RelPath
    checks: Items[Check]
    parent: Digest | None = None


class TimedCandidate(Document):
    """A part of a benchmark: the measured latency of a candidate of a search. The candidate may be unpublished."""

    name: Text
    checks: Items[Check]


class BenchmarkDocument(Document):
    """The measured latencies of a version's artifacts on one machine.

    `cpu` is the processor's model, and `isa` is the processor's widest instruction set. `runtime` has a name and
    version. `runs` is the number of timed runs. `warm_up` is the number of untimed runs before the timed runs.
    """

    format: Literal["onnxreg-benchmark"]
    format_version: First
    cpu: Text
    isa: Text
    threads: Positive
    runtime: Text
    warm_up: Count
    runs: Positive
    artifacts: Annotated[Items[TimedArtifact], Field(min_length=1)]
    candidates: Items[TimedCandidate] = ()

    @property
    def speeds(self) -> dict[Digest, Speed]:
        """The speed of each artifact, by digest. If several inputs were timed, the one with the worst ratio counts."""
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
                other = speeds.get(item.artifact)
                if other is None or speed.ratio > other.ratio:
                    speeds[item.artifact] = speed
        return dict(islice(speeds.items(), MAX_SPEEDS))
