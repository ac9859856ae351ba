import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.evaluation.evaluators import TokenSpans
from onnxreg.converters.evaluation.suite import Fixture, TextSpan, load
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError

SPAN = {"start": 0, "end": 3, "label": "NAME", "text": "Ada"}
ROW = {"id": "a", "text": "Ada in Rome", "gold_spans": [SPAN]}
READ = Fixture("Ada in Rome", (TextSpan(0, 3, "NAME"),))
load = partial(load, TokenSpans)


def write(tmp_path: Path, content: Any, name: str = "suite.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


ANOTHER = json.dumps(ROW | {"id": "b"})
SHAPES: dict[str, tuple[str, int]] = {
    "list.json": (json.dumps([ROW]), 1),
    "object.json": (json.dumps({"suite": "golden", "version": 1, "fixtures": [ROW]}), 1),
    "lines.jsonl": (f"\n{json.dumps(ROW)}\r\n\n", 1),
    "LINES.JSONL": (json.dumps(ROW), 1),
    "two.jsonl": (f"{json.dumps(ROW)}\r\n{ANOTHER}\n", 2),
    "marked.jsonl": (f"\ufeff{json.dumps(ROW)}\r\n{ANOTHER}\n", 2),
    "empty.json": ("[]", 0),
    "nothing.json": (json.dumps({"fixtures": []}), 0),
}


@pytest.mark.parametrize("name", SHAPES)
def test_three_shapes_read_the_same(tmp_path, name):
    content, count = SHAPES[name]
    suite = load(write(tmp_path, content.encode(), name))
    assert suite.items == (READ,) * count
    assert suite.digest == Digest.of(content.encode())


@pytest.mark.parametrize("spans", ["gold_spans", "entities"])
@pytest.mark.parametrize("label", ["label", "canonical_label", "entity_type", "entity_group", "entity"])
@pytest.mark.parametrize("identity", ["id", "fixture_id"])
def test_aliases(tmp_path, spans, label, identity):
    row = {identity: "a", "text": ROW["text"], spans: [{"start": 0, "end": 3, label: "NAME"}], "lang": "en"}
    assert load(write(tmp_path, [row])).items == (READ,)


def test_a_canonical_label_counts_before_a_label_and_spans_of_two_labels_may_nest(tmp_path):
    row = ROW | {"gold_spans": [{"start": 0, "end": 3, "label": "forename", "canonical_label": "NAME"}]}
    assert load(write(tmp_path, [row])).items == (READ,)
    spans = [(0, 11, "PERSON"), (0, 3, "NAME"), (3, 6, "NAME")]
    row = ROW | {"gold_spans": [{"start": a, "end": b, "label": label} for a, b, label in spans]}
    assert len(load(write(tmp_path, [row])).items[0].spans) == 3


def test_offsets_count_code_points_and_lines_end_at_line_feeds_only(tmp_path):
    text = "\U0001f600 e\u0301\u2028Ada\u0085"
    row = {"text": text, "gold_spans": [{"start": 5, "end": 8, "label": "NAME", "text": "Ada"}]}
    path = write(tmp_path, json.dumps(row, ensure_ascii=False).encode(), "suite.jsonl")
    assert load(path).items == (Fixture(text, (TextSpan(5, 8, "NAME"),)),)


def span(**changes: Any) -> dict[str, Any]:
    stated = {"start": 0, "end": 3, "label": "NAME"} | changes
    return ROW | {"gold_spans": [{key: value for key, value in stated.items() if value is not None}]}


BAD = [
    ("not JSON", b"{", "not valid JSON"),
    ("an empty file", b"", "not valid JSON"),
    ("not UTF-8", b'["\xff"]', "not UTF-8"),
    ("a number", 1, "neither a list"),
    ("an object without fixtures", {"texts": [ROW]}, "neither a list"),
    ("fixtures that are no list", {"fixtures": {"a": ROW}}, "neither a list"),
    ("a fixture that is no object", ["text"], "item 1: not an object"),
    ("no text", [{"id": "a", "gold_spans": []}], "item 1: `text` is malformed"),
    ("an empty text", [ROW | {"text": ""}], "`text` is malformed"),
    ("a text that is a number", [ROW | {"text": 5}], "`text` is malformed"),
    ("no gold key", [{"id": "a", "text": "Ada"}], "`gold_spans` is malformed"),
    ("gold that is no list", [ROW | {"gold_spans": {"start": 0}}], "`gold_spans` is malformed"),
    ("a span that is no object", [ROW | {"gold_spans": [[0, 3, "NAME"]]}], "`gold_spans` is malformed at [0]"),
    ("no start", [span(start=None)], "span 1 is malformed"),
    ("an end that is a fraction", [span(end=3.0)], "span 1 is malformed"),
    ("a start that is a truth value", [span(start=False)], "span 1 is malformed"),
    ("a negative start", [span(start=-1)], "are outside a text of 11 characters"),
    ("an end beyond the text", [span(end=12)], "are outside a text of 11 characters"),
    ("a span of no length", [span(start=3, end=3)], "are outside"),
    ("a span that runs backwards", [span(start=3, end=1)], "are outside"),
    ("no label", [span(label=None)], "span 1 is malformed at label"),
    ("an empty label", [span(label="")], "span 1 is malformed at label"),
    ("a span text that contradicts", [span(text="Bob")], "span 1: `text` is not the text at 0-3"),
    ("an empty span text", [span(text="")], "is not the text at"),
    ("overlap in one label", [ROW | {"gold_spans": [*span()["gold_spans"], *span(start=2)["gold_spans"]]}], "overlap"),
    ("the same span twice", [ROW | {"gold_spans": span()["gold_spans"] * 2}], "overlap"),
    ("an id twice", [ROW, ROW | {"text": "Ada Lovelace"}], "item 2: its id was used before, at item 1"),
    ("an id twice under two keys", [ROW, {"fixture_id": "a", **{k: ROW[k] for k in ("text", "gold_spans")}}], "used"),
    ("an id that is a list", [ROW | {"id": ["a"]}], "`id` is neither"),
    ("a duplicate key", b'[{"Ada in Rome": 1, "Ada in Rome": 2}]', "not valid JSON"),
    ("a whole number out of range", b'[{"text": "a", "phone": 9007199254740993000.0}]', "out of range"),
    ("NaN", b'[{"text": "a", "gold_spans": [], "metadata": NaN}]', "out of range"),
    ("a number of many digits", b'[{"text": "a", "gold_spans": [{"start": ' + b"9" * 5000 + b"}]}]", "not valid JSON"),
    ("deep nesting", b"[" * 5000 + b"]" * 5000, "nested deeper"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_suite_is_refused_without_a_word_of_its_text(tmp_path, content, message):
    with pytest.raises(InputError) as caught:
        load(write(tmp_path, content))
    assert message in caught.value.message
    assert "Ada" not in caught.value.message + caught.value.hint
    assert "90071" not in caught.value.message + caught.value.hint


def test_a_bad_line_a_missing_file_and_a_directory_are_named(tmp_path):
    for line in (b"{broken", b'{"Ada": 1, "Ada": 2}'):
        path = write(tmp_path, json.dumps(ROW).encode() + b"\n\n" + line, "suite.jsonl")
        with pytest.raises(InputError, match=r"line 3 is not valid JSON$"):
            load(path)
    with pytest.raises(NotFoundError, match="there is no evaluation suite"):
        load(tmp_path / "absent.json")
    with pytest.raises(InputError, match="directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ([None, None], None),
        ([None, {"source": "synthetic"}], True),
        ([{"source": "clinic"}, {"source": "Synthetic, by template"}], True),
        ([{"source": "clinic"}, {"source": "forum"}], False),
        ([{"source": "clinic"}, {}], None),
        ([{"source": " "}], None),
        ([{"source": 7}, ["source"]], None),
    ],
)
def test_a_suite_says_if_its_texts_were_made_up(tmp_path, metadata, expected):
    rows = [{"text": "Ada", "gold_spans": [], "metadata": item} for item in metadata]
    assert load(write(tmp_path, rows)).synthetic is expected
