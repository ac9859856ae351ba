"""Claims about an artifact, and the bytes that each claim is bound to."""

from typing import Literal, Self

from pydantic import model_validator

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Count, Document, Items, Text

LOSS = "quant_recall_delta"
"""The check whose value is the largest loss of recall of any label against the full-precision parent."""
LIMIT = 0.005
"""The most that a certified artifact may lose, if nothing names another limit: that of the gate G4."""


class Check(Document):
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

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError("the interval ends before it begins")
        if self.name == LOSS and self.verdict == "pass" and self.exceeds:
            raise ValueError(
                f"{LOSS} is {self.value:g}, its limit is {self.limit:g}, and its verdict is pass"
            )
        return self

    @property
    def label(self) -> str:
        """The name, with the metric unless the name has it: each check with a direction names its metric."""
        is_named = self.direction is not None or self.name.startswith(self.metric)
        return self.name if is_named else f"{self.name}/{self.metric}"

    @property
    def exceeds(self) -> bool:
        """True if the value of a loss is above its limit."""
        return self.value is not None and self.limit is not None and self.value > self.limit


class Evidence(Document):
    """The bytes that a verdict is bound to: artifact, full-precision parent, evaluation suite, report.

    `synthetic`: True if the suite says that its texts are synthetic; None if it does not say.
    """

    artifact: Digest
    parent: Digest | None = None
    suite: Digest | None = None
    report: Digest | None = None
    synthetic: bool | None = None


class ArtifactCertification(Document):
    """The certification of an artifact: its state, the rule, and the reasons."""

    state: Literal["certified", "refused", "unknown"]
    rule: Text | None = None
    reasons: Items[Text] = ()
    evidence: Evidence | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.state == "certified":
            for key in ("artifact", "parent", "suite"):
                if getattr(self.evidence, key, None) is None:
                    raise ValueError(f"certified without evidence of the {key}")
        return self
