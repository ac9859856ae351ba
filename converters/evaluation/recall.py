"""Per-label character recall of a parent and a candidate, and what the candidate loses.

Recall is micro-averaged over the corpus: gold characters that a prediction of the same label covers, over gold
characters. A character is a code point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onnxreg.converters.evaluation.decode import Integers
from onnxreg.converters.evaluation.suite import Fixture

RESAMPLES = 1000
SEED = 0

Floats = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Tally:
    """Counts of characters. The first three have the shape (fixtures, labels), the last one (labels,).

    `claimed` counts the characters that the parent gives a label, rightly or not.
    """

    gold: Integers
    parent: Integers
    candidate: Integers
    claimed: Integers
    characters: int


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


def tally(
    fixtures: Sequence[Fixture],
    parent: Sequence[Integers],
    candidate: Sequence[Integers],
    labels: Sequence[str],
) -> Tally:
    """Count, fixture by fixture. `parent` and `candidate` hold an index into `labels` for every character."""
    columns = {label: column for column, label in enumerate(labels)}
    shape = (len(fixtures), len(labels))
    gold, parent_hits, candidate_hits = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    claimed = np.zeros(len(labels), dtype=np.int64)
    for row, (fixture, left, right) in enumerate(zip(fixtures, parent, candidate, strict=True)):
        claimed += np.bincount(left[left >= 0], minlength=len(labels))
        for span in fixture.spans:
            column = columns.get(span.label)
            if column is not None:
                gold[row, column] += span.end - span.start
                parent_hits[row, column] += np.count_nonzero(left[span.start : span.end] == column)
                candidate_hits[row, column] += np.count_nonzero(right[span.start : span.end] == column)
    return Tally(gold, parent_hits, candidate_hits, claimed, sum(len(fixture.text) for fixture in fixtures))


def measure(
    counts: Tally, spans: Mapping[str, int], labels: Sequence[str], resampled: Floats
) -> list[LabelRecall]:
    """Per-label recall and loss, in the order of `labels`.

    `spans` counts the gold spans of a label, `resampled` is what `bootstrap` made of the counts.
    """
    return [
        _label(counts, column, label, spans.get(label, 0), resampled[:, column])
        for column, label in enumerate(labels)
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

    Whole fixtures are drawn with replacement (cluster bootstrap; Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, ch. 8), since the characters of one text are not independent. The order of the fixtures does
    not matter, and the generator is NumPy's legacy one, whose stream is frozen.
    """
    size, labels = counts.gold.shape
    result = np.full((resamples, labels), np.nan)
    if not counts.gold.size:
        return result
    rows = np.hstack([counts.gold, counts.parent - counts.candidate])
    rows = rows[np.lexsort(rows.T)]
    draws = np.random.RandomState(seed)
    for number in range(resamples):
        times = np.bincount(draws.randint(0, size, size, dtype=np.int64), minlength=size)
        total = times @ rows
        np.divide(total[labels:], total[:labels], out=result[number], where=total[:labels] > 0)
    return result


def largest_loss(resampled: Floats, columns: Sequence[int]) -> Interval | None:
    """The interval of the largest loss over some labels, at least 0; None without labels."""
    if not columns:
        return None
    losses = resampled[:, list(columns)]
    return percentiles(np.where(np.isnan(losses), 0.0, losses).max(axis=1, initial=0.0))


def percentiles(values: Floats) -> Interval | None:
    """The central 95 % of what is not NaN; None if nothing is left."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high
