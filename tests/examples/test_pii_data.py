import json
import unicodedata

import pytest
from pii_data import LABELS, Sentence, golden, held_out_sentences, training_sentences
from pii_recipe import Recipe
from pii_words import HELD_OUT, TRAINING

RECIPE = Recipe()


@pytest.fixture(scope="module")
def training() -> list[Sentence]:
    return RECIPE.training()


@pytest.fixture(scope="module")
def held_out() -> list[Sentence]:
    return RECIPE.held_out()


def values(sentences: list[Sentence]) -> set[tuple[str, str]]:
    return {(span.label, each.text[span.start : span.end]) for each in sentences for span in each.spans}


def test_sentences_differ_and_take_every_template_and_spans_hold_their_values(
    training: list[Sentence], held_out: list[Sentence]
) -> None:
    words = {"FIRSTNAME": "first_names", "LASTNAME": "last_names"}
    for vocabulary, sentences in ((TRAINING, training), (HELD_OUT, held_out)):
        for sentence in sentences:
            edges = [edge for span in sentence.spans for edge in (span.start, span.end)]
            assert edges == sorted(edges)
            assert all(0 <= span.start < span.end <= len(sentence.text) for span in sentence.spans)
        for label, value in values(sentences):
            assert value == value.strip()
            assert label not in words or value in getattr(vocabulary, words[label])
            assert label != "EMAIL" or value.rpartition("@")[2] in vocabulary.domains
        assert len({sentence.text for sentence in sentences}) == len(sentences)
        assert {sentence.template for sentence in sentences} == set(range(len(vocabulary.templates)))


def test_the_same_seed_gives_the_same_sentences() -> None:
    assert training_sentences(50, 3) == training_sentences(50, 3) != training_sentences(50, 4)
    assert held_out_sentences(50, 3) == held_out_sentences(50, 3) != held_out_sentences(50, 4)


def test_no_held_out_word_value_or_sentence_is_trained_on(
    training: list[Sentence], held_out: list[Sentence]
) -> None:
    for field in ("first_names", "last_names", "streets", "towns", "domains", "drugs", "templates"):
        ours, theirs = getattr(TRAINING, field), getattr(HELD_OUT, field)
        assert len(set(ours)) == len(ours) and len(set(theirs)) == len(theirs)
        assert not {word.casefold() for word in ours} & {word.casefold() for word in theirs}

    def bare(sentences: list[Sentence]) -> set[tuple[str, str]]:
        return {(label, "".join(filter(str.isalnum, value)).casefold()) for label, value in values(sentences)}

    assert not bare(training) & bare(held_out)
    assert not {sentence.text for sentence in training} & {sentence.text for sentence in held_out}


def test_every_label_has_gold_enough_to_measure_half_a_percent(held_out: list[Sentence]) -> None:
    gold = dict.fromkeys(LABELS, 0)
    for sentence in held_out:
        for span in sentence.spans:
            gold[span.label] += span.end - span.start
    assert min(gold.values()) >= 400
    assert any(not sentence.spans for sentence in held_out)


def test_the_suite_is_in_the_golden_fixture_format(held_out: list[Sentence]) -> None:
    rows = [json.loads(line) for line in golden(held_out).splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) == RECIPE.held_out_rows
    for row in rows:
        assert row.keys() == {"id", "text", "language", "gold_spans", "metadata"}
        assert row["language"] == "en"
        assert unicodedata.is_normalized("NFC", row["text"])
        for span in row["gold_spans"]:
            assert span.keys() == {"start", "end", "label", "text"}
            assert row["text"][span["start"] : span["end"]] == span["text"]


def test_offsets_count_code_points(held_out: list[Sentence]) -> None:
    spanned = [s for s in held_out if s.spans]
    astral = [s for s in spanned if any(ord(letter) > 0xFFFF for letter in s.text[: s.spans[0].start])]
    assert astral and all(s.spans[0].start == 2 for s in astral)
