"""OpenMed's report of the gate G4: `recall_delta.json`, and the keys that repeat it in the manifest and `config.json`.

`recall_delta.json` is the evidence behind a verdict, in aggregates: no text, id, span or offset of the suite.

The keys that OpenMed writes keep their names and meanings, but for `generated_at`, which would make equal
evaluations differ. `artifact.fp_parent_model_path` is null: the parent is the checkpoint, no file of the export.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation.judgement import JudgedArtifact
from onnxreg.converters.evaluation.recall_rule import (
    MAX_RECALL_LOSS,
    METRIC,
    RULE,
    Decision,
    LabelRecall,
    MinimumEvidence,
    RecallJudgement,
    weakness,
)
from onnxreg.converters.evaluation.scores import RESAMPLES, SEED, Interval
from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.draft import Verdict
from onnxreg.schema.manifest.manifest import Source

FILENAME = "recall_delta.json"
FORMAT = "onnx-int8"


@dataclass(frozen=True)
class ReportSubject:
    """Everything a report tells."""

    source: Source
    candidate_path: str
    candidate: Digest
    suite: Digest
    synthetic: bool | None
    fixtures: int
    measured: Sequence[LabelRecall]
    foreign: Mapping[str, int]
    decision: Decision
    interval: Interval | None
    minimum_evidence: MinimumEvidence
    quantization: Mapping[str, Any]
    labels: Mapping[str, Any] = field(default_factory=dict)
    """The labels of the gold that were mapped or excluded, by the keys of a certificate."""


def encode_report(subject: ReportSubject) -> bytes:
    """The report: canonical JSON (RFC 8785) and a line feed."""
    return canonical.encode(_document(subject)) + b"\n"


def _document(subject: ReportSubject) -> dict[str, Any]:
    is_known = subject.decision.state != "unknown"
    return {
        "schema_version": 1,
        "source_model_id": subject.source.id,
        "source_digest": str(subject.source.digest) if subject.source.digest else None,
        "format": FORMAT,
        "artifact": {
            "fp_parent_model_path": None,
            "int8_model_path": subject.candidate_path,
            "int8_model_digest": str(subject.candidate),
        },
        "suite_digest": str(subject.suite),
        **({} if subject.synthetic is None else {"synthetic": subject.synthetic}),
        "quantization": dict(subject.quantization),
        "fixture_count": subject.fixtures,
        "gold_span_count_by_label": {item.label: item.spans for item in subject.measured},
        "gold_char_count_by_label": {item.label: item.characters for item in subject.measured},
        "gold_span_count_of_other_labels": dict(subject.foreign),
        **subject.labels,
        "metric": METRIC,
        "limit": MAX_RECALL_LOSS,
        "rule": RULE,
        "state": subject.decision.state,
        "reasons": list(subject.decision.reasons),
        "min_gold_chars": subject.minimum_evidence.gold_chars,
        "min_parent_recall": subject.minimum_evidence.parent_recall,
        "certified": subject.decision.state == "certified",
        "quant_recall_delta": subject.decision.largest_loss if is_known else None,
        "quant_recall_delta_interval": list(subject.interval) if subject.interval else None,
        "bootstrap": {"unit": "fixture", "level": 0.95, "resamples": RESAMPLES, "seed": SEED},
        "per_label": {
            item.label: _label_figures(item, subject.minimum_evidence) for item in subject.measured
        },
        "fp_parent_per_label_recall": {item.label: item.parent for item in subject.measured},
        "candidate_per_label_recall": {item.label: item.candidate for item in subject.measured},
        "delta": _delta(subject.decision, is_known),
        "report_path": FILENAME,
    }


def _label_figures(item: LabelRecall, minimum: MinimumEvidence) -> dict[str, Any]:
    """`delta` is the loss as OpenMed has it, never below 0; `signed_delta` tells a gain too (parent - candidate)."""
    return {
        "fp_recall": item.parent,
        "int8_recall": item.candidate,
        "delta": _loss(item),
        "signed_delta": item.loss,
        "interval": list(item.interval) if item.interval else None,
        "gold_span_count": item.spans,
        "gold_char_count": item.characters,
        "fp_false_alarms": item.false_alarms,
        "judged": item.characters > 0 and weakness(item, minimum) is None,
    }


def _delta(decision: Decision, is_known: bool) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "quantized": True,
        "passed": decision.state == "certified",
        "limit": MAX_RECALL_LOSS,
        "max_delta": decision.largest_loss if is_known else None,
        "per_label_delta": {item.label: _loss(item) for item in decision.gated},
        "offending_labels": {
            item.label: {"delta": item.loss, "limit": MAX_RECALL_LOSS} for item in decision.offending
        },
        "labels_evaluated": sorted(item.label for item in decision.gated),
        "source": "computed_from_parent" if is_known else "missing_evidence",
        "blocking_format": None if decision.state == "certified" else FORMAT,
    }


def _loss(item: LabelRecall) -> float | None:
    return None if item.loss is None else max(item.loss, 0.0)


@dataclass(frozen=True)
class MirroredFields:
    """The keys that version 1 repeats at the top of the manifest, and in `config.json`."""

    manifest: dict[str, Any]
    config: dict[str, Any]


def write_report(
    item: JudgedArtifact,
    verdict: Verdict,
    source: Source,
    workspace: Path,
    quantization: Mapping[str, Any],
) -> MirroredFields:
    """Write `recall_delta.json` into `workspace`, whatever the verdict; nothing else of the suite gets there.

    Args:
        item: judged by `character_recall`.
        quantization: OpenMed's base fields (scheme, weight_type, op_types, calibration, target, output).
    """
    judgement = next(one for one in item.judgements if isinstance(one, RecallJudgement))
    path = workspace / item.artifact.path
    assert verdict.suite is not None
    subject = ReportSubject(
        source=source,
        candidate_path=path.name,
        candidate=digest_file(path),
        suite=verdict.suite,
        synthetic=verdict.synthetic,
        fixtures=judgement.samples,
        measured=judgement.measured,
        foreign=judgement.other_labels,
        decision=judgement.decision,
        interval=judgement.interval,
        minimum_evidence=judgement.minimum_evidence,
        quantization=quantization,
        labels={
            key: item for key, item in judgement.settings.items() if key in ("label_map", "excluded_labels")
        },
    )
    (workspace / FILENAME).write_bytes(encode_report(subject))
    return _mirrored(judgement.decision, quantization)


def _mirrored(decision: Decision, base: Mapping[str, Any]) -> MirroredFields:
    """Without a known state the loss is left out; `certified` is false, and the report says why."""
    is_known = decision.state != "unknown"
    verdict = {
        **({"quant_recall_delta": decision.largest_loss} if is_known else {}),
        "certified": decision.state == "certified",
        "recall_delta_path": FILENAME,
    }
    quantization = {**base, **verdict, "certification_limit": MAX_RECALL_LOSS, "format": FORMAT}
    certification = {"gate": "G4", "limit": MAX_RECALL_LOSS, "metric": METRIC, "report_path": FILENAME}
    certification |= {} if is_known else {"state": decision.state}
    shared = {**verdict, "quantization": quantization}
    return MirroredFields(
        {**shared, "certification": certification}, {**shared, "_onnx_quantization": quantization}
    )
