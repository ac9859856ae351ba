"""Later evaluations: measurements of published bytes, bound to the artifact, its parent and the suite.

Two documents say it: the `recall_delta.json` that an export writes, and a short one for other tools:

    {"format": "onnxreg-evaluation", "format_version": 1, "artifact": digest, "parent"?: digest, "suite": digest,
     "state": "certified" | "refused" | "unknown", "reasons"?: [text], "synthetic"?: bool, "checks": [check]}

`checks` are those of a manifest. The loss is the check `quant_recall_delta`. The document that an export writes (a
certificate) also has `task`, `metrics` and `resampling`. With `"claimed": true` it repeats what a manifest
refuses without naming a suite: `suite` is then the digest of that manifest, since every reader wants one.
"""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import model_validator

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, First, Items, JsonObject, RelPath, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.parts import Check
from onnxreg.schema.manifest.vocabulary import LOSS
from onnxreg.schema.signing.dsse import EVALUATED, Statement

RECALL_DELTA = "application/vnd.onnxreg.recall-delta.v1+json"
EVALUATION = "application/vnd.onnxreg.evaluation.v1+json"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One verdict on one artifact. `loss` and `interval` are of the check `quant_recall_delta`.

    `suite` is None only of a refusal that a manifest claims without naming one.
    """

    artifact: Digest
    parent: Digest | None
    suite: Digest | None
    state: str
    loss: float | None = None
    interval: tuple[float, float] | None = None
    synthetic: bool | None = None


class _Int8Model(Document):
    int8_model_digest: Digest


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
    state: Literal["certified", "refused", "unknown"]
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
    """An evaluation: of another tool, or the certificate that an export writes.

    `claimed`: a manifest refuses without naming a suite; `suite` is its digest.
    """

    format: Literal["onnxreg-evaluation"]
    format_version: First
    artifact: Digest
    parent: Digest | None = None
    suite: Digest
    state: Literal["certified", "refused", "unknown"]
    reasons: Items[Text] = ()
    synthetic: bool | None = None
    checks: Items[Check] = ()
    claimed: bool = False
    task: Text | None = None
    metrics: Items[MetricRecord] = ()
    resampling: Resampling | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.claimed and self.state != "refused":
            raise ValueError("only a refusal may be claimed without a suite")
        return self


class _RecallDelta(Document):
    """The part of `recall_delta.json`, which an export writes, that is read."""

    artifact: _Int8Model
    source_digest: Digest | None = None
    suite_digest: Digest
    state: Literal["certified", "refused", "unknown"]
    quant_recall_delta: float | None = None
    quant_recall_delta_interval: tuple[float, float] | None = None
    synthetic: bool | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        interval = self.quant_recall_delta_interval
        if interval is not None and interval[0] > interval[1]:
            raise ValueError("its interval is not a pair of numbers in order")
        return self


def read_evaluation(data: bytes, label: str = "report") -> tuple[str, Evaluation]:
    """Read either document. Return its media type and its content.

    Raise InputError if it is neither, or does not say about which bytes it is.
    """
    try:
        value = canonical.decode(data, label)
        if isinstance(value, dict) and value.get("format") == "onnxreg-evaluation":
            return EVALUATION, _general(EvaluationDocument.decode(data, label))
        report = _RecallDelta.decode(data, label)
    except InputError as error:
        hint = "give a recall_delta.json that an export wrote, or the document that docs/gates.md describes"
        raise InputError(error.message, error.hint or hint) from error
    return RECALL_DELTA, Evaluation(
        report.artifact.int8_model_digest,
        report.source_digest,
        report.suite_digest,
        report.state,
        report.quant_recall_delta,
        report.quant_recall_delta_interval,
        report.synthetic,
    )


def _general(document: EvaluationDocument) -> Evaluation:
    loss = next((check for check in document.checks if check.name == LOSS), None)
    value, interval = (loss.value, loss.interval) if loss else (None, None)
    suite = None if document.claimed else document.suite
    return Evaluation(
        document.artifact, document.parent, suite, document.state, value, interval, document.synthetic
    )


def statement(report: bytes, artifact: Digest) -> bytes:
    """The in-toto statement of a report, the payload to be signed."""
    return Statement(EVALUATED, artifact, canonical.decode(report, "report")).encode()


def read_statement(payload: bytes) -> Evaluation:
    """Read a signed evaluation. InputError if it is malformed, or about another subject than its report."""
    signed = Statement.decode(payload)
    _, evaluation = read_evaluation(canonical.encode(signed.predicate), "a signed evaluation")
    if signed.digest != evaluation.artifact:
        raise InputError("a signed evaluation is about another subject than its report")
    return evaluation
