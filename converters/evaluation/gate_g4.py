"""The files and keys that OpenMed's readers look for after the gate G4: `recall_delta.json`, and keys in the manifest and `config.json`."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation import recall_report
from onnxreg.converters.evaluation.judgement import JudgedArtifact
from onnxreg.converters.evaluation.recall_judgement import METRIC, RecallJudgement
from onnxreg.converters.evaluation.recall_report import FILENAME, ReportSubject
from onnxreg.converters.evaluation.rule import MAX_RECALL_LOSS, Decision
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.draft import Verdict
from onnxreg.schema.manifest.manifest import Source


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
    with path.open("rb") as stream:
        candidate = Digest(hashlib.file_digest(stream, "sha256").hexdigest())
    assert verdict.suite is not None
    subject = ReportSubject(
        source=source,
        candidate_path=path.name,
        candidate=candidate,
        suite=verdict.suite,
        synthetic=verdict.synthetic,
        fixtures=judgement.samples,
        measured=judgement.measured,
        foreign=judgement.other_labels,
        decision=judgement.decision,
        interval=judgement.interval,
        floors=judgement.floors,
        quantization=quantization,
    )
    (workspace / FILENAME).write_bytes(recall_report.encode(subject))
    return _mirrored(judgement.decision, quantization)


def _mirrored(decision: Decision, base: Mapping[str, Any]) -> MirroredFields:
    """Without a known state the loss is left out; `certified` is false, and the report says why."""
    is_known = decision.state != "unknown"
    verdict = {
        **({"quant_recall_delta": decision.largest_loss} if is_known else {}),
        "certified": decision.state == "certified",
        "recall_delta_path": FILENAME,
    }
    quantization = {**base, **verdict, "certification_limit": MAX_RECALL_LOSS, "format": recall_report.FORMAT}
    certification = {"gate": "G4", "limit": MAX_RECALL_LOSS, "metric": METRIC, "report_path": FILENAME}
    certification |= {} if is_known else {"state": decision.state}
    shared = {**verdict, "quantization": quantization}
    return MirroredFields(
        {**shared, "certification": certification}, {**shared, "_onnx_quantization": quantization}
    )
