"""From tokens to labels: windows, tags, spans, and the names of gold and of the model."""

import copy
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import graph
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.answers import TextModel, run_texts
from onnxreg.converters.evaluation.decoding import NOTHING, decode, tag_scheme
from onnxreg.converters.evaluation.evaluate import plan_evaluation
from onnxreg.converters.evaluation.suite import Fixture, TextSpan, match_labels
from onnxreg.converters.evaluation.tokens import TextTokenizer, TokenRow
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest

WORDS = ["Ada", "Bo", "meets", "Oslo", "in", "xyzzy"]
texts = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
Fast = "transformers.PreTrainedTokenizerFast"


def windows(tokenizer: Fast, size: int, text: str) -> list[TokenRow]:
    return list(TextTokenizer(tokenizer.backend_tokenizer, size).windows(text))


@given(text=texts, size=st.integers(3, 38))
def test_every_token_is_kept_once_and_in_order(tokenizer, text, size):
    cut = windows(tokenizer, size, text)
    kept = [tuple(pair) for window in cut for pair in window.offsets[window.positions].tolist()]
    for window in cut:
        assert window.inputs["input_ids"].shape == (1, len(window.offsets))
        assert len(window.offsets) <= size
        assert window.inputs["attention_mask"].all() and not window.inputs["token_type_ids"].any()
    whole = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert kept == [tuple(pair) for pair in whole]
    rows = tokenizer(
        text,
        truncation=True,
        max_length=size,
        stride=(size - 2) // 4,
        return_overflowing_tokens=True,
        return_attention_mask=True,
    )["input_ids"]
    assert [window.inputs["input_ids"][0].tolist() for window in cut] == rows


def test_a_kept_token_has_context_on_both_sides(tokenizer):
    cut = windows(tokenizer, 24, "Ada " * 200)
    assert len(cut) > 3
    for before, window in pairwise(cut):
        assert window.positions[0] - 1 >= 2
        assert len(before.offsets) - 2 - before.positions[-1] >= 2


def test_the_tokenizer_is_left_as_it_was_and_its_own_settings_change_nothing(tokenizer):
    odd = copy.deepcopy(tokenizer)
    odd.backend_tokenizer.enable_padding(length=64)
    odd.backend_tokenizer.enable_truncation(3, direction="left")
    before, text = odd.backend_tokenizer.to_str(), "Ada meets Bo " * 20
    for plain, other in zip(windows(tokenizer, 18, text), windows(odd, 18, text), strict=True):
        assert np.array_equal(plain.inputs["input_ids"], other.inputs["input_ids"])
        assert np.array_equal(plain.positions, other.positions)
    assert odd.backend_tokenizer.to_str() == before


def test_a_context_without_room_for_text_is_refused(tokenizer):
    with pytest.raises(InputError, match="leaves no room for text"):
        windows(tokenizer, 2, "Ada")
    with pytest.raises(InputError, match="leaves no room for text"):
        TextTokenizer(tokenizer.backend_tokenizer, 2).row("Ada")


BIO = ("O", "B-A", "I-A", "B-B", "I-B")
BIOES = ("O", "B-A", "I-A", "E-A", "S-A")
IO = ("O", "I-A", "I-B")
PLAIN = ("O", "A", "B")


def labels(tags: tuple[str, ...], tokens: list[tuple[str, int, int]], length: int) -> str:
    """Decoded characters as letters, `.` for none."""
    scheme = tag_scheme(tuple(tags))
    numbers = np.array([tags.index(tag) for tag, _, _ in tokens], dtype=np.int64)
    offsets = np.array([(start, end) for _, start, end in tokens], dtype=np.int64).reshape(-1, 2)
    return "".join("." if n == NOTHING else scheme.names[n] for n in decode(numbers, offsets, length, scheme))


