"""Spans of a text: the windows are those of the evaluation, and so is the decoding."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from onnxreg.converters.evaluation.run_texts import TextModel, run_texts
from onnxreg.converters.evaluation.tokens import TextTokenizer
from onnxreg.schema.core.errors import ConversionError, InputError

WORDS = ["[UNK]", "[CLS]", "[SEP]", "Anna", "Keller", "met", "Bob"]
LABELS = ("O", "B-NAME", "I-NAME")
TAGS = [0, 0, 0, 1, 2, 0, 1]


def tag(graph: Path, tokenizer: Path, labels: tuple[str, ...], size: int, text: str) -> list[Any]:
    """Start, end, label and text of each span."""
    answer = run_texts(TextModel(graph, TextTokenizer.read(tokenizer, size), labels), [text])
    return [tuple(span[key] for key in ("start", "end", "label", "text")) for span in answer["spans"]]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    made: Any = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.enable_padding(length=20)
    made.enable_truncation(3)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[batch, sequence] input_ids)'
        " => (float[batch, sequence, 3] logits) { logits = Gather(table, input_ids) }"
    )
    table = np.eye(len(LABELS), dtype=np.float32)[TAGS]
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("size", [3, 5, 512])
def test_spans(graph: Path, tokenizer: Path, size: int) -> None:
    assert tag(graph, tokenizer, LABELS, size, "Anna Keller met Bob") == [
        (0, 11, "NAME", "Anna Keller"),
        (16, 19, "NAME", "Bob"),
    ]
    assert tag(graph, tokenizer, LABELS, size, "") == []


def test_a_graph_of_fixed_length_gets_windows_of_that_length(tokenizer: Path, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[1, 5] input_ids, int64[1, 5] attention_mask)'
        " => (float[1, 5, 3] logits) { logits = Gather(table, input_ids) }"
    )
    table = np.eye(len(LABELS), dtype=np.float32)[TAGS]
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(model, tmp_path / "fixed.onnx")
    assert tag(tmp_path / "fixed.onnx", tokenizer, LABELS, 512, "Bob met Anna Keller met Bob") == [
        (0, 3, "NAME", "Bob"),
        (8, 19, "NAME", "Anna Keller"),
        (24, 27, "NAME", "Bob"),
    ]


def test_a_graph_of_fixed_length_is_padded_with_the_token_of_the_config(
    tokenizer: Path, tmp_path: Path
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (int64[1, 5] input_ids, int64[1, 5] attention_mask)'
        " => (int64[1, 5] ids, int64[1, 5] mask)"
        " { ids = Identity(input_ids) mask = Identity(attention_mask) }"
    )
    onnx.save(model, tmp_path / "fixed.onnx")
    fixed = TextModel(tmp_path / "fixed.onnx", TextTokenizer.read(tokenizer, 512), config={"pad_token_id": 4})
    outputs = fixed.run(fixed.tokenizer.row("Bob").inputs)
    assert outputs["ids"].tolist() == [[1, 6, 2, 4, 4]]
    assert outputs["mask"].tolist() == [[1, 1, 1, 0, 0]]


def test_unfit_graphs_and_tokenizers_are_refused(graph: Path, tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leaves no room for text"):
        tag(graph, tokenizer, LABELS, 2, "Anna")
    with pytest.raises(ConversionError, match="gives logits of shape"):
        tag(graph, tokenizer, LABELS[:2], 512, "Anna")
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(InputError, match=r"broken\.json is not a tokenizer"):
        tag(graph, tmp_path / "broken.json", LABELS, 512, "Anna")
    text = tokenizer.read_text().replace('"Bob":6', '"Bob":60').replace('"Bob": 6', '"Bob": 60')
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ConversionError, match="does not run on that text"):
        tag(graph, tmp_path / "other.json", LABELS, 512, "Bob")
