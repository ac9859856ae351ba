import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.evaluation.decode import Integers
from onnxreg.converters.evaluation.metrics.spans import CharacterRecall, tally_of
from onnxreg.converters.evaluation.recall_rule import (
    CharacterCounts,
    LabelRecall,
    label_recalls,
    largest_loss,
    percentiles,
    resample_losses,
)
from onnxreg.converters.evaluation.scores import ScoreTable
from onnxreg.converters.evaluation.suite import Fixture, TextSpan

LABELS = ("A", "B")


def chars(text: str) -> Integers:
    return np.array([".AB".index(letter) - 1 for letter in text], dtype=np.int64)


def tally(fixtures: list[Fixture], parent: list[Integers], candidate: list[Integers]) -> CharacterCounts:
    metric = CharacterRecall()
    sides = (metric.scores(fixtures, side, parent, LABELS) for side in (parent, candidate))
    return tally_of(ScoreTable.of(metric.columns(LABELS), *sides))


def counts_of(gold: Integers, parent: Integers, candidate: Integers, characters: int) -> CharacterCounts:
    """Counts of which only gold characters and those found matter; each fixture is a group of its own."""
    labels, none = LABELS[: gold.shape[1]], gold.sum(axis=0)
    return CharacterCounts(labels, gold, parent, candidate, none, none, characters, np.arange(len(gold)))


def measured(counts: CharacterCounts) -> list[LabelRecall]:
    return label_recalls(counts, resample_losses(counts))


def test_recall_worked_out_by_hand() -> None:
    fixtures = [
        Fixture("0123456789", (TextSpan(0, 4, "A"), TextSpan(6, 8, "B"))),
        Fixture("0123456789", (TextSpan(2, 8, "A"), TextSpan(2, 4, "C"))),
    ]
    parent = [chars("AAA...BB.."), chars("..AAAA...A")]
    candidate = [chars("AA....BBBB"), chars("..BBAAAA..")]
    a, b = measured(tally(fixtures, parent, candidate))
    assert (a.characters, a.parent, a.candidate, a.loss) == (10, 7 / 10, 6 / 10, 1 / 10)
    assert (a.false_alarms, a.informedness) == (1 / 10, 0.7 - 0.1)
    assert (b.characters, b.parent, b.candidate, b.loss, b.false_alarms) == (2, 1.0, 1.0, 0.0, 0.0)


def test_a_label_without_gold_has_no_figures() -> None:
    _, b = measured(tally([Fixture("01", (TextSpan(0, 1, "A"),))], [chars("AB")], [chars("..")]))
    assert b == LabelRecall("B", 0, 0)


def test_a_model_that_says_one_label_everywhere_is_not_informed() -> None:
    fixtures = [Fixture("0123456789", (TextSpan(0, 4, "A"),))]
    always = [chars("AAAAAAAAAA")]
    a, _ = measured(tally(fixtures, always, always))
    assert (a.parent, a.false_alarms, a.informedness) == (1.0, 1.0, 0.0)


def test_gold_that_fills_every_text_tells_nothing_of_guessing() -> None:
    fixtures = [Fixture("0123", (TextSpan(0, 4, "A"),))]
    a, _ = measured(tally(fixtures, [chars("AAAA")], [chars("AAAA")]))
    assert (a.parent, a.informedness) == (1.0, 0.0)


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
def test_laws_of_recall(corpus: tuple[list[Fixture], list[Integers], list[Integers]]) -> None:
    fixtures, parent, candidate = corpus
    forth = measured(tally(fixtures, parent, candidate))
    back = measured(tally(fixtures, candidate, parent))
    turned = measured(tally(fixtures[::-1], parent[::-1], candidate[::-1]))
    for one, other in zip(forth, back, strict=True):
        assert (one.loss is None) == (one.characters == 0)
        if one.loss is not None and other.loss is not None:
            assert one.parent is not None and 0 <= one.parent <= 1
            assert one.candidate is not None and 0 <= one.candidate <= 1
            assert one.false_alarms is not None and 0 <= one.false_alarms <= 1
            assert one.loss == -other.loss
            assert one.interval is None or -1 <= one.interval[0] <= one.interval[1] <= 1
    assert turned == forth


def test_one_text_refuses_nothing_for_ever() -> None:
    """Every resample of one text is that text."""
    metric, text = CharacterRecall(), "A" * 300 + "." * 300
    fixtures = [Fixture(text, (TextSpan(0, 300, "A"),)), *[Fixture("....", ())] * 9]
    others = [chars("....")] * 9
    found = [chars(text), *others], [chars("." + text[1:]), *others], [chars("." * 9 + text[9:]), *others]
    parent, *candidates = (metric.scores(fixtures, side, side, LABELS) for side in found)
    tables = [ScoreTable.of(metric.columns(LABELS), parent, candidate) for candidate in candidates]
    assert [metric.judge(table, 0.005, {}).state for table in tables] == ["certified", "unknown"]
    assert [metric.judge(table, 0.005, {"margin": True}).state for table in tables] == ["unknown"] * 2


def test_the_interval_is_that_of_the_binomial() -> None:
    """400 one-span texts of equal length, 40 of them lost: the loss is 0.1, its standard error 0.015."""
    gold = np.full((400, 1), 10)
    found = gold.copy()
    found[:40] = 0
    interval = percentiles(resample_losses(counts_of(gold, gold, found, 8000))[:, 0])
    assert interval == pytest.approx((0.1 - 1.96 * 0.015, 0.1 + 1.96 * 0.015), abs=0.004)


def test_characters_of_one_text_are_not_independent() -> None:
    """The same losses in four texts instead of four hundred leave the interval ten times as wide."""

    def width(texts: int) -> float:
        gold = np.full((texts, 1), 4000 // texts)
        found = gold.copy()
        found[: texts // 4] = 0
        low, high = percentiles(resample_losses(counts_of(gold, gold, found, 8000))[:, 0]) or (0.0, 0.0)
        return high - low

    assert width(4) > 5 * width(400)


def test_the_largest_loss_is_never_below_nothing() -> None:
    gold = np.full((50, 2), 10)
    counts = counts_of(gold, gold - 1, gold, 2000)
    assert largest_loss(resample_losses(counts), [0, 1]) == (0.0, 0.0)
    assert largest_loss(resample_losses(counts), []) is None


def test_without_fixtures_or_labels_nothing_is_drawn() -> None:
    for shape in ((0, 2), (3, 0)):
        none = np.zeros(shape, dtype=np.int64)
        assert np.isnan(resample_losses(counts_of(none, none, none, 0))).all()


def test_the_stream_of_the_generator_is_the_frozen_one() -> None:
    """RandomState(0).randint(0, 3) goes 0 1 0, 1 1 2, 0 2 0; the texts lose 0, 3 and 10 of 10 characters each."""
    gold = np.array([[10], [10], [10]])
    found = np.array([[10], [7], [0]])
    drawn = resample_losses(counts_of(gold, gold, found, 90), resamples=3)[:, 0]
    assert drawn.tolist() == [3 / 30, 16 / 30, 10 / 30]
