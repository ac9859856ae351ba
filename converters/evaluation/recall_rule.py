"""Per-label character recall of a parent and a candidate, and the rule `G4/interval`, which certifies by it.

Recall is micro-averaged over the corpus: gold characters that a prediction of the same label covers, over gold
characters. A character is a code point.

By the rule, every label with gold must lose less than the limit. A label with too little gold, one that the parent hardly
finds itself, or one that the model does not have, proves nothing either way, so it leaves the state unknown unless
another label settles it: a loss refuses if its whole interval is at the limit or above.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.judgement import (
    Judgement,
    MetricIdentity,
    State,
    judge_loss,
    listing,
    unclear,
    unmatched,
)
from onnxreg.converters.evaluation.scores import RESAMPLES, SEED, Floats, Integers, Interval, percentiles
from onnxreg.converters.evaluation.suite import Fixture
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.record import Count, convert

RULE, POINT_RULE = "G4/interval", "G4/point"
"""The rule, and that of earlier certificates: no interval, and labels that the model lacks are only named."""
MAX_RECALL_LOSS = 0.005
MIN_GOLD_SPANS = round(1 / MAX_RECALL_LOSS)
"""With fewer gold spans of equal length, losing one is a loss of the limit or more."""

METRIC = "character_recall"


@dataclass(frozen=True)
class CharacterCounts:
    """Counts of characters. `gold`, `parent` and `candidate` have the shape (fixtures, labels), `claimed` and `spans`
    (labels,).

    `parent` and `candidate` count the gold characters that each finds, `claimed` the characters that the parent gives a
    label, rightly or not, `spans` gold spans. `groups` has the number of the group of each fixture, in order.
    """

    labels: tuple[str, ...]
    gold: Integers
    parent: Integers
    candidate: Integers
    claimed: Integers
    spans: Integers
    characters: int
    groups: Integers


@dataclass(frozen=True)
class LabelRecall:
    """The figures of one label; a rate is None if nothing was there to measure it on.

    `loss` is the parent's recall minus the candidate's: negative if the candidate finds more. Its interval is None if all gold
    is in one group: every resample gives the same then.
    `false_alarms` is the share of the characters outside the label's gold that the parent gives the label,
    and `informedness` the parent's recall minus that (Youden's J: 0 for a model that guesses, whatever it
    guesses).
    """

    label: str
    spans: int
    characters: int
    parent: float | None = None
    candidate: float | None = None
    loss: float | None = None
    interval: Interval | None = None
    false_alarms: float | None = None
    informedness: float | None = None


@dataclass(frozen=True)
class MinimumEvidence:
    """Below these a label proves nothing.

    `gold_chars` is at least 1. `parent_recall`, above 0 and at most 1, is what the parent's recall above
    chance (its informedness) must reach. Raise InputError if they are out of range.
    """

    gold_chars: int = 200
    parent_recall: float = 0.5

    def __post_init__(self) -> None:
        if self.gold_chars < 1:
            raise InputError(f"the least number of gold characters is {self.gold_chars}", "it is at least 1")
        if not 0.0 < self.parent_recall <= 1.0:
            raise InputError(
                f"the least parent recall is {self.parent_recall}",
                "it is above 0 and at most 1: a share, not a percentage",
            )


@dataclass(frozen=True)
class Decision:
    """`gated` are the labels that were judged; `largest_loss` is theirs, at least 0, None without any."""

    state: State
    reasons: tuple[str, ...]
    gated: tuple[LabelRecall, ...]
    largest_loss: float | None
    states: Mapping[str, State] = field(default_factory=dict)
    """Those of the labels that were judged."""

    @property
    def offending(self) -> tuple[LabelRecall, ...]:
        return tuple(item for item in self.gated if over_limit(item))


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
            verdict = _VERDICTS[decision.states.get(item.label, "unknown")]
            checks.append(
                {
                    "name": f"{METRIC}/{item.label}",
                    "metric": METRIC,
                    "value": item.candidate,
                    "verdict": verdict,
                }
                | {"samples": item.spans, "dataset": dataset}
            )
        checks.append(
            {
                "name": "quant_recall_delta",
                "metric": METRIC,
                "value": decision.largest_loss,
                "verdict": _VERDICTS[decision.state],
            }
            | {
                "limit": MAX_RECALL_LOSS,
                "samples": sum(item.spans for item in decision.gated),
                "dataset": dataset,
            }
            | ({"interval": list(self.interval)} if self.interval else {})
        )
        return checks


_VERDICTS = {"certified": "pass", "refused": "fail", "unknown": "unknown"}
"""The verdict of a check, by a state."""


def judge_recall(
    metric: MetricIdentity,
    counts: CharacterCounts,
    limit: float,
    settings: Mapping[str, Any],
    rule: str = RULE,
) -> RecallJudgement:
    """Apply the rule, by default `G4/interval`, to the counts of characters. InputError for a rule that the metric lacks."""
    if rule not in (RULE, POINT_RULE):
        raise InputError(f"{metric.id} has no rule {rule[:80]!r}", f"it has {RULE} and {POINT_RULE}")
    minimum = read_minimum_evidence(settings)
    others = convert(settings.get("other_labels", {}), dict[str, Count])
    resampled = resample_losses(counts)
    measured = label_recalls(counts, resampled)
    fixtures = len(counts.groups)
    decision = decide(measured, others, fixtures, minimum, rule, settings.get("margin", False))
    if excluded := convert(settings.get("excluded_labels", {}), dict[str, Any]):
        note = f"excluded by name, so not judged: {listing(list(excluded))}"
        decision = replace(decision, reasons=(*decision.reasons, note))
    gold = int(counts.gold.sum())
    return RecallJudgement(
        metric=metric,
        rule=rule,
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


def decide(
    measured: Sequence[LabelRecall],
    foreign: Mapping[str, int],
    fixtures: int,
    minimum: MinimumEvidence,
    rule: str = RULE,
    margin: bool = False,
) -> Decision:
    """Apply the rule.

    Args:
        foreign: the gold labels that the model does not have, with their spans.
        margin: certify only labels whose whole interval is below the limit.
    """
    with_gold = [item for item in measured if item.characters]
    weak = [reason for item in with_gold if (reason := weakness(item, minimum))]
    gated = tuple(item for item in with_gold if weakness(item, minimum) is None)
    notes = (
        [f"no gold, so not judged: {listing(without)}"]
        if (without := _without(measured)) and with_gold
        else []
    )
    if rule == POINT_RULE:
        states: dict[str, State] = {
            item.label: "refused" if over_limit(item) else "certified" for item in gated
        }
        notes += [f"gold labels that the model does not have: {listing(list(foreign))}"] if foreign else []
        unmatched_labels = []
    else:
        states = {
            item.label: judge_loss(item.loss or 0.0, item.interval, MAX_RECALL_LOSS, margin) for item in gated
        }
        unmatched_labels = [unmatched(foreign, [item.label for item in measured])] if foreign else []
    loses = {item.label: f"{item.label} loses {item.loss or 0.0:.3g} of its recall" for item in gated}
    lost = [
        f"{loses[label]}, the limit is below {MAX_RECALL_LOSS}"
        for label in states
        if states[label] == "refused"
    ]
    unknown = [
        unclear(loses[item.label], item.interval, MAX_RECALL_LOSS)
        for item in gated
        if states[item.label] == "unknown"
    ]
    largest = max((max(item.loss or 0.0, 0.0) for item in gated), default=None)
    open_questions = (*unknown, *weak, *unmatched_labels)
    if lost:
        return Decision("refused", (*lost, *open_questions, *notes), gated, largest, states)
    if open_questions or largest is None:
        nothing = _nothing(fixtures, with_gold)
        return Decision("unknown", (*nothing, *open_questions, *notes), gated, largest, states)
    proof = (
        f"no label loses {MAX_RECALL_LOSS} or more; judged: {listing([item.label for item in gated])}, each with at least "
        f"{minimum.gold_chars} gold characters and a parent's recall above chance of at least {minimum.parent_recall}"
    )
    wide = [item for item in gated if item.interval and not item.interval[1] < MAX_RECALL_LOSS]
    if wide and rule != POINT_RULE:
        reach = [f"{item.label} (to {item.interval[1]:.3g})" for item in wide if item.interval]
        notes.insert(0, f"the interval is above the limit: {listing(reach)}")
    return Decision("certified", (proof, *notes), gated, largest, states)


def label_recalls(counts: CharacterCounts, resampled: Floats) -> list[LabelRecall]:
    """Per-label recall and loss, in the order of the labels; `resampled` is what `resample_losses` made of the counts."""
    return [
        _label(counts, column, label, int(counts.spans[column]), resampled[:, column])
        for column, label in enumerate(counts.labels)
    ]


def resample_losses(counts: CharacterCounts, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """The loss of every label in resampled suites: (resamples, labels), NaN if a resample has no gold.

    Whole groups of fixtures are drawn with replacement (see `scores.draws`), since the characters of one text are not
    independent. The order of the fixtures does not matter.
    """
    labels = len(counts.labels)
    result = np.full((resamples, labels), np.nan)
    if not counts.gold.size:
        return result
    rows = _sums(np.hstack([counts.gold, counts.parent - counts.candidate]), counts.groups)
    rows, size = rows[np.lexsort(rows.T)], len(rows)
    draws = np.random.RandomState(seed)
    for resample in range(resamples):
        times = np.bincount(draws.randint(0, size, size, dtype=np.int64), minlength=size)
        total = times @ rows
        np.divide(total[labels:], total[:labels], out=result[resample], where=total[:labels] > 0)
    return result


def largest_loss(resampled: Floats, columns: Sequence[int]) -> Interval | None:
    """The interval of the largest loss over some labels, at least 0; None without labels."""
    if not columns:
        return None
    losses = resampled[:, list(columns)]
    return percentiles(np.where(np.isnan(losses), 0.0, losses).max(axis=1, initial=0.0))


def over_limit(item: LabelRecall) -> bool:
    """Strictly below the limit passes."""
    return item.loss is not None and not item.loss < MAX_RECALL_LOSS


def thin_evidence(fixtures: Sequence[Fixture], gold_chars: int) -> Iterator[str]:
    """Yield the reasons, by its gold alone, for which a suite is too small to judge a model."""
    characters, spans = Counter[str](), Counter[str]()
    for span in (span for fixture in fixtures for span in fixture.spans):
        characters[span.label] += span.end - span.start
        spans[span.label] += 1
    unjudged = sorted(label for label, count in characters.items() if count < gold_chars)
    few = sorted(label for label, count in spans.items() if count < MIN_GOLD_SPANS and label not in unjudged)
    if unjudged:
        yield (
            f"the suite has fewer than {gold_chars} gold characters of {listing(unjudged)}: what they lose cannot be "
            "judged, so nothing can be certified"
        )
    if few:
        yield (
            f"the suite has fewer than {MIN_GOLD_SPANS} gold spans of {listing(few)}: one lost span is a loss of the limit, so "
            "the verdict may be unclear; --dry-run judges without publishing"
        )


def weakness(item: LabelRecall, minimum: MinimumEvidence) -> str | None:
    """The reason for which a label with gold cannot be judged; None if it can."""
    if item.characters < minimum.gold_chars:
        return f"{item.label} has {item.characters} gold characters, {minimum.gold_chars} are needed"
    if item.informedness is None or item.informedness < minimum.parent_recall:
        return (
            f"the parent itself finds too little of {item.label}: recall {item.parent or 0.0:.4f}, false alarms on "
            f"{item.false_alarms or 0.0:.4f} of the other characters, the difference must reach {minimum.parent_recall}"
        )
    return None


def read_minimum_evidence(settings: Mapping[str, Any]) -> MinimumEvidence:
    """Read the least evidence among the settings of the metric. Raises InputError if they are malformed or out of range."""
    default = MinimumEvidence()
    return MinimumEvidence(
        convert(settings.get("min_gold_chars", default.gold_chars), Count),
        convert(settings.get("min_parent_recall", default.parent_recall), float),
    )


def _label(counts: CharacterCounts, column: int, label: str, spans: int, losses: Floats) -> LabelRecall:
    gold = int(counts.gold[:, column].sum())
    if gold == 0:
        return LabelRecall(label, spans, gold)
    parent_hits, candidate_hits = int(counts.parent[:, column].sum()), int(counts.candidate[:, column].sum())
    outside, alarms = counts.characters - gold, int(counts.claimed[column]) - parent_hits
    rate = alarms / outside if outside else 1.0
    groups = len(np.unique(counts.groups[counts.gold[:, column] > 0]))
    return LabelRecall(
        label,
        spans,
        gold,
        parent=parent_hits / gold,
        candidate=candidate_hits / gold,
        loss=(parent_hits - candidate_hits) / gold,
        interval=percentiles(losses) if groups > 1 else None,
        false_alarms=rate,
        informedness=parent_hits / gold - rate,
    )


def _sums(rows: Integers, groups: Integers) -> Integers:
    """Add the rows of each group."""
    sums = np.zeros((int(groups.max()) + 1, rows.shape[1]), dtype=np.int64)
    np.add.at(sums, groups, rows)
    return sums


def _nothing(fixtures: int, with_gold: Sequence[LabelRecall]) -> list[str]:
    if not fixtures:
        return ["the evaluation suite is empty"]
    return [] if with_gold else ["the evaluation suite has no gold for any label of the model"]


def _without(measured: Sequence[LabelRecall]) -> list[str]:
    return [item.label for item in measured if not item.characters]