@pytest.mark.parametrize(
    ("tags", "tokens", "expected"),
    [
        (BIO, [("B-A", 0, 2), ("I-A", 3, 5)], "AAAAA."),
        (BIO, [("B-A", 0, 2), ("B-A", 3, 5)], "AA.AA."),
        (BIO, [("I-A", 0, 2), ("I-A", 3, 5)], "AAAAA."),
        (BIO, [("B-A", 0, 2), ("I-B", 3, 5)], "AA.BB."),
        (BIO, [("B-A", 0, 1), ("O", 2, 3), ("I-A", 4, 5)], "A...A."),
        (BIO, [("B-A", 0, 2), ("O", 2, 2), ("I-A", 3, 5)], "AAAAA."),
        (BIO, [("B-A", 0, 4), ("O", 0, 4)], "......"),
        (BIOES, [("B-A", 0, 2), ("E-A", 3, 5)], "AAAAA."),
        (BIOES, [("E-A", 0, 2), ("I-A", 3, 5)], "AA.AA."),
        (BIOES, [("S-A", 0, 2), ("S-A", 3, 5)], "AA.AA."),
        (IO, [("I-A", 0, 2), ("I-A", 3, 5)], "AAAAA."),
        (PLAIN, [("A", 0, 2), ("A", 3, 5)], "AAAAA."),
        (PLAIN, [("A", 0, 2), ("B", 2, 4)], "AABB.."),
        (BIO, [], "......"),
        (("O", "B-A", "M-A", "E-A", "S-A"), [("B-A", 0, 1), ("M-A", 2, 3), ("E-A", 4, 5)], "AAAAA."),
        (("O", "B-A", "M-A", "E-A", "S-A"), [("S-A", 0, 1), ("S-A", 2, 3)], "A.A."),
        (("o", "A-b", "A-i"), [("A-b", 0, 1), ("A-i", 2, 3), ("A-b", 4, 5)], "AAA.A."),
    ],
)
def test_decoding(tags, tokens, expected):
    assert labels(tags, tokens, len(expected)) == expected


@pytest.mark.parametrize(
    ("tags", "names"),
    [
        (BIO, ("A", "B")),
        (BIOES, ("A",)),
        (("O", "B-A", "L-A", "U-A"), ("A",)),
        (IO, ("A", "B")),
        (PLAIN, ("A", "B")),
        (("O", "B_A", "I_A"), ("A",)),
        (("O", "NAME", "E-MAIL", "S_NUMBER"), ("NAME", "E-MAIL", "S_NUMBER")),
        (("O", "B-E-MAIL", "I-E-MAIL"), ("E-MAIL",)),
        (("O", "B-A", "I-A", "E-MAIL"), ("A", "E-MAIL")),
        (("LABEL_0", "LABEL_1"), ("LABEL_0", "LABEL_1")),
        (("O",), ()),
        (("o", "b-name", "i-name"), ("name",)),
        (("O", "B-A", "M-A", "E-A", "S-A"), ("A",)),
        (("O", "A-B", "A-I", "C-B", "C-I"), ("A", "C")),
        (("O", "A_B", "A_I", "A_E", "A_S"), ("A",)),
        (("O", "b_a", "i_a"), ("a",)),
        (("O", "B:A", "I:A"), ("A",)),
        (("O", "B_CELL", "T_CELL"), ("B_CELL", "T_CELL")),
        (("O", "HEPATITIS_B", "HEPATITIS_E"), ("HEPATITIS_B", "HEPATITIS_E")),
    ],
)
def test_the_labels_behind_the_tags(tags, names):
    assert tag_scheme(tuple(tags)).names == names


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 3)), max_size=20))
def test_a_character_is_labelled_only_by_a_token_on_it_or_between_two_of_its_entity(steps):
    at, tokens = 0, []
    for tag, gap, width in steps:
        tokens.append((BIO[tag], at + gap, at + gap + width))
        at += gap + width
    decoded = labels(BIO, tokens, at)
    for tag, start, end in tokens:
        assert decoded[start:end] == ("." if tag == "O" else tag[2:]) * (end - start)
    for (left, _, end), (right, start, _) in pairwise(tokens):
        inside = right.startswith("I-") and left[2:] == right[2:]
        assert decoded[end:start] == (right[2:] if inside else ".") * (start - end)


NAMES = json.loads(Path(suite.__file__).with_name("openmed_labels.json").read_bytes())
TEXT = "x" * 40


def match(gold: list[str], labels: tuple[str, ...], **request: Any) -> tuple[list[str], dict[str, Any]]:
    """The labels that spans of these labels get, and what the certificate says of it."""
    spans = tuple(TextSpan(3 * at, 3 * at + 2, label) for at, label in enumerate(gold))
    asked = EvaluationRequest.from_json({"suite": "suite.json", **request})
    (item,), facts = match_labels([Fixture(TEXT, spans)], labels, asked)
    return sorted(span.label for span in item.spans), facts


