"""Convert spans to one BIO tag per token, and back; measure the recall of predicted spans."""

from collections import Counter
from collections.abc import Sequence

from pii_data import LABELS, Sentence, Span

OUTSIDE = "O"
TAGS = (OUTSIDE, *(f"{position}-{label}" for label in LABELS for position in "BI"))
TAG_IDS = {tag: number for number, tag in enumerate(TAGS)}
IGNORED = -100
"""The tag of a token without text; torch's cross entropy ignores it."""

Offset = tuple[int, int]


def align(spans: Sequence[Span], offsets: Sequence[Offset]) -> list[int]:
    """Return a tag for each token. A token is in a span if they share a character; the first such token begins the span."""
    tags, begun = [], set()
    for start, end in offsets:
        span = next((span for span in spans if start < span.end and span.start < end), None)
        if start == end:
            tags.append(IGNORED)
        elif span is None:
            tags.append(TAG_IDS[OUTSIDE])
        else:
            tags.append(TAG_IDS[f"{'I' if span in begun else 'B'}-{span.label}"])
            begun.add(span)
    return tags


def decode(tags: Sequence[int], offsets: Sequence[Offset]) -> list[Span]:
    """Return the spans that the tags mark; an I tag that continues no span begins a new span."""
    spans: list[Span] = []
    open_label = ""
    for tag, (start, end) in zip(tags, offsets, strict=True):
        if start == end:
            continue
        position, _, label = TAGS[tag].partition("-")
        if position == "I" and label == open_label:
            spans[-1] = Span(spans[-1].start, end, label)
        elif label:
            spans.append(Span(start, end, label))
        open_label = label
    return spans


def character_recall(
    sentences: Sequence[Sentence], predictions: Sequence[Sequence[Span]]
) -> dict[str, float]:
    """Return, by label, the share of gold characters inside a predicted span of the same label.

    The key "all" has the share for all labels together. A label without gold characters is left out.
    """
    total: Counter[str] = Counter()
    hit: Counter[str] = Counter()
    for sentence, predicted in zip(sentences, predictions, strict=True):
        covered = {(at, span.label) for span in predicted for at in range(span.start, span.end)}
        for gold in sentence.spans:
            inside = sum((at, gold.label) in covered for at in range(gold.start, gold.end))
            total.update({gold.label: gold.end - gold.start, "all": gold.end - gold.start})
            hit.update({gold.label: inside, "all": inside})
    return {label: round(hit[label] / total[label], 4) for label in (*LABELS, "all") if total[label]}
