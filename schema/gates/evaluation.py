"""Later evaluations: measurements of published bytes, bound to the artifact, its parent and the suite.

An evaluation is the certificate that an export writes, or a short document of another tool:

    {"format": "onnxreg-evaluation", "format_version": 1, "artifact": digest, "parent"?: digest, "suite": digest,
     "state": "certified" | "refused" | "unknown", "reasons"?: [text], "synthetic"?: bool, "checks": [check]}

`checks` are those of a manifest. The loss is the check `quant_recall_delta`. A certificate also has `task`, `metrics` and
`resampling`.
"""

from typing import Literal

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, First, Items, JsonObject, RelPath, Text
from onnxreg.schema.core.errors import InputError
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
