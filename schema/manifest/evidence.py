"""Claims about an artifact, and the bytes that each claim is bound to."""

from typing import Literal

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, Items, RuledDocument, Text
from onnxreg.schema.manifest.rules import ArtifactCertificationRules, CheckRules


class Check(CheckRules, RuledDocument):
    """A measured claim.

    `value` is None if it could not be measured; `dataset` is the digest of the data it was measured on;
    `interval` is a 95 % interval of the value, if one was computed; `direction` says which values are better.
    """

    name: Text
    metric: Text
    value: float | None
    verdict: Literal["pass", "fail", "unknown", "info"]
    limit: float | None = None
    samples: Count | None = None
    dataset: Digest | None = None
    interval: tuple[float, float] | None = None
    direction: Literal["higher", "lower"] | None = None


class Evidence(Document):
    """The bytes that a verdict is bound to: artifact, full-precision parent, evaluation suite, report.

    `synthetic`: True if the suite says that its texts are synthetic; None if it does not say.
    """

    artifact: Digest
    parent: Digest | None = None
    suite: Digest | None = None
    report: Digest | None = None
    synthetic: bool | None = None


class ArtifactCertification(ArtifactCertificationRules, RuledDocument):
    """The certification of an artifact: its state, the rule, and the reasons."""

    state: Literal["certified", "refused", "unknown"]
    rule: Text | None = None
    reasons: Items[Text] = ()
    evidence: Evidence | None = None
