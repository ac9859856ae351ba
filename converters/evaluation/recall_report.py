"""`recall_delta.json`: the evidence behind a verdict. Aggregates only: no text, id, span or offset of the suite.

The keys that OpenMed writes keep their names and meanings, but for `generated_at`, which would make equal
evaluations differ. `artifact.fp_parent_model_path` is null: the parent is the checkpoint, no file of the export.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.evaluation.recall import LabelRecall
from onnxreg.converters.evaluation.recall_judgement import METRIC
from onnxreg.converters.evaluation.resample import RESAMPLES, SEED, Interval
from onnxreg.converters.evaluation.rule import MAX_RECALL_LOSS, RULE, Decision, Floors, weakness
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
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
    floors: Floors
    quantization: Mapping[str, Any]


def encode(subject: ReportSubject) -> bytes:
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
        "metric": METRIC,
        "limit": MAX_RECALL_LOSS,
        "rule": RULE,
        "state": subject.decision.state,
        "reasons": list(subject.decision.reasons),
        "min_gold_chars": subject.floors.gold_chars,
        "min_parent_recall": subject.floors.parent_recall,
        "certified": subject.decision.state == "certified",
        "quant_recall_delta": subject.decision.largest_loss if is_known else None,
        "quant_recall_delta_interval": list(subject.interval) if subject.interval else None,
        "bootstrap": {"unit": "fixture", "level": 0.95, "resamples": RESAMPLES, "seed": SEED},
        "per_label": {item.label: _label(item, subject.floors) for item in subject.measured},
        "fp_parent_per_label_recall": {item.label: item.parent for item in subject.measured},
        "candidate_per_label_recall": {item.label: item.candidate for item in subject.measured},
        "delta": _delta(subject.decision, is_known),
        "report_path": FILENAME,
    }


def _label(item: LabelRecall, floors: Floors) -> dict[str, Any]:
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
        "judged": item.characters > 0 and weakness(item, floors) is None,
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
