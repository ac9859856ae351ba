"""A token classifier on a text: the spans that it finds, decoded as the evaluation decodes them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import NOTHING, decode, tag_scheme
from onnxreg.converters.evaluation.tasks.token_spans import tags_of
from onnxreg.converters.evaluation.windows import TokenWindow, kept_tokens
from onnxreg.converters.texts.text_model import TextModel
from onnxreg.converters.texts.text_tokenizer import TextTokenizer


@dataclass(frozen=True)
class TaggedSpan:
    """A labelled part of a text: half-open, in code points."""

    start: int
    end: int
    label: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "label": self.label, "text": self.text}


def tag(model: TextModel, text: str) -> list[TaggedSpan]:
    """The spans of a text, in order. A text longer than the model takes is cut into overlapping windows.

    Args:
        model: an ONNX or ORT-format token classifier with the output `logits`; its labels are tags.

    Raises ConversionError if the graph does not load, or fits neither tokenizer nor labels.
    """
    scheme = tag_scheme(model.labels)
    cut = list(windows(model.tokenizer, text))
    if not any(len(window.positions) for window in cut):
        return []
    outputs = [model.run(window.inputs) for window in cut]
    shapes = [(1, len(window.offsets), len(model.labels)) for window in cut]
    parts = [tags_of(*window) for window in zip(cut, outputs, shapes, strict=True)]
    tags, offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return list(_spans(text, decode(tags, offsets, len(text), scheme).tolist(), scheme.names))


def _spans(text: str, labels: Sequence[int], names: Sequence[str]) -> Iterator[TaggedSpan]:
    for label, group in groupby(range(len(text)), key=lambda index: labels[index]):
        indices = list(group)
        if label != NOTHING:
            start, end = indices[0], indices[-1] + 1
            yield TaggedSpan(start, end, names[label], text[start:end])


def windows(tokenizer: TextTokenizer, text: str) -> Iterator[TokenWindow]:
    """Cut a text into windows, as `evaluation.windows` does with a tokenizer of Transformers."""
    rows, overlap = list(tokenizer.windows(text)), tokenizer.overlap()
    for number, row in enumerate(rows):
        positions = kept_tokens(row.special, overlap, number > 0, number + 1 < len(rows))
        yield TokenWindow(0, row.inputs, row.offsets, positions)
