"""Models that know each word by heart, so that every expected figure can be worked out by hand."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from support.graphs import graph
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.manifest import Source

TAGS = ("O", "B-NAME", "I-NAME", "B-CITY", "I-CITY")
WORDS = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "meets", "in", "and", "Ada", "Bo", "Cy", "Oslo", "Rome", "New", "York",
)  # fmt: skip
TRUTH = {
    "Ada": "B-NAME", "Bo": "B-NAME", "Cy": "I-NAME", "Oslo": "B-CITY", "Rome": "B-CITY", "New": "B-CITY", "York": "I-CITY",
}  # fmt: skip

Opinion = Mapping[str, str]
"""The tag a model gives a word; `O` where it says nothing."""
MakePath = Callable[..., Path]


@dataclass(frozen=True)
class Checkpoint:
    model: Any
    tokenizer: Any
    labels: tuple[str, ...]
    source: Source


MakeCheckpoint = Callable[..., Checkpoint]


class Lookup(torch.nn.Module):
    """Logits by token id, whatever stands around it."""

    def __init__(self, table: np.ndarray) -> None:
        super().__init__()
        self.table = torch.from_numpy(table)

    def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=self.table[input_ids])


def logit_table(opinion: Opinion, tags: Sequence[str]) -> np.ndarray:
    table = np.zeros((len(WORDS), len(tags)), dtype=np.float32)
    for row, word in enumerate(WORDS):
        table[row, tags.index(opinion.get(word, "O"))] = 1.0
    return table


@pytest.fixture(scope="session")
def tokenizer() -> "transformers.PreTrainedTokenizerFast":
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    words.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=special)
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "pad", "cls", "sep")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)


@pytest.fixture
def checkpoint(tokenizer: "transformers.PreTrainedTokenizerFast") -> MakeCheckpoint:
    """A parent with an opinion."""

    def make(opinion: Opinion = TRUTH, tags: Sequence[str] = TAGS) -> Checkpoint:
        source = Source(id="acme/names", digest=Digest.of(b"weights"))
        return Checkpoint(Lookup(logit_table(opinion, tags)), tokenizer, tuple(tags), source)

    return make


@pytest.fixture
def candidate(tmp_path: Path) -> MakePath:
    """The same as an ONNX file."""

    def make(opinion: Opinion = TRUTH, tags: Sequence[str] = TAGS) -> Path:
        inputs = ", ".join(f"int64[batch, sequence] {name}" for name in ("input_ids", "attention_mask"))
        output, table = f"float[batch, sequence, {len(tags)}] logits", logit_table(opinion, tags)
        model = graph("logits = Gather(table, input_ids)", inputs, output, ir=9, table=table)
        onnx.save(model, tmp_path / "model_int8.onnx")
        return tmp_path / "model_int8.onnx"

    return make


@pytest.fixture
def write_suite(tmp_path: Path) -> MakePath:
    """Fixtures as JSON lines, from texts with their gold as `<LABEL:words>`."""

    def write(texts: Sequence[str], name: str = "suite.jsonl") -> Path:
        rows = ({**annotated(text), "id": f"secret-id-{number}"} for number, text in enumerate(texts))
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows)))
        return tmp_path / name

    return write


def annotated(marked: str) -> dict[str, Any]:
    text, spans = "", []
    for part in marked.replace(">", "<").split("<"):
        label, colon, words = part.partition(":")
        if colon:
            end = len(text) + len(words)
            spans.append({"start": len(text), "end": end, "label": label, "text": words})
        text += words if colon else part
    return {"text": text, "gold_spans": spans}