@pytest.mark.parametrize(
    ("gold", "labels", "openmed", "expected"),
    [
        ("NAME", ("NAME", "name"), False, "NAME"),
        ("NAME", ("name",), False, "name"),
        ("first-name", ("FIRST_NAME",), False, "FIRST_NAME"),
        ("NAME", ("name", "Name"), False, None),
        ("PERSON", ("NAME",), False, None),
        ("PERSON", ("NAME",), True, "NAME"),
        ("FIRST_NAME", ("FIRSTNAME", "NAME"), True, "FIRSTNAME"),
        ("PHONE", ("PHONENUMBER", "URL"), True, "PHONENUMBER"),
        ("dateOfBirth", ("DOB", "DATE"), True, "DOB"),
        ("PATIENT", ("NAME", "DOCTOR"), True, None),
        ("CUSTOMER", ("CLIENT",), True, None),
    ],
)
def test_gold_gets_the_only_label_that_is_spelled_alike(gold, labels, openmed, expected):
    names, facts = match([gold], labels, **({"label_names": "openmed"} if openmed else {}))
    assert names == [expected or gold]
    assert facts == ({} if expected in (None, gold) else {"label_map": {gold: expected}})


def test_a_person_maps_and_excludes_by_name():
    label_map = {"PATIENT": "NAME", "CITY": None, "AGE": "NAME"}
    names, facts = match(["PATIENT", "CITY", "CITY", "NAME"], ("NAME",), label_map=label_map)
    assert names == ["NAME", "NAME"]
    assert facts == {"label_map": {"PATIENT": "NAME"}, "excluded_labels": {"CITY": 2}}


@pytest.mark.parametrize(
    ("gold", "label_map", "message"),
    [(["NAME", "CITY"], {"NAME": None}, "NAME"), (["PATIENT"], {"PATIENT": "NAMES"}, "NAMES")],
)
def test_a_map_to_a_label_that_the_model_lacks_and_an_exclusion_of_one_that_it_has_are_refused(
    gold, label_map, message
):
    """Else the label that quantization loses could be left out, and the file certified on the others."""
    with pytest.raises(InputError, match=message):
        match(gold, ("NAME",), label_map=label_map)


def test_spans_that_overlap_under_one_label_count_once():
    item = Fixture(TEXT, (TextSpan(0, 5, "NAME"), TextSpan(3, 9, "PATIENT"), TextSpan(9, 12, "PATIENT")))
    asked = EvaluationRequest.from_json({"suite": "s", "label_map": {"PATIENT": "NAME"}})
    (matched,), _ = match_labels([item], ("NAME",), asked)
    assert matched.spans == (TextSpan(0, 9, "NAME"), TextSpan(9, 12, "NAME"))


def test_each_spelling_has_one_name():
    words = [word for spellings in NAMES.values() for word in spellings]
    own = {name.lower().replace("_", "") for name in NAMES}
    assert len(words) == len(set(words)) and own.isdisjoint(words)


def test_a_warning_counts_gold_as_it_will_be_judged(tmp_path):
    suite = tmp_path / "suite.json"
    spans = [{"start": 0, "end": 2, "label": "CITY"}, {"start": 2, "end": 9, "label": "PATIENT"}]
    suite.write_text(json.dumps([{"text": TEXT, "gold_spans": spans}] * 100))

    def warnings(**label_map: str | None) -> str:
        value = {"suite": str(suite), "metrics": [{"metric": "character_recall"}], "label_map": label_map}
        plan = plan_evaluation(EvaluationRequest.from_json(value), "token-classification", Path(), [])
        return " ".join(plan.warnings())

    assert "CITY" in warnings(PATIENT="NAME") and "NAME" in warnings(PATIENT="NAME")
    assert "CITY" not in warnings(CITY=None)
    assert "TOWN" in warnings(TOWN="NAME")


PEOPLE = ["[UNK]", "[CLS]", "[SEP]", "Anna", "Keller", "met", "Bob"]
NAME_TAGS = ("O", "B-NAME", "I-NAME")
TAGS = [0, 0, 0, 1, 2, 0, 1]


