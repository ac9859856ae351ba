"""Metrics of labelled spans in texts: strict F1, and the recall of characters that OpenMed's gate G4 judges.

Recall is micro-averaged over the corpus: gold characters that a prediction of the same label covers, over gold
characters. A character is a code point. By the rule `G4/interval`, every label with gold must lose less than the limit.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import NOTHING
from onnxreg.converters.evaluation.judgement import CHECKED, Judgement, Part, listing, unmatched
from onnxreg.converters.evaluation.metrics.metric import Metric, library
from onnxreg.converters.evaluation.scores import (
    RESAMPLES,
    SEED,
    Floats,
    Integers,
    Interval,
    ScoreTable,
    percentiles,
)
from onnxreg.converters.evaluation.suite import Fixture
from onnxreg.schema.core.canonical import Count, convert
from onnxreg.schema.core.errors import InputError

MAX_RECALL_LOSS = 0.005
MIN_GOLD_SPANS = round(1 / MAX_RECALL_LOSS)
"""With fewer gold spans of equal length, losing one is a loss of the limit or more."""
PER_LABEL = ("gold", "hits", "predicted", "spans")
"""Counts of a label in one text: gold characters, those found, characters that got the label, gold spans."""


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

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> "MinimumEvidence":
        """Read the keys `min_gold_chars` and `min_parent_recall`. InputError if they are malformed or out of range."""
        return cls(
            convert(settings.get("min_gold_chars", cls.gold_chars), Count),
            convert(settings.get("min_parent_recall", cls.parent_recall), float),
        )


class SpanMetric(Metric):
    """A metric of spans. Gold of a label that the model does not have leaves the verdict unknown."""

    tasks = frozenset({"token-classification"})

    def settings(self, items: Sequence[Fixture], labels: Sequence[str]) -> Mapping[str, Any]:
        spans = Counter(span.label for item in items for span in item.spans)
        return {"other_labels": {label: spans[label] for label in sorted(spans.keys() - set(labels))}}


class CharacterRecall(SpanMetric):
    """The share of a label's gold characters that a prediction of the same label covers; each label is a part.

    Its value over all labels is the share of all gold characters, its loss that of the label that loses most, at least 0.
    A label with too little gold, or that the parent hardly finds itself, is not judged. The facts of a part are `spans`,
    `characters` (both of its gold) and `false_alarms`: the share of the characters outside its gold that the parent gives
    the label. Recall minus that is Youden's J, or informedness: 0 for a model that guesses, whatever it guesses.
    """

    id = "character_recall"
    rule = "G4/interval"
    limit = MAX_RECALL_LOSS

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("characters", *(f"{count}/{label}" for label in labels for count in PER_LABEL))

    def row(self, item: Fixture, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        counts = np.zeros((len(labels), len(PER_LABEL)), dtype=np.int64)
        counts[:, 2] = np.bincount(prediction[prediction >= 0], minlength=len(labels))
        for span in item.spans:
            if span.label in labels:
                number = labels.index(span.label)
                hits = np.count_nonzero(prediction[span.start : span.end] == number)
                counts[number] += (span.end - span.start, hits, 0, 1)
        return [len(item.text), *counts.ravel().tolist()]

    def value(self, rows: Floats) -> float:
        gold, hits = (rows[:, 1 + index :: len(PER_LABEL)].sum() for index in (0, 1))
        return float(hits / gold) if gold else 0.0

    def check(self, limit: float, settings: Mapping[str, Any]) -> None:
        if limit != self.limit:
            raise InputError(
                f"{self.id} has the limit of G4, {self.limit}, not {limit:g}",
                "leave the limit out, or judge by span_f1",
            )
        if unknown := sorted(settings.keys() - {"min_gold_chars", "min_parent_recall"}):
            raise InputError(
                f"{self.id} has no setting {unknown[0][:80]!r}", "it has min_gold_chars and min_parent_recall"
            )
        MinimumEvidence.read(settings)

    def warnings(self, items: Sequence[Fixture], groups: int, settings: Mapping[str, Any]) -> Iterator[str]:
        least, characters, spans = MinimumEvidence.read(settings).gold_chars, Counter[str](), Counter[str]()
        for span in (span for item in items for span in item.spans):
            characters[span.label] += span.end - span.start
            spans[span.label] += 1
        unjudged = sorted(label for label, count in characters.items() if count < least)
        few = sorted(label for label, n in spans.items() if n < MIN_GOLD_SPANS and label not in unjudged)
        if unjudged:
            yield (
                f"the suite has fewer than {least} gold characters of {listing(unjudged)}: what they lose cannot be "
                "judged, so nothing can be certified"
            )
        if few:
            yield (
                f"the suite has fewer than {MIN_GOLD_SPANS} gold spans of {listing(few)}: one lost span is a loss of the "
                "limit, so the verdict may be unclear; --dry-run judges without publishing"
            )

    def parts(self, table: ScoreTable, settings: Mapping[str, Any]) -> list[Part]:
        minimum, characters = MinimumEvidence.read(settings), int(table.parent[:, 0].sum())
        parts = []
        for name, parent, candidate in zip(*_by_label(table), strict=True):
            gold, hits, predicted, spans = parent.sum(axis=0).tolist()
            facts: dict[str, Any] = {"spans": spans, "characters": gold, "false_alarms": None}
            if not gold:
                parts.append(Part(name, facts=facts))
                continue
            kept_hits, outside = int(candidate[:, 1].sum()), characters - gold
            alarms = (predicted - hits) / outside if outside else 1.0
            recall, loss, doubts = hits / gold, (hits - kept_hits) / gold, []
            if gold < minimum.gold_chars:
                doubts.append(f"{name} has {gold} gold characters, {minimum.gold_chars} are needed")
            elif recall - alarms < minimum.parent_recall:
                doubts.append(
                    f"the parent itself finds too little of {name}: recall {recall:.4f}, false alarms on {alarms:.4f} of "
                    f"the other characters, the difference must reach {minimum.parent_recall}"
                )
            groups = len(np.unique(table.groups[parent[:, 0] > 0]))
            losing = f"{name} loses {loss:.3g} of its recall"
            facts["false_alarms"] = alarms
            parts.append(Part(name, recall, kept_hits / gold, loss, losing, groups, tuple(doubts), facts))
        return parts

    def resampled(self, table: ScoreTable) -> Floats:
        """Recall needs sums alone, so those of each group are drawn; their order is that of their values."""
        names, parents, candidates = _by_label(table)
        labels, result = len(names), np.full((RESAMPLES, len(names)), np.nan)
        if not labels or not table.group_count:
            return result
        counts = np.hstack([parents[:, :, 0].T, (parents[:, :, 1] - candidates[:, :, 1]).T])
        rows = np.zeros((table.group_count, 2 * labels), dtype=np.int64)
        np.add.at(rows, table.groups, counts)
        rows, size, generator = rows[np.lexsort(rows.T)], len(rows), np.random.RandomState(SEED)
        for resample in range(RESAMPLES):
            times = np.bincount(generator.randint(0, size, size, dtype=np.int64), minlength=size)
            total = times @ rows
            np.divide(total[labels:], total[:labels], out=result[resample], where=total[:labels] > 0)
        return result

    def worst(self, parts: Sequence[Part], losses: Floats) -> tuple[float | None, Interval | None]:
        columns = [number for number, part in enumerate(parts) if part.state is not None]
        if not columns:
            return None, None
        largest = max(max(parts[number].loss or 0.0, 0.0) for number in columns)
        drawn = np.nan_to_num(losses[:, columns], nan=0.0).max(axis=1, initial=0.0)
        return largest, percentiles(drawn)

    def doubts(self, samples: int, parts: Sequence[Part], settings: Mapping[str, Any]) -> list[str]:
        others = convert(settings.get("other_labels", {}), dict[str, Count])
        doubts = [] if samples else ["the evaluation suite is empty"]
        if samples and all(part.loss is None for part in parts):
            doubts = ["the evaluation suite has no gold for any label of the model"]
        return doubts + ([unmatched(others, [part.name for part in parts])] if others else [])

    def proof(self, parts: Sequence[Part], limit: float, settings: Mapping[str, Any]) -> list[str]:
        minimum = MinimumEvidence.read(settings)
        wide = [part for part in parts if part.interval and part.interval[1] >= limit]
        reach = [f"{part.name} (to {part.interval[1]:.3g})" for part in wide if part.interval]
        judged = listing([part.name for part in parts])
        proof = (
            f"no label loses {limit} or more; judged: {judged}, each with at least {minimum.gold_chars} gold characters "
            f"and a parent's recall above chance of at least {minimum.parent_recall}"
        )
        return [proof, *([f"the interval is above the limit: {listing(reach)}"] if reach else [])]

    def notes(self, parts: Sequence[Part], settings: Mapping[str, Any]) -> list[str]:
        without = [part.name for part in parts if part.loss is None]
        excluded = convert(settings.get("excluded_labels", {}), dict[str, Any])
        notes = [f"no gold, so not judged: {listing(without)}"] if 0 < len(without) < len(parts) else []
        return notes + ([f"excluded by name, so not judged: {listing(list(excluded))}"] if excluded else [])

    def checks(self, judgement: Judgement, name: str, dataset: str) -> list[dict[str, Any]]:
        """One check per label, its value the candidate's recall, and one for the largest loss; `samples` are gold spans."""
        judged = [part for part in judgement.parts if part.state is not None]
        largest = {
            "name": "quant_recall_delta",
            "metric": self.id,
            "value": judgement.loss,
            "verdict": CHECKED[judgement.state],
            "limit": MAX_RECALL_LOSS,
            "samples": sum(part.facts["spans"] for part in judged),
            "dataset": dataset,
        }
        labels = [
            {
                "name": f"{self.id}/{part.name}",
                "metric": self.id,
                "value": part.value,
                "verdict": CHECKED[part.state or "unknown"],
                "samples": part.facts["spans"],
                "dataset": dataset,
            }
            for part in judgement.parts
        ]
        return [*labels, largest | ({"interval": list(judgement.interval)} if judgement.interval else {})]


