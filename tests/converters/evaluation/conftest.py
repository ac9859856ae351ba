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
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.manifest import Source

TAGS = ("O", "B-NAME", "I-NAME", "B-CITY", "I-CITY")
WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "meets",
    "in",
    "and",
    "Ada",
    "Bo",
    "Cy",
    "Oslo",
    "Rome",
    "New",
    "York",
)
TRUTH = {
    "Ada": "B-NAME",
    "Bo": "B-NAME",
    "Cy": "I-NAME",
    "Oslo": "B-CITY",
    "Rome": "B-CITY",
    "New": "B-CITY",
    "York": "I-CITY",
}
BASE = {
    "scheme": "dynamic",
    "weight_type": "qint8",
    "op_types": ["MatMul", "Gemm"],
    "calibration": "none",
    "target": "arm64-cpu",
    "output": "model_int8.onnx",
}

Opinion = Mapping[str, str]
"""The tag a model gives a word; `O` where it says nothing."""


@dataclass(frozen=True)
class Checkpoint:
    model: Any
    tokenizer: Any
    labels: tuple[str, ...]
    source: Source


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


def lookup_graph(
    table: np.ndarray, inputs: Sequence[str] = ("input_ids", "attention_mask")
) -> onnx.ModelProto:
    ids = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in inputs]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", table.shape[1]])
    node = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    graph = helper.make_graph([node], "lookup", ids, [logits], [numpy_helper.from_array(table, "table")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture(scope="session")
def tokenizer() -> "transformers.PreTrainedTokenizerFast":
    words = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )


@pytest.fixture
def checkpoint(tokenizer: "transformers.PreTrainedTokenizerFast") -> Callable[..., Checkpoint]:
    """A parent with an opinion."""

    def make(opinion: Opinion = TRUTH, tags: Sequence[str] = TAGS) -> Checkpoint:
        return Checkpoint(
            Lookup(logit_table(opinion, tags)),
            tokenizer,
            tuple(tags),
            Source(id="acme/names", digest=Digest.of(b"weights")),
        )

    return make


@pytest.fixture
def candidate(tmp_path: Path) -> Callable[..., Path]:
    """The same as an ONNX file."""

    def make(opinion: Opinion = TRUTH, tags: Sequence[str] = TAGS) -> Path:
        path = tmp_path / "model_int8.onnx"
        path.write_bytes(lookup_graph(logit_table(opinion, tags)).SerializeToString())
        return path

    return make


@pytest.fixture
def write_suite(tmp_path: Path) -> Callable[..., Path]:
    """Fixtures as JSON lines, from texts where gold stands as `<LABEL:words>`."""

    def write(texts: Sequence[str], name: str = "suite.jsonl") -> Path:
        rows = [
            json.dumps(annotated(text) | {"id": f"secret-id-{number}"}) for number, text in enumerate(texts)
        ]
        path = tmp_path / name
        path.write_text("\n".join(rows))
        return path

    return write


@pytest.fixture
def base() -> dict[str, Any]:
    return dict(BASE)


def annotated(marked: str) -> dict[str, Any]:
    text, spans = "", []
    for part in marked.replace(">", "<").split("<"):
        label, colon, words = part.partition(":")
        if colon:
            end = len(text) + len(words)
            spans.append({"start": len(text), "end": end, "label": label, "text": words})
        text += words if colon else part
    return {"text": text, "gold_spans": spans}
