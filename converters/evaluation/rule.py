"""The rule `G4/point`: what lets an INT8 token classifier be called certified.

Every label with gold must lose less than the limit. A label with too little gold, or one that the parent hardly
finds itself, proves nothing either way, so it leaves the state unknown unless another label settles it: a loss
that is proved refuses.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnxreg.converters.evaluation.fixture import Fixture
from onnxreg.converters.evaluation.judgement import State
from onnxreg.converters.evaluation.recall import LabelRecall
from onnxreg.schema.core.errors import InputError

RULE = "G4/point"
MAX_RECALL_LOSS = 0.005
MIN_GOLD_SPANS = round(1 / MAX_RECALL_LOSS)
"""With fewer gold spans of equal length, losing one is a loss of the limit or more."""
MAX_LISTED_LABELS = 20
"""Labels that one reason names."""


@dataclass(frozen=True)
class Floors:
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

    @property
    def offending(self) -> tuple[LabelRecall, ...]:
        return tuple(item for item in self.gated if over_limit(item))


def over_limit(item: LabelRecall) -> bool:
    """Strictly below the limit passes."""
    return item.loss is not None and not item.loss < MAX_RECALL_LOSS


def decide(
    measured: Sequence[LabelRecall], foreign: Sequence[str], fixtures: int, floors: Floors
) -> Decision:
    """Apply the rule. `foreign` are the gold labels that the model does not have; they are named, not judged."""
    with_gold = [item for item in measured if item.characters]
    weak = [reason for item in with_gold if (reason := weakness(item, floors))]
    gated = tuple(item for item in with_gold if weakness(item, floors) is None)
    lost = [
        f"{item.label} loses {item.loss:.3g} of its recall, the limit is below {MAX_RECALL_LOSS}"
        for item in gated
        if over_limit(item)
    ]
    notes = _notes(measured, foreign, bool(with_gold))
    largest = max((max(item.loss or 0.0, 0.0) for item in gated), default=None)
    if lost:
        return Decision("refused", (*lost, *weak, *notes), gated, largest)
    if weak or largest is None:
        return Decision("unknown", (*weak, *_nothing(fixtures, with_gold), *notes), gated, largest)
    proof = (
        f"no label loses {MAX_RECALL_LOSS} or more; judged: {_list([item.label for item in gated])}, each with at least "
        f"{floors.gold_chars} gold characters and a parent's recall above chance of at least {floors.parent_recall}"
    )
    return Decision("certified", (proof, *notes), gated, largest)


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
            f"the suite has fewer than {gold_chars} gold characters of {_list(unjudged)}: what they lose cannot be "
            "judged, so nothing can be certified"
        )
    if few:
        yield (
            f"the suite has fewer than {MIN_GOLD_SPANS} gold spans of {_list(few)}: one lost span refuses, and a published "
            "refusal holds for these bytes in every version"
        )


def weakness(item: LabelRecall, floors: Floors) -> str | None:
    """The reason for which a label with gold cannot be judged; None if it can."""
    if item.characters < floors.gold_chars:
        return f"{item.label} has {item.characters} gold characters, {floors.gold_chars} are needed"
    if item.informedness is None or item.informedness < floors.parent_recall:
        return (
            f"the parent itself finds too little of {item.label}: recall {item.parent or 0.0:.4f}, false alarms on "
            f"{item.false_alarms or 0.0:.4f} of the other characters, the difference must reach {floors.parent_recall}"
        )
    return None


def _nothing(fixtures: int, with_gold: Sequence[LabelRecall]) -> list[str]:
    if not fixtures:
        return ["the evaluation suite is empty"]
    return [] if with_gold else ["the evaluation suite has no gold for any label of the model"]


def _notes(measured: Sequence[LabelRecall], foreign: Sequence[str], any_gold: bool) -> list[str]:
    without = [item.label for item in measured if not item.characters]
    notes = [f"no gold, so not judged: {_list(without)}"] if without and any_gold else []
    if foreign:
        notes.append(f"gold labels that the model does not have: {_list(foreign)}")
    return notes


def _list(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - MAX_LISTED_LABELS} more" if len(labels) > MAX_LISTED_LABELS else ""
    return ", ".join(label[:80] for label in labels[:MAX_LISTED_LABELS]) + more
