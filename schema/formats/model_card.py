"""The model cards of a bill of materials: what is known of a version, and what was measured of each artifact."""

from collections.abc import Iterable, Iterator
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.manifest import Artifact, Manifest, TensorSpec
from onnxreg.schema.manifest.parts import Check

Json = dict[str, Any]


def of_version(manifest: Manifest) -> Json:
    """The card of a whole version: its intended use and its limits."""
    parameters: Json = {}
    if manifest.task is not None:
        parameters["task"] = manifest.task
    if manifest.family is not None:
        parameters["architectureFamily"] = manifest.family
    limits = []
    if manifest.max_sequence_length is not None:
        limits.append(f"inputs of at most {manifest.max_sequence_length} tokens")
    if manifest.labels is not None:
        limits.append(f"finds only these labels: {', '.join(manifest.labels)}")
    return {
        "modelParameters": parameters,
        **({"considerations": {"technicalLimitations": limits}} if limits else {}),
        **properties([("minimum_opset", manifest.minimum_opset)]),
    }


def of_artifact(artifact: Artifact, state: str | None = None) -> Json:
    """The card of one artifact: its tensors, what was measured, on what, and the verdict.

    Args:
        state: after later evaluations; by default that of the manifest.
    """
    metadata, verdict = artifact.metadata, artifact.certification
    state = state or verdict.state
    evidence = verdict.evidence
    facts: list[tuple[str, object]] = [
        ("certification:state", state),
        ("certification:stated", verdict.state if verdict.state != state else None),
        ("certification:rule", verdict.rule),
        ("certification:parent", evidence and evidence.parent),
        ("certification:suite", evidence and evidence.suite),
        ("certification:report", evidence and evidence.report),
        *(fact for check in artifact.checks for fact in _about(check)),
    ]
    limits = [*(verdict.reasons if verdict.state == "refused" else ()), *metadata.warnings]
    return {
        "modelParameters": {
            "datasets": [_dataset(digest) for digest in _measured_on(artifact)],
            "inputs": [{"format": _tensor(spec)} for spec in metadata.inputs],
            "outputs": [{"format": _tensor(spec)} for spec in metadata.outputs],
        },
        "quantitativeAnalysis": {"performanceMetrics": [_metric(check) for check in artifact.checks]},
        **({"considerations": {"technicalLimitations": limits}} if limits else {}),
        **properties(facts),
    }


def quantization(artifact: Artifact) -> Iterator[tuple[str, object]]:
    """The requested and the measured quantization, as facts for properties; empty if there was none."""
    record = artifact.quantization
    if record is not None:
        yield "quantization:requested", record.requested
        yield from ((f"quantization:{key}", value) for key, value in record.measured.to_json().items())


def properties(facts: Iterable[tuple[str, object]]) -> Json:
    """`{"properties": [...]}`, named `onnxreg:<key>`; facts that are None are left out; without facts there is nothing."""
    entries = [{"name": f"onnxreg:{key}", "value": text(value)} for key, value in facts if value is not None]
    return {"properties": entries} if entries else {}


def text(value: object) -> str:
    """A value as canonical JSON; a digest, like any text, as it is written."""
    return str(value) if isinstance(value, str) else canonical.encode(value).decode()


def _metric(check: Check) -> Json:
    """CycloneDX has a value, a slice and an interval; limit, samples and verdict are properties of the card."""
    kind, slice_ = _kind(check)
    value: Json = {"type": kind}
    if check.value is not None:
        value["value"] = text(check.value)
    if slice_:
        value["slice"] = slice_
    if check.interval is not None:
        lower, upper = check.interval
        value["confidenceInterval"] = {"lowerBound": text(lower), "upperBound": text(upper)}
    return value


def _kind(check: Check) -> tuple[str, str]:
    """The metric and its label: `character_recall/NAME` is the recall of the slice `NAME`.

    A check with a direction has its metric in its name, such as `sts/spearman`.
    """
    if check.direction is not None:
        return check.name, ""
    head, _, label = check.name.partition("/")
    return (check.metric, label) if head == check.metric else (f"{check.name}/{check.metric}", "")


def _about(check: Check) -> Iterator[tuple[str, object]]:
    kind, slice_ = _kind(check)
    name = f"check:{kind}/{slice_}" if slice_ else f"check:{kind}"
    facts = {
        "verdict": check.verdict,
        "limit": check.limit,
        "samples": check.samples,
        "dataset": check.dataset,
        "direction": check.direction,
    }
    return ((f"{name}:{key}", value) for key, value in facts.items())


def _measured_on(artifact: Artifact) -> Iterator[Digest]:
    """The data sets of its checks and verdict, each once."""
    evidence = artifact.certification.evidence
    digests = [check.dataset for check in artifact.checks] + [evidence.suite if evidence else None]
    return iter(dict.fromkeys(digest for digest in digests if digest is not None))


def _dataset(digest: Digest) -> Json:
    return {"type": "dataset", "name": f"evaluation data {digest}"}


def _tensor(spec: TensorSpec) -> str:
    """`input_ids: int64[batch, sequence]`"""
    return f"{spec.name}: {spec.dtype}{spec.shape_text}"
