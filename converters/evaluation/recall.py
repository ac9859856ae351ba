"""Per-label character recall of a parent and a candidate, and what the candidate loses.

Recall is micro-averaged over the corpus: gold characters that a prediction of the same label covers, over gold
characters. A character is a code point.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxreg.converters.evaluation.resample import RESAMPLES, SEED, Interval, percentiles
from onnxreg.converters.evaluation.scores import Floats, Integers


@dataclass(frozen=True)
class Tally:
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

    `loss` is the parent's recall minus the candidate's: negative if the candidate finds more.
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


def measure(counts: Tally, resampled: Floats) -> list[LabelRecall]:
    """Per-label recall and loss, in the order of the labels; `resampled` is what `bootstrap` made of the counts."""
    return [
        _label(counts, column, label, int(counts.spans[column]), resampled[:, column])
        for column, label in enumerate(counts.labels)
    ]


def _label(counts: Tally, column: int, label: str, spans: int, losses: Floats) -> LabelRecall:
    gold = int(counts.gold[:, column].sum())
    if gold == 0:
        return LabelRecall(label, spans, gold)
    parent_hits, candidate_hits = int(counts.parent[:, column].sum()), int(counts.candidate[:, column].sum())
    outside, alarms = counts.characters - gold, int(counts.claimed[column]) - parent_hits
    rate = alarms / outside if outside else 1.0
    return LabelRecall(
        label,
        spans,
        gold,
        parent=parent_hits / gold,
        candidate=candidate_hits / gold,
        loss=(parent_hits - candidate_hits) / gold,
        interval=percentiles(losses),
        false_alarms=rate,
        informedness=parent_hits / gold - rate,
    )


def bootstrap(counts: Tally, resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """The loss of every label in resampled suites: (resamples, labels), NaN if a resample has no gold.

    Whole groups of fixtures are drawn with replacement (see `resample`), since the characters of one text are not
    independent. The order of the fixtures does not matter.
    """
    labels = len(counts.labels)
    result = np.full((resamples, labels), np.nan)
    if not counts.gold.size:
        return result
    rows = _sums(np.hstack([counts.gold, counts.parent - counts.candidate]), counts.groups)
    rows, size = rows[np.lexsort(rows.T)], len(rows)
    draws = np.random.RandomState(seed)
    for number in range(resamples):
        times = np.bincount(draws.randint(0, size, size, dtype=np.int64), minlength=size)
        total = times @ rows
        np.divide(total[labels:], total[:labels], out=result[number], where=total[:labels] > 0)
    return result


def _sums(rows: Integers, groups: Integers) -> Integers:
    """Add the rows of each group."""
    sums = np.zeros((int(groups.max()) + 1, rows.shape[1]), dtype=np.int64)
    np.add.at(sums, groups, rows)
    return sums


def largest_loss(resampled: Floats, columns: Sequence[int]) -> Interval | None:
    """The interval of the largest loss over some labels, at least 0; None without labels."""
    if not columns:
        return None
    losses = resampled[:, list(columns)]
    return percentiles(np.where(np.isnan(losses), 0.0, losses).max(axis=1, initial=0.0))
