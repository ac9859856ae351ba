"""OpenMed's report of the gate G4: `recall_delta.json`, and the keys that repeat it in the manifest and `config.json`.

`recall_delta.json` is the evidence behind a verdict, in aggregates: no text, id, span or offset of the suite.

The keys that OpenMed writes keep their names and meanings, but for `generated_at`, which would make equal
evaluations differ. `artifact.fp_parent_model_path` is null: the parent is the checkpoint, no file of the export.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation.metric import JudgedArtifact, Judgement, Part
from onnxreg.converters.evaluation.metrics import MAX_RECALL_LOSS, CharacterRecall, MinimumEvidence
from onnxreg.converters.evaluation.scores import RESAMPLES, SEED
from onnxreg.converters.source.source_files import digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.manifest.draft import Verdict
from onnxreg.schema.manifest.manifest import Source

FILENAME = "recall_delta.json"
FORMAT = "onnx-int8"
METRIC = CharacterRecall.id


@dataclass(frozen=True)
class MirroredFields:
    """The keys that version 1 repeats at the top of the manifest and in `config.json`, and the evaluation's settings."""

    manifest: dict[str, Any]
    config: dict[str, Any]
    evaluation: dict[str, Any]


def recall_of(item: JudgedArtifact) -> Judgement | None:
    """The judgement of an artifact by the recall of characters, if it was judged by it."""
    return next((one for one in item.judgements if one.metric.id == METRIC), None)


def write_report(
    item: JudgedArtifact, verdict: Verdict, source: Source, workspace: Path, quantization: Mapping[str, Any]
) -> MirroredFields:
    """Write `recall_delta.json` into `workspace`, whatever the verdict; nothing else of the suite gets there.

    Without a known state the loss is left out of what repeats it, and `certified` is false.

    Args:
        item: judged by `character_recall`.
        quantization: OpenMed's base fields (scheme, weight_type, op_types, calibration, target, output).
    """
    judgement = recall_of(item)
    assert judgement is not None, "callers look"
    path, settings, parts = workspace / item.artifact.path, judgement.settings, judgement.parts
    minimum, is_certified = MinimumEvidence.read(settings), judgement.state == "certified"
    loss = None if judgement.state == "unknown" else judgement.loss
    judged = [part for part in parts if part.state is not None]
    report = {
        "schema_version": 1,
        "source_model_id": source.id,
        "source_digest": str(source.digest) if source.digest else None,
        "format": FORMAT,
        "artifact": {
            "fp_parent_model_path": None,
            "int8_model_path": path.name,
            "int8_model_digest": str(digest_file(path)),
        },
        "suite_digest": str(verdict.suite),
        **({} if verdict.synthetic is None else {"synthetic": verdict.synthetic}),
        "quantization": dict(quantization),
        "fixture_count": judgement.samples,
        "gold_span_count_by_label": {part.name: part.facts["spans"] for part in parts},
        "gold_char_count_by_label": {part.name: part.facts["characters"] for part in parts},
        "gold_span_count_of_other_labels": dict(settings.get("other_labels", {})),
        **{key: settings[key] for key in ("label_map", "excluded_labels") if key in settings},
        "metric": METRIC,
        "limit": MAX_RECALL_LOSS,
        "rule": judgement.metric.rule,
        "state": judgement.state,
        "reasons": list(judgement.reasons),
        "min_gold_chars": minimum.gold_chars,
        "min_parent_recall": minimum.parent_recall,
        "certified": is_certified,
        "quant_recall_delta": loss,
        "quant_recall_delta_interval": list(judgement.interval) if judgement.interval else None,
        "bootstrap": {"unit": "fixture", "level": 0.95, "resamples": RESAMPLES, "seed": SEED},
        "per_label": {part.name: _figures(part) for part in parts},
        "fp_parent_per_label_recall": {part.name: part.parent for part in parts},
        "candidate_per_label_recall": {part.name: part.value for part in parts},
        "delta": {
            "format": FORMAT,
            "quantized": True,
            "passed": is_certified,
            "limit": MAX_RECALL_LOSS,
            "max_delta": loss,
            "per_label_delta": {part.name: max(part.loss or 0.0, 0.0) for part in judged},
            "offending_labels": {
                part.name: {"delta": part.loss, "limit": MAX_RECALL_LOSS}
                for part in judged
                if (part.loss or 0.0) >= MAX_RECALL_LOSS
            },
            "labels_evaluated": sorted(part.name for part in judged),
            "source": "missing_evidence" if judgement.state == "unknown" else "computed_from_parent",
            "blocking_format": None if is_certified else FORMAT,
        },
        "report_path": FILENAME,
    }
    (workspace / FILENAME).write_bytes(canonical.encode(report) + b"\n")
    stated = {} if loss is None else {"quant_recall_delta": loss}
    mirrored = {**stated, "certified": is_certified, "recall_delta_path": FILENAME}
    repeated = {**quantization, **mirrored, "certification_limit": MAX_RECALL_LOSS, "format": FORMAT}
    gate = {"gate": "G4", "limit": MAX_RECALL_LOSS, "metric": METRIC, "report_path": FILENAME}
    gate |= {"state": judgement.state} if judgement.state == "unknown" else {}
    shared = {**mirrored, "quantization": repeated}
    evaluation = {key: report[key] for key in ("min_gold_chars", "min_parent_recall")}
    return MirroredFields(
        {**shared, "certification": gate},
        {**shared, "_onnx_quantization": repeated},
        {"suite": str(verdict.suite), **evaluation},
    )


def _figures(part: Part) -> dict[str, Any]:
    """`delta` is the loss as OpenMed has it, never below 0; `signed_delta` tells a gain too (parent - candidate)."""
    return {
        "fp_recall": part.parent,
        "int8_recall": part.value,
        "delta": None if part.loss is None else max(part.loss, 0.0),
        "signed_delta": part.loss,
        "interval": list(part.interval) if part.interval else None,
        "gold_span_count": part.facts["spans"],
        "gold_char_count": part.facts["characters"],
        "fp_false_alarms": part.facts["false_alarms"],
        "judged": part.state is not None,
    }
