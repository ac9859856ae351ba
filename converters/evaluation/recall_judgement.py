"""The judgement of character recall by the rule `G4/point`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.evaluation.judgement import Judgement, MetricIdentity
from onnxreg.converters.evaluation.recall_rule import (
    MAX_RECALL_LOSS,
    RULE,
    CharacterCounts,
    Decision,
    LabelRecall,
    MinimumEvidence,
    decide,
    label_recalls,
    largest_loss,
    over_limit,
    resample_losses,
)
from onnxreg.schema.core.codec import count, mapping, number

METRIC = "character_recall"


@dataclass(frozen=True, kw_only=True)
class RecallJudgement(Judgement):
    """A judgement with the figures of each label. `other_labels` counts gold spans of labels that the model lacks."""

    measured: Sequence[LabelRecall]
    decision: Decision
    minimum_evidence: MinimumEvidence
    other_labels: Mapping[str, int]

    def checks(self, name: str, dataset: str) -> list[dict[str, Any]]:
        """One check per label, its value the candidate's recall, and one for the largest loss; `samples` are gold spans."""
        decision = self.decision
        checks: list[dict[str, Any]] = []
        for item in self.measured:
            verdict = "unknown"
            if item in decision.gated:
                verdict = "fail" if over_limit(item) else "pass"
            checks.append(
                {
                    "name": f"{METRIC}/{item.label}",
                    "metric": METRIC,
                    "value": item.candidate,
                    "verdict": verdict,
                }
                | {"samples": item.spans, "dataset": dataset}
            )
        overall = {"certified": "pass", "refused": "fail"}.get(decision.state, "unknown")
        checks.append(
            {
                "name": "quant_recall_delta",
                "metric": METRIC,
                "value": decision.largest_loss,
                "verdict": overall,
            }
            | {
                "limit": MAX_RECALL_LOSS,
                "samples": sum(item.spans for item in decision.gated),
                "dataset": dataset,
            }
            | ({"interval": list(self.interval)} if self.interval else {})
        )
        return checks


def read_minimum_evidence(settings: Mapping[str, Any]) -> MinimumEvidence:
    """Read the least evidence among the settings of the metric. Raises InputError if they are malformed or out of range."""
    default = MinimumEvidence()
    return MinimumEvidence(
        count(settings.get("min_gold_chars", default.gold_chars)),
        number(settings.get("min_parent_recall", default.parent_recall)),
    )


def judge_recall(
    metric: MetricIdentity, counts: CharacterCounts, limit: float, settings: Mapping[str, Any]
) -> RecallJudgement:
    """Apply the rule `G4/point` to the counts of characters."""
    minimum = read_minimum_evidence(settings)
    others = {label: count(spans) for label, spans in mapping(settings.get("other_labels", {})).items()}
    resampled = resample_losses(counts)
    measured = label_recalls(counts, resampled)
    fixtures = len(counts.groups)
    decision = decide(measured, list(others), fixtures, minimum)
    gold = int(counts.gold.sum())
    return RecallJudgement(
        metric=metric,
        rule=RULE,
        limit=limit,
        parent=int(counts.parent.sum()) / gold if gold else None,
        value=int(counts.candidate.sum()) / gold if gold else None,
        loss=decision.largest_loss,
        interval=largest_loss(resampled, [measured.index(item) for item in decision.gated]),
        samples=fixtures,
        groups=int(counts.groups[-1]) + 1 if fixtures else 0,
        state=decision.state,
        reasons=decision.reasons,
        settings=settings,
        measured=measured,
        decision=decision,
        minimum_evidence=minimum,
        other_labels=others,
    )
