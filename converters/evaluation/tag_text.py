"""A token classifier on a text: the spans that it finds, decoded as the evaluation decodes them.

The tokenizer is the version's own `tokenizer.json`, run by the library of that name without Transformers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import NOTHING, decode, tag_scheme
from onnxreg.converters.evaluation.predict import artifact_runner
from onnxreg.converters.evaluation.tasks.token_spans import tags_of
from onnxreg.converters.evaluation.windows import TokenWindow, kept_tokens
from onnxreg.schema.core.errors import ConversionError, InputError, missing_extra


@dataclass(frozen=True)
class TaggedSpan:
    """A labelled part of a text: half-open, in code points."""

    start: int
    end: int
    label: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return {"start": self.start, "end": self.end, "label": self.label, "text": self.text}


def tag(graph: Path, tokenizer: Path, labels: Sequence[str], max_length: int, text: str) -> list[TaggedSpan]:
    """The spans of a text, in order.

    Args:
        graph: an ONNX or ORT-format token classifier with the output `logits`.
        tokenizer: its `tokenizer.json`.
        labels: its tags, in the order of its logits.
        max_length: tokens it takes at once; a longer text is cut into overlapping windows.

    Raises ConversionError if the graph does not load, or fits neither tokenizer nor labels; InputError if
    the tokenizer cannot be read; HostError for a missing extra.
    """
    scheme = tag_scheme(labels)
    cut = list(_windows(tokenizer, max_length, text))
    if not any(len(window.positions) for window in cut):
        return []
    run = artifact_runner(graph)
    try:
        outputs = [run(window.inputs) for window in cut]
    except ConversionError as error:
        raise ConversionError(f"{graph.name} does not run on that text", error.advice) from error
    shapes = [(1, len(window.offsets), len(labels)) for window in cut]
    parts = [tags_of(*window) for window in zip(cut, outputs, shapes, strict=True)]
    tags, offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return list(_spans(text, decode(tags, offsets, len(text), scheme).tolist(), scheme.names))


def _spans(text: str, labels: Sequence[int], names: Sequence[str]) -> Iterator[TaggedSpan]:
    for label, group in groupby(range(len(text)), key=lambda index: labels[index]):
        indices = list(group)
        if label != NOTHING:
            start, end = indices[0], indices[-1] + 1
            yield TaggedSpan(start, end, names[label], text[start:end])


def _windows(path: Path, size: int, text: str) -> Iterator[TokenWindow]:
    """Cut a text into windows, as `evaluation.windows` does with a tokenizer of Transformers."""
    tokenizer = _load(path)
    room = size - tokenizer.num_special_tokens_to_add(False)
    if room < 1:
        raise InputError(f"the model takes {size} tokens at once, which leaves no room for text")
    overlap = room // 4
    tokenizer.no_padding()
    tokenizer.enable_truncation(size, stride=overlap)
    first = tokenizer.encode(text)
    parts = [first, *first.overflowing]
    for number, part in enumerate(parts):
        rows = {
            "input_ids": part.ids,
            "attention_mask": part.attention_mask,
            "token_type_ids": part.type_ids,
        }
        yield TokenWindow(
            0,
            {name: np.asarray([row], dtype=np.int64) for name, row in rows.items()},
            np.asarray(part.offsets, dtype=np.int64).reshape(-1, 2),
            kept_tokens(part.special_tokens_mask, overlap, number > 0, number + 1 < len(parts)),
        )


def _load(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise missing_extra("tokenizers", "run", "reading text") from error
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise InputError(f"{path.name} is not a tokenizer of the tokenizers library") from error