def tag(model: Path, tokenizer: Path, labels: tuple[str, ...], size: int, text: str) -> list[Any]:
    """Start, end, label and text of each span."""
    answer = run_texts(TextModel(model, TextTokenizer.read(tokenizer, size), labels), [text])
    return [tuple(span[key] for key in ("start", "end", "label", "text")) for span in answer["spans"]]


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    vocabulary = {word: index for index, word in enumerate(PEOPLE)}
    made: Any = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special)
    made.enable_padding(length=20)
    made.enable_truncation(3)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def tagger(path: Path, axes: str = "batch, sequence", names: tuple[str, ...] = ("input_ids",)) -> Path:
    """A graph that gives each token its tag."""
    inputs = ", ".join(f"int64[{axes}] {name}" for name in names)
    table = np.eye(len(NAME_TAGS), dtype=np.float32)[TAGS]
    onnx.save(
        graph("logits = Gather(table, input_ids)", inputs, f"float[{axes}, 3] logits", table=table), path
    )
    return path


@pytest.mark.parametrize("size", [3, 5, 512])
def test_spans(tokenizer_file, tmp_path, size):
    path = tagger(tmp_path / "model.onnx")
    spans = [(0, 11, "NAME", "Anna Keller"), (16, 19, "NAME", "Bob")]
    assert tag(path, tokenizer_file, NAME_TAGS, size, "Anna Keller met Bob") == spans
    assert tag(path, tokenizer_file, NAME_TAGS, size, "") == []


@pytest.mark.parametrize("task", ["feature-extraction", "text-classification", "question-answering"])
def test_outputs_decide_against_a_task_that_they_contradict(tokenizer_file, tmp_path, task):
    model = TextModel(tagger(tmp_path / "model.onnx"), TextTokenizer.read(tokenizer_file, 64), NAME_TAGS)
    assert run_texts(model, ["Anna met Bob"], task=task).keys() == {"spans"}


def test_a_graph_of_fixed_length_gets_windows_of_that_length(tokenizer_file, tmp_path):
    """Padded with the token of the config."""
    names = ("input_ids", "attention_mask")
    path = tagger(tmp_path / "fixed.onnx", "1, 5", names)
    spans = [(0, 3, "NAME", "Bob"), (8, 19, "NAME", "Anna Keller"), (24, 27, "NAME", "Bob")]
    assert tag(path, tokenizer_file, NAME_TAGS, 512, "Bob met Anna Keller met Bob") == spans
    body = "ids = Identity(input_ids) mask = Identity(attention_mask)"
    sides = ", ".join(f"int64[1, 5] {name}" for name in names), "int64[1, 5] ids, int64[1, 5] mask"
    onnx.save(graph(body, *sides), path)
    fixed = TextModel(path, TextTokenizer.read(tokenizer_file, 512), config={"pad_token_id": 4})
    outputs = fixed.run(fixed.tokenizer.row("Bob").inputs)
    assert outputs["ids"].tolist() == [[1, 6, 2, 4, 4]]
    assert outputs["mask"].tolist() == [[1, 1, 1, 0, 0]]
    body = (
        "ids = Cast <to = 1> (input_ids) axes = Constant <value_ints = [2]> () states = Unsqueeze(ids, axes)"
    )
    onnx.save(graph(body, sides[0], "float[1, 5, 1] states"), path)
    assert run_texts(TextModel(path, fixed.tokenizer), ["Bob"])["embeddings"][0]["vector"] == [3.0]
    body = "ids = Cast <to = 1> (input_ids) logits = Concat <axis = 1> (ids, ids)"
    onnx.save(graph(body, sides[0], "float[1, 10] logits"), path)
    assert len(run_texts(TextModel(path, fixed.tokenizer), ["Bob"])["classes"]) == 10


def test_unfit_graphs_and_tokenizers_are_refused(tokenizer_file, tmp_path):
    path, broken, other = tagger(tmp_path / "model.onnx"), tmp_path / "broken.json", tmp_path / "other.json"
    broken.write_text("{}")
    other.write_text(re.sub(r'"Bob": ?6', '"Bob": 60', tokenizer_file.read_text()))
    for words, labels, size, family, message in (
        (tokenizer_file, NAME_TAGS, 2, InputError, "leaves no room for text"),
        (tokenizer_file, NAME_TAGS[:2], 512, ConversionError, "gives logits of shape"),
        (broken, NAME_TAGS, 512, InputError, r"broken\.json is not a tokenizer"),
        (other, NAME_TAGS, 512, ConversionError, "does not run on that text"),
    ):
        with pytest.raises(family, match=message):
            tag(path, words, labels, size, "Bob")
