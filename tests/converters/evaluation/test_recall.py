"""Recall of characters, its interval, and the rule G4 for labels, on tables of counts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.evaluation.metric import (
    Integers,
    Interval,
    JudgedPart,
    ScoreTable,
    judge_loss,
    percentiles,
)
from onnxreg.converters.evaluation.metrics import CharacterRecall
from onnxreg.converters.evaluation.suite import Fixture, TextSpan
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.gates.statements import MetricRecord

LABELS, METRIC = ("A", "B"), CharacterRecall()


def chars(text: str) -> Integers:
    return np.array([".AB".index(letter) - 1 for letter in text], dtype=np.int64)


def table_of(fixtures: list[Fixture], parent: list[Integers], candidate: list[Integers]) -> ScoreTable:
    sides = (METRIC.scores(fixtures, side, parent, LABELS) for side in (parent, candidate))
    return ScoreTable.of(METRIC.columns(LABELS), *sides, range(len(fixtures)))


def parts(fixtures: list[Fixture], parent: list[Integers], candidate: list[Integers]) -> Sequence[JudgedPart]:
    return METRIC.judge(table_of(fixtures, parent, candidate), {}).parts


def test_recall_worked_out_by_hand():
    fixtures = [
        Fixture("0123456789", (TextSpan(0, 4, "A"), TextSpan(6, 8, "B"))),
        Fixture("0123456789", (TextSpan(2, 8, "A"), TextSpan(2, 4, "C"))),
    ]
    parent = [chars("AAA...BB.."), chars("..AAAA...A")]
    candidate = [chars("AA....BBBB"), chars("..BBAAAA..")]
    a, b = parts(fixtures, parent, candidate)
    assert (a.parent, a.value, a.loss) == (7 / 10, 6 / 10, 1 / 10)
    assert a.samples == 2
    assert (b.parent, b.value, b.loss) == (1.0, 1.0, 0.0)
    assert b.samples == 1


@pytest.mark.parametrize("texts", ["0123456789", "0123"])
def test_a_model_that_says_one_label_everywhere_proves_nothing(texts):
    """Nor do texts that gold fills, whatever the model says."""
    fixtures, always = [Fixture(texts, (TextSpan(0, 4, "A"),))] * 100, [chars("A" * len(texts))] * 100
    a, _ = parts(fixtures, always, always)
    assert (a.parent, a.state) == (1.0, None)
    assert "false alarms on 1.0000" in a.doubts[0]


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[Fixture], list[Integers], list[Integers]]:
    fixtures, parents, candidates = [], [], []
    for _ in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 12))
        spans = []
        for label in LABELS:
            start = draw(st.integers(0, length))
            end = draw(st.integers(start, length))
            spans += [TextSpan(start, end, label)] if start < end else []
        fixtures.append(Fixture("x" * length, tuple(spans)))
        letters = st.text(".AB", min_size=length, max_size=length).map(chars)
        parents.append(draw(letters))
        candidates.append(draw(letters))
    return fixtures, parents, candidates


@given(corpora())
def test_laws_of_recall(corpus):
    fixtures, parent, candidate = corpus
    forth, back = parts(fixtures, parent, candidate), parts(fixtures, candidate, parent)
    turned = parts(fixtures[::-1], parent[::-1], candidate[::-1])
    for one, other in zip(forth, back, strict=True):
        assert (one.loss is None) == (one.samples == 0)
        if one.loss is not None and other.loss is not None:
            assert all(figure is not None and 0 <= figure <= 1 for figure in (one.parent, one.value))
            assert one.loss == -other.loss
            assert one.interval is None or -1 <= one.interval[0] <= one.interval[1] <= 1
    assert turned == forth


def counted(*labels: tuple[Any, Any, Any], characters: int = 10**6) -> ScoreTable:
    """A table of labels A, B, ... of which gold, the parent's and the candidate's characters are given for each text."""
    columns = METRIC.columns([chr(65 + number) for number in range(len(labels))])
    sides = []
    for side in (1, 2):
        counts = [(label[0], label[side], label[side], np.asarray(label[0]) > 0) for label in labels]
        flat = [np.asarray(values, np.float64) for label in counts for values in label]
        sides.append(np.column_stack([np.full(len(flat[0]), characters / len(flat[0])), *flat]))
    return ScoreTable.of(columns, *sides, range(len(sides[0])))


def interval_of(gold: Any, hits: Any) -> Interval:
    return percentiles(METRIC.resampled(counted((gold, gold, hits)))[:, 0]) or (0.0, 0.0)


def test_the_interval_is_that_of_the_binomial_and_characters_of_one_text_are_not_independent():
    """400 one-span texts of equal length, 40 of them lost: the loss is 0.1, its standard error 0.015.

    The same losses in four texts instead of four hundred leave the interval ten times as wide.
    """
    interval = interval_of([10] * 400, [0] * 40 + [10] * 360)
    assert interval == pytest.approx((0.1 - 1.96 * 0.015, 0.1 + 1.96 * 0.015), abs=0.004)
    widths = []
    for texts in (4, 400):
        size = 4000 // texts
        low, high = interval_of([size] * texts, [0] * (texts // 4) + [size] * (texts - texts // 4))
        widths.append(high - low)
    assert widths[0] > 5 * widths[1]


def test_the_stream_of_the_generator_is_the_frozen_one_and_of_nothing_nothing_is_drawn():
    """RandomState(0).randint(0, 3) goes 0 1 0, 1 1 2, 0 2 0; the texts lose 0, 3 and 10 of 10 characters each."""
    drawn = METRIC.resampled(counted(([10] * 3, [10] * 3, [10, 7, 0])))[:3, 0]
    assert drawn.tolist() == [3 / 30, 16 / 30, 10 / 30]
    assert np.isnan(METRIC.resampled(table_of([], [], []))).all()
    assert METRIC.resampled(counted(([0] * 3,) * 3)).shape == (1000, 1)


def label(lost: int = 0, *, gold: int = 1000, parent: float = 0.9, texts: int = 100) -> tuple[Any, Any, Any]:
    """Characters of a label in texts of equal gold; the losses are those of the first texts."""
    size = gold // texts
    parents = np.full(texts, size * parent)
    mine, at = parents.copy(), 0
    while lost:
        take = min(lost, int(mine[at])) if lost > 0 else lost
        mine[at] -= take
        lost, at = lost - take, at + 1
    return np.full(texts, size), parents, mine


def judge(*labels: tuple[Any, Any, Any], others: Sequence[str] = (), **settings: Any) -> MetricRecord:
    settings |= {"other_labels": dict.fromkeys(others, 7)}
    return METRIC.judge(counted(*labels), settings).record


@pytest.mark.parametrize(
    ("lost", "gold", "loss"), [(0, 1000, 0.0), (4, 1000, 0.004), (300, 1000, 0.3), (-50, 1000, 0.0)]
)
def test_a_loss_is_that_of_the_worst_label_and_never_below_nothing(lost, gold, loss):
    judgement = judge(label(lost, gold=gold), label(-90))
    assert judgement.loss == pytest.approx(loss)
    assert judgement.state == ("refused" if loss > 0.1 else "certified")


def test_one_label_over_the_limit_refuses_whatever_the_others_gain():
    judged = METRIC.judge(counted(label(-90), label(300), label(500)), {})
    judgement = judged.record
    assert judgement.state == "refused" and judgement.loss == 0.5
    assert [part.state for part in judged.parts] == ["certified", "refused", "refused"]
    assert "B loses 0.3 " in judgement.reasons[0] and "C loses 0.5 " in judgement.reasons[1]


@pytest.mark.parametrize(
    ("weak", "reason"),
    [
        (label(gold=199, texts=199), "B has 199 gold characters, 200 are needed"),
        (label(1, gold=1, texts=1, parent=1.0), "B has 1 gold characters"),
        (label(parent=0.4), "the parent itself finds too little of B: recall 0.4000"),
        (label(parent=0.0), "finds too little of B"),
    ],
)
def test_weak_evidence_is_unknown_unless_a_proved_loss_refuses(weak, reason):
    texts = len(weak[0])
    strong, lost = label(texts=texts, gold=1000 * texts), label(600 * texts, texts=texts, gold=1000 * texts)
    judgement = judge(strong, weak)
    assert judgement.state == "unknown" and any(reason in given for given in judgement.reasons)
    if texts > 1:
        refused = judge(lost, weak)
        assert refused.state == "refused" and any(reason in given for given in refused.reasons)
        assert refused.loss == pytest.approx(0.6)


@pytest.mark.parametrize("name", ["gold_chars", "parent_recall"])
def test_floors(name):
    """Exactly at a floor is enough; one that would let everything pass is refused."""
    assert judge(label(gold=200, parent=0.5)).state == "certified"
    above, bad = {"gold_chars": (1001, (0, -1)), "parent_recall": (0.91, (0.0, 50.0))}[name]
    assert judge(label(), **{f"min_{name}": above}).state == "unknown"
    for value in bad:
        with pytest.raises(InputError):
            CharacterRecall(settings={f"min_{name}": value})


def test_nothing_to_judge_is_unknown():
    none: tuple[Any, Any, Any] = ([0, 0], [0, 0], [0, 0])
    for judgement, reason in (
        (METRIC.judge(table_of([], [], []), {}).record, "the evaluation suite is empty"),
        (judge(none), "has no gold for any label of the model"),
        (judge(none, others=["SSN"]), "has no gold for any label of the model"),
    ):
        assert (judgement.state, judgement.loss, judgement.interval) == ("unknown", None, None)
        assert (judgement.parent, judgement.value) == (None, None)
        assert reason in judgement.reasons[0]


def test_labels_without_gold_are_listed_and_gold_of_a_label_that_the_model_lacks_certifies_nothing():
    without_gold = (np.zeros(100),) * 3
    judgement = judge(label(), without_gold, excluded_labels={"SSN": 3})
    assert judgement.state == "certified"
    assert judgement.reasons[-2:] == ("no gold, so not judged: B", "excluded by name, so not judged: SSN")
    judgement = judge(label(), without_gold, others=["SSN"])
    assert judgement.state == "unknown"
    assert "SSN (7 spans)" in judgement.reasons[0] and "A, B" in judgement.reasons[0]
    assert judge(label(500), others=["SSN"]).state == "refused"


@pytest.mark.parametrize(
    ("loss", "interval", "state", "with_margin"),
    [
        (0.001, (0.0, 0.004), "certified", "certified"),
        (0.004, (0.001, 0.009), "certified", "unknown"),
        (0.004, (0.001, 0.005), "certified", "unknown"),
        (0.0051, (0.0, 0.011), "unknown", "unknown"),
        (0.005, (0.004, 0.006), "unknown", "unknown"),
        (0.005, (0.005, 0.006), "refused", "refused"),
        (0.009, (0.005, 0.02), "refused", "refused"),
        (0.1, None, "unknown", "unknown"),
        (0.001, None, "certified", "unknown"),
    ],
)
def test_a_loss_refuses_only_if_its_interval_does_not_span_the_limit(loss, interval, state, with_margin):
    states = judge_loss(loss, interval, 0.005, {}), judge_loss(loss, interval, 0.005, {"margin": True})
    assert states == (state, with_margin)


def test_an_unclear_loss_and_a_wide_interval_are_named():
    unclear = judge(label(9))
    assert unclear.state == "unknown" and unclear.reasons[0].startswith("unclear: A loses 0.009")
    wide = judge(label(4))
    assert wide.state == "certified" and "the interval is above the limit: A (to 0.0" in wide.reasons[1]
    assert judge(label(4), margin=True).state == "unknown"


def test_one_text_refuses_nothing_for_ever():
    """Every resample of one text is that text."""
    text = "A" * 300 + "." * 300
    fixtures = [Fixture(text, (TextSpan(0, 300, "A"),)), *[Fixture("....", ())] * 9]
    parent, rest = chars(text), [chars("....")] * 9
    candidates = ([chars("." * lost + text[lost:]), *rest] for lost in (1, 9))
    tables = [table_of(fixtures, [parent, *rest], candidate) for candidate in candidates]
    assert [METRIC.judge(table, {}).record.state for table in tables] == ["certified", "unknown"]
    assert [METRIC.judge(table, {"margin": True}).record.state for table in tables] == ["unknown"] * 2


@pytest.mark.parametrize(("gold", "texts"), [([300, 1], 2), ([300, 0], 1)])
def test_a_text_with_a_single_gold_character_is_evidence_even_if_the_parent_misses_it(gold, texts):
    (part,) = METRIC.judge(counted((gold, [300, 0], [290, 0])), {}).parts
    assert (part.interval is not None) == (texts > 1)


def test_reasons_stay_short_however_many_labels_there_are():
    judgement = judge(label(), others=[f"L{number}" * 100 for number in range(25)])
    assert "and 5 more" in judgement.reasons[-1]
    assert max(map(len, judgement.reasons)) < 4096


@pytest.mark.parametrize(
    ("spans", "messages"),
    [
        ({"A": (200, 5)}, []),
        ({"A": (200, 5), "B": (199, 5)}, ["fewer than 200 gold spans of B: one lost span"]),
        ({"A": (200, 5), "B": (19, 10)}, ["fewer than 200 gold characters of B", "gold spans of B"]),
        ({"A": (30, 10), "B": (1, 3)}, ["gold characters of B", "gold spans of A"]),
    ],
)
def test_a_suite_that_proves_little_is_known_before_it_is_used(spans, messages):
    """So many spans of so many characters for each label, one a text."""
    fixtures = [
        Fixture("x" * length, (TextSpan(0, length, name),))
        for name, (count, length) in spans.items()
        for _ in range(count)
    ]
    warnings = [*METRIC.obstacles(fixtures, len(fixtures)), *METRIC.warnings(fixtures)]
    assert len(warnings) == len(messages)
    assert all(part in message for part, message in zip(messages, warnings, strict=True))
