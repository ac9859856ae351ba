"""Certify the INT8 export of a token classifier against the checkpoint it was made from."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onnxreg.converters.evaluation import recall_report
from onnxreg.converters.evaluation.decode import Integers, tag_scheme
from onnxreg.converters.evaluation.predict import onnx_runner, predict, torch_runner
from onnxreg.converters.evaluation.recall import bootstrap, largest_loss, measure, tally
from onnxreg.converters.evaluation.recall_report import FILENAME, METRIC, ReportSubject
from onnxreg.converters.evaluation.rule import MAX_RECALL_LOSS, RULE, Decision, Floors, decide, over_limit
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.evaluation.windows import windows
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.draft import Verdict
from onnxreg.schema.manifest.manifest import Source


class Parent(Protocol):
    """The full-precision checkpoint.

    `model` is a Transformers token classifier in eval mode, fp32 on the CPU; `tokenizer` a fast one; `labels` the
    model's tags in the order of its logits.
    """

    @property
    def model(self) -> Any: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def source(self) -> Source: ...


@dataclass(frozen=True)
class RecallEvaluation:
    """The record of an evaluation in an export.

    `checks` are `manifest.Check` in JSON form. `manifest_fields` and `config_fields` are the keys that version 1
    mirrors at the top of the manifest and in config.json.
    """

    verdict: Verdict
    checks: list[dict[str, Any]]
    manifest_fields: dict[str, Any]
    config_fields: dict[str, Any]


def certify_int8(
    suite: Suite,
    parent: Parent,
    candidate: Path,
    workspace: Path,
    *,
    quantization: Mapping[str, Any],
    max_length: int,
    floors: Floors | None = None,
) -> RecallEvaluation:
    """Compare the character recall of `candidate` with that of `parent` on a suite, by the rule `G4/point`.

    Writes `recall_delta.json` into `workspace`, whatever the verdict; nothing else of the suite gets there. The
    same suite, checkpoint and candidate give the same bytes, whatever the number of cores.

    Args:
        suite: golden fixtures; see `suite.load`.
        parent: the checkpoint that the candidate was made from.
        candidate: an ONNX token classifier with the output `logits`.
        workspace: an existing directory.
        quantization: OpenMed's base fields (scheme, weight_type, op_types, calibration, target, output).
        max_length: the longest input in tokens that the candidate is published for; longer texts are cut into
            windows of it.

    Raises:
        InputError: inputs of `max_length` tokens leave no room for text.
        ConversionError: the candidate does not load, or its logits do not match the labels.
        HostError: a library is missing.
    """
    predictions = _predictions(parent, candidate, [fixture.text for fixture in suite.fixtures], max_length)
    subject = _evaluate(suite, parent, candidate, predictions, floors or Floors(), quantization)
    (workspace / FILENAME).write_bytes(recall_report.encode(subject))
    decision = subject.decision
    verdict = Verdict(decision.state, RULE, decision.reasons, suite.digest, FILENAME, suite.synthetic)
    return RecallEvaluation(verdict, _checks(subject), *_mirrored(decision, quantization))


def _evaluate(
    suite: Suite,
    parent: Parent,
    candidate: Path,
    predictions: tuple[list[Integers], list[Integers]],
    floors: Floors,
    quantization: Mapping[str, Any],
) -> ReportSubject:
    labels = tag_scheme(parent.labels).names
    counts = tally(suite.fixtures, *predictions, labels)
    spans = Counter(span.label for fixture in suite.fixtures for span in fixture.spans)
    resampled = bootstrap(counts)
    measured = measure(counts, spans, labels, resampled)
    foreign = {label: spans[label] for label in sorted(spans.keys() - set(labels))}
    decision = decide(measured, list(foreign), len(suite.fixtures), floors)
    return ReportSubject(
        source=parent.source,
        candidate_path=candidate.name,
        candidate=_digest(candidate),
        suite=suite.digest,
        synthetic=suite.synthetic,
        fixtures=len(suite.fixtures),
        measured=measured,
        foreign=foreign,
        decision=decision,
        interval=largest_loss(resampled, [measured.index(item) for item in decision.gated]),
        floors=floors,
        quantization=quantization,
    )


def _predictions(
    parent: Parent, candidate: Path, texts: list[str], max_length: int
) -> tuple[list[Integers], list[Integers]]:
    """The label of every character of every text, by the parent and by the candidate."""
    scheme, tags = tag_scheme(parent.labels), len(parent.labels)
    cut = windows(parent.tokenizer, max_length, texts)
    run, inputs = onnx_runner(candidate)
    candidate_labels = predict(run, cut, texts, tags, scheme)
    with torch_runner(parent.model, inputs) as run:
        return predict(run, cut, texts, tags, scheme), candidate_labels


def _digest(path: Path) -> Digest:
    with path.open("rb") as stream:
        return Digest(hashlib.file_digest(stream, "sha256").hexdigest())


def _checks(subject: ReportSubject) -> list[dict[str, Any]]:
    """One check per label, its value the candidate's recall, and one for the largest loss; `samples` are gold spans."""
    decision, dataset = subject.decision, str(subject.suite)
    checks: list[dict[str, Any]] = []
    for item in subject.measured:
        verdict = "unknown"
        if item in decision.gated:
            verdict = "fail" if over_limit(item) else "pass"
        name = f"{METRIC}/{item.label}"
        checks.append(
            {"name": name, "metric": METRIC, "value": item.candidate, "verdict": verdict}
            | {"samples": item.spans, "dataset": dataset}
        )
    overall = {"certified": "pass", "refused": "fail"}.get(decision.state, "unknown")
    checks.append(
        {"name": "quant_recall_delta", "metric": METRIC, "value": decision.largest_loss, "verdict": overall}
        | {
            "limit": MAX_RECALL_LOSS,
            "samples": sum(item.spans for item in decision.gated),
            "dataset": dataset,
        }
        | ({"interval": list(subject.interval)} if subject.interval else {})
    )
    return checks


def _mirrored(decision: Decision, base: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keys of version 1 for openmed-onnx.json and for config.json.

    If the state is unknown there is no loss to tell; `certified` is false, and the report says why.
    """
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
    return {**shared, "certification": certification}, {**shared, "_onnx_quantization": quantization}
