"""Spans of a text: the windows are those of the evaluation, and so is the decoding."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import graph
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from onnxreg.converters.evaluation.run_texts import TextModel, run_texts
from onnxreg.converters.evaluation.tokens import TextTokenizer
from onnxreg.schema.core.errors import ConversionError, InputError

WORDS = ["[UNK]", "[CLS]", "[SEP]", "Anna", "Keller", "met", "Bob"]
LABELS = ("O", "B-NAME", "I-NAME")
TAGS = [0, 0, 0, 1, 2, 0, 1]


def tag(model: Path, tokenizer: Path, labels: tuple[str, ...], size: int, text: str) -> list[Any]:
    """Start, end, label and text of each span."""
    answer = run_texts(TextModel(model, TextTokenizer.read(tokenizer, size), labels), [text])
    return [tuple(span[key] for key in ("start", "end", "label", "text")) for span in answer["spans"]]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    vocabulary = {word: index for index, word in enumerate(WORDS)}
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
    table = np.eye(len(LABELS), dtype=np.float32)[TAGS]
    onnx.save(
        graph("logits = Gather(table, input_ids)", inputs, f"float[{axes}, 3] logits", table=table), path
    )
    return path


@pytest.mark.parametrize("size", [3, 5, 512])
def test_spans(tokenizer: Path, tmp_path: Path, size: int) -> None:
    path = tagger(tmp_path / "model.onnx")
    spans = [(0, 11, "NAME", "Anna Keller"), (16, 19, "NAME", "Bob")]
    assert tag(path, tokenizer, LABELS, size, "Anna Keller met Bob") == spans
    assert tag(path, tokenizer, LABELS, size, "") == []


def test_a_graph_of_fixed_length_gets_windows_of_that_length(tokenizer: Path, tmp_path: Path) -> None:
    """Padded with the token of the config."""
    names = ("input_ids", "attention_mask")
    path = tagger(tmp_path / "fixed.onnx", "1, 5", names)
    assert tag(path, tokenizer, LABELS, 512, "Bob met Anna Keller met Bob") == [
        (0, 3, "NAME", "Bob"),
        (8, 19, "NAME", "Anna Keller"),
        (24, 27, "NAME", "Bob"),
    ]
    body = "ids = Identity(input_ids) mask = Identity(attention_mask)"
    sides = ", ".join(f"int64[1, 5] {name}" for name in names), "int64[1, 5] ids, int64[1, 5] mask"
    onnx.save(graph(body, *sides), path)
    fixed = TextModel(path, TextTokenizer.read(tokenizer, 512), config={"pad_token_id": 4})
    outputs = fixed.run(fixed.tokenizer.row("Bob").inputs)
    assert outputs["ids"].tolist() == [[1, 6, 2, 4, 4]]
    assert outputs["mask"].tolist() == [[1, 1, 1, 0, 0]]


def test_unfit_graphs_and_tokenizers_are_refused(tokenizer: Path, tmp_path: Path) -> None:
    path, broken, other = tagger(tmp_path / "model.onnx"), tmp_path / "broken.json", tmp_path / "other.json"
    broken.write_text("{}")
    other.write_text(re.sub(r'"Bob": ?6', '"Bob": 60', tokenizer.read_text()))
    for words, labels, size, family, message in (
        (tokenizer, LABELS, 2, InputError, "leaves no room for text"),
        (tokenizer, LABELS[:2], 512, ConversionError, "gives logits of shape"),
        (broken, LABELS, 512, InputError, r"broken\.json is not a tokenizer"),
        (other, LABELS, 512, ConversionError, "does not run on that text"),
    ):
        with pytest.raises(family, match=message):
            tag(path, words, labels, size, "Bob")
