"""Metrics of labelled spans in texts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import NOTHING
from onnxreg.converters.evaluation.judgement import Judgement
from onnxreg.converters.evaluation.metrics.metric import Metric, strict_entities
from onnxreg.converters.evaluation.recall_rule import (
    MAX_RECALL_LOSS,
    METRIC,
    RULE,
    CharacterCounts,
    judge_recall,
    read_minimum_evidence,
    thin_evidence,
)
from onnxreg.converters.evaluation.scores import Floats, ScoreTable
from onnxreg.converters.evaluation.suite import Fixture
from onnxreg.schema.core.errors import InputError

TASKS = frozenset({"token-classification"})
MINIMUM_SETTINGS = ("min_gold_chars", "min_parent_recall")
PER_LABEL = ("gold", "hits", "predicted", "spans")
"""Counts of a label in one text: gold characters, those found, characters that got the label, gold spans."""


class SpanMetric(Metric):
    """A metric of spans. Gold of a label that the model does not have leaves the verdict unknown."""

    tasks = TASKS

    def settings(self, items: Sequence[Fixture], labels: Sequence[str]) -> Mapping[str, Any]:
        spans = Counter(span.label for item in items for span in item.spans)
        return {"other_labels": {label: spans[label] for label in sorted(spans.keys() - set(labels))}}


class CharacterRecall(SpanMetric):
    """The share of a label's gold characters that a prediction of the same label covers; the rule is `G4/interval`.

    Its value over all labels is the share of all gold characters.
    """

    id = METRIC
    limit = MAX_RECALL_LOSS

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("characters", *(f"{count}/{label}" for label in labels for count in PER_LABEL))

    def scores(
        self,
        items: Sequence[Fixture],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        return np.array(
            [_counts(item, prediction, labels) for item, prediction in zip(items, predictions, strict=True)],
            dtype=np.float64,
        ).reshape(len(items), len(self.columns(labels)))

    def value(self, rows: Floats) -> float:
        gold, hits = (rows[:, 1 + index :: len(PER_LABEL)].sum() for index in (0, 1))
        return float(hits / gold) if gold else 0.0

    def check(self, limit: float, settings: Mapping[str, Any]) -> None:
        if limit != self.limit:
            raise InputError(
                f"{self.id} has the limit of G4, {self.limit}, not {limit:g}",
                "leave the limit out, or judge by span_f1",
            )
        if unknown := sorted(settings.keys() - MINIMUM_SETTINGS):
            raise InputError(
                f"{self.id} has no setting {unknown[0][:80]!r}", f"it has {' and '.join(MINIMUM_SETTINGS)}"
            )
        read_minimum_evidence(settings)

    def warnings(self, items: Sequence[Fixture], groups: int, settings: Mapping[str, Any]) -> Iterator[str]:
        yield from thin_evidence(items, read_minimum_evidence(settings).gold_chars)

    def judge(
        self, table: ScoreTable, limit: float, settings: Mapping[str, Any], rule: str = RULE
    ) -> Judgement:
        return judge_recall(self.identity, tally_of(table), limit, settings, rule)


class SpanF1(SpanMetric):
    """Strict F1 of spans: text, label and both ends agree (`seqeval`, mode strict, IOB2), over all labels."""

    id = "span_f1"
    limit = 0.01
    is_default = False

    def columns(self, labels: Sequence[str]) -> tuple[str, ...]:
        return ("hits", "predicted", "gold")

    def scores(
        self,
        items: Sequence[Fixture],
        predictions: Sequence[Any],
        reference: Sequence[Any],
        labels: Sequence[str],
    ) -> Floats:
        rows = []
        for item, prediction in zip(items, predictions, strict=True):
            expected = strict_entities(_gold_tags(item))
            predicted = strict_entities(list(_tags(prediction.tolist(), labels)))
            rows.append((len(expected & predicted), len(predicted), len(expected)))
        return np.array(rows, dtype=np.float64).reshape(len(items), 3)

    def value(self, rows: Floats) -> float:
        hits, predicted, gold = rows.sum(axis=0).tolist()
        return 2 * hits / (predicted + gold) if predicted + gold else 0.0


def tally_of(table: ScoreTable) -> CharacterCounts:
    """The counts of characters that G4 needs, from the table of `CharacterRecall`."""
    labels = tuple(name.partition("/")[2] for name in table.columns[1 :: len(PER_LABEL)])
    parent, candidate = (side[:, 1:].astype(np.int64) for side in (table.parent, table.candidate))
    step = len(PER_LABEL)
    return CharacterCounts(
        labels=labels,
        gold=parent[:, 0::step],
        parent=parent[:, 1::step],
        candidate=candidate[:, 1::step],
        claimed=parent[:, 2::step].sum(axis=0),
        spans=parent[:, 3::step].sum(axis=0),
        characters=int(table.parent[:, 0].sum()),
        groups=table.groups,
    )


def _counts(item: Fixture, prediction: Any, labels: Sequence[str]) -> list[int]:
    counts = np.zeros((len(labels), len(PER_LABEL)), dtype=np.int64)
    numbers = {label: number for number, label in enumerate(labels)}
    counts[:, 2] = np.bincount(prediction[prediction >= 0], minlength=len(labels))
    for span in item.spans:
        number = numbers.get(span.label)
        if number is not None:
            hits = np.count_nonzero(prediction[span.start : span.end] == number)
            counts[number] += (span.end - span.start, hits, 0, 1)
    return [len(item.text), *counts.ravel().tolist()]


def _tags(labels_of_text: Sequence[int], labels: Sequence[str]) -> Iterator[str]:
    """IOB2 tags, one for each character."""
    for before, label in pairwise([NOTHING, *labels_of_text]):
        yield "O" if label == NOTHING else f"{'I' if label == before else 'B'}-{labels[label]}"


def _gold_tags(item: Fixture) -> list[str]:
    """IOB2 tags of the gold; if spans of different labels nest, the one that begins first, then the longer, counts."""
    tags = ["O"] * len(item.text)
    for span in sorted(item.spans, key=lambda span: (span.start, -span.end)):
        if all(tag == "O" for tag in tags[span.start : span.end]):
            tags[span.start : span.end] = [
                f"B-{span.label}",
                *[f"I-{span.label}"] * (span.end - span.start - 1),
            ]
    return tags