def _by_label(table: ScoreTable) -> tuple[list[str], Integers, Integers]:
    """The labels, and the counts `PER_LABEL` of the parent and the candidate, int64 `[labels, items, counts]`."""
    names = [name.partition("/")[2] for name in table.columns[1 :: len(PER_LABEL)]]
    shape = (len(table.groups), len(names), len(PER_LABEL))
    parent, candidate = (
        side[:, 1:].astype(np.int64).reshape(shape).transpose(1, 0, 2)
        for side in (table.parent, table.candidate)
    )
    return names, parent, candidate


class SpanF1(SpanMetric):
    """Strict F1 of spans: text, label and both ends agree (`seqeval`, mode strict, IOB2), over all labels."""

    id = "span_f1"
    limit = 0.01
    is_default = False

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("hits", "predicted", "gold")

    def row(self, item: Fixture, prediction: Any, reference: Any, labels: Sequence[str]) -> Sequence[float]:
        expected, predicted = map(_entities, (_gold_tags(item), _tags(prediction.tolist(), labels)))
        return (len(expected & predicted), len(predicted), len(expected))

    def value(self, rows: Floats) -> float:
        hits, predicted, gold = rows.sum(axis=0).tolist()
        return 2 * hits / (predicted + gold) if predicted + gold else 0.0


def _entities(tags: list[str]) -> set[Any]:
    scheme = library("seqeval.scheme")
    return set(scheme.Entities([tags], scheme.IOB2).entities[0])


def _tags(labels_of_text: Sequence[int], labels: Sequence[str]) -> list[str]:
    """IOB2 tags, one for each character."""
    return [
        "O" if label == NOTHING else f"{'I' if label == before else 'B'}-{labels[label]}"
        for before, label in pairwise([NOTHING, *labels_of_text])
    ]


def _gold_tags(item: Fixture) -> list[str]:
    """IOB2 tags of the gold; if spans of different labels nest, the one that begins first, then the longer, counts."""
    tags = ["O"] * len(item.text)
    for span in sorted(item.spans, key=lambda span: (span.start, -span.end)):
        if all(tag == "O" for tag in tags[span.start : span.end]):
            inside = [f"I-{span.label}"] * (span.end - span.start - 1)
            tags[span.start : span.end] = [f"B-{span.label}", *inside]
    return tags
