"""A graph with the companions of its version that texts need.

Its `tokenizer.json` is run by the library `tokenizers`, without Transformers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import Integers
from onnxreg.converters.evaluation.predict import Runner, artifact_runner
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.schema.core.errors import ConversionError, InputError, missing_extra

PER_TOKEN = ("logits", "start_logits", "end_logits", "last_hidden_state", "token_embeddings")
"""Outputs with a value for each token: a graph of fixed shape gives them for its padding too."""


@dataclass(frozen=True)
class TokenRow:
    """The tokens of a text, or of a pair of texts.

    `inputs` are int64 `[1, tokens]`; `offsets` are int64 `[tokens, 2]`, code points of the text that a token is
    of; `sequences` holds 0 or 1 for that text, -1 for a special token.
    """

    inputs: dict[str, Integers]
    tokens: tuple[str, ...]
    offsets: Integers
    sequences: Integers
    special: tuple[int, ...]
    is_cut: bool


class TextTokenizer:
    """A tokenizer, and the most tokens of one row.

    Raise InputError if the file is not a tokenizer of the library; HostError for a missing extra.
    """

    def __init__(self, path: Path, max_length: int) -> None:
        self.max_length = max_length
        self._tokenizer = _load(path)
        self._tokenizer.no_padding()

    def limit(self, length: int | None) -> None:
        """Make no longer rows than this, if a length is given."""
        self.max_length = min(self.max_length, length or self.max_length)

    def row(self, text: str, pair: str | None = None) -> TokenRow:
        """One row; what is longer than the model takes is cut at its end."""
        self._check_room(0, pair is not None)
        self._tokenizer.enable_truncation(self.max_length)
        return _row(self._tokenizer.encode(text, pair))

    def windows(self, text: str) -> Iterator[TokenRow]:
        """Rows that together have every token of a text, overlapping by a quarter of their room."""
        self._tokenizer.enable_truncation(self.max_length, stride=self.overlap())
        first = self._tokenizer.encode(text)
        yield from map(_row, (first, *first.overflowing))

    def overlap(self) -> int:
        """The tokens that two `windows` share."""
        return self._check_room(0, False) // 4

    def pair_windows(self, text: str, pair: str, overlap: int) -> Iterator[TokenRow]:
        """Rows of a whole text with parts of a second one, which overlap.

        Raise InputError if the text leaves no more room than two parts share.
        """
        self._tokenizer.no_truncation()
        count = len(self._tokenizer.encode(text, add_special_tokens=False).ids)
        self._check_room(count + overlap, True)
        self._tokenizer.enable_truncation(self.max_length, stride=overlap, strategy="only_second")
        first = self._tokenizer.encode(text, pair)
        yield from map(_row, (first, *first.overflowing))

    def ids(self, text: str) -> list[int]:
        """The tokens of a whole text."""
        self._tokenizer.no_truncation()
        return list(self._tokenizer.encode(text).ids)

    def text(self, ids: list[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(ids))

    def _check_room(self, used: int, is_pair: bool) -> int:
        """The tokens that a row has left. InputError if there are none."""
        room = self.max_length - int(self._tokenizer.num_special_tokens_to_add(is_pair)) - used
        if room < 1:
            raise InputError(
                f"the model takes {self.max_length} tokens at once, which leaves no room for text"
            )
        return room


@dataclass(frozen=True)
class TextModel:
    """An ONNX or ORT-format file, a tokenizer, labels in the order of the logits, the checkpoint's config.json.

    Without labels or a config, `labels` or `config` is empty.
    """

    graph: Path
    tokenizer: TextTokenizer
    labels: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def runner(self) -> Runner:
        """Raise ConversionError if ONNX Runtime cannot load the graph."""
        padding = self.config.get("pad_token_id")
        return artifact_runner(self.graph, PER_TOKEN, padding if isinstance(padding, int) else 0)

    def run(self, feed: Feed) -> Mapping[str, Any]:
        """The outputs for one row. InputError if it has no tokens; ConversionError if the graph does not run."""
        if not feed["input_ids"].size:
            raise InputError("the text has no tokens", "write a text that is not empty")
        try:
            return self.runner(feed)
        except ConversionError as error:
            hint = error.hint or error.message
            raise ConversionError(f"{self.graph.name} does not run on that text", hint) from error

    def check_labels(self, count: int) -> tuple[str, ...]:
        """The labels; `LABEL_0`, ... if the version has none. ConversionError unless there are `count`."""
        labels = self.labels or tuple(f"LABEL_{number}" for number in range(count))
        if len(labels) != count:
            raise ConversionError(
                f"{self.graph.name} gives {count} logits, and the version has {len(labels)} labels",
                "the number of labels in config.json must be the number of logits",
            )
        return labels


def numbers_of(outputs: Mapping[str, Any], name: str) -> Any:
    """An output of one row without its first axis, float64. ConversionError if it is missing, or has NaN."""
    import numpy as np

    from onnxreg.converters.evaluation.tasks.task_evaluator import output

    return np.asarray(output(outputs, name), dtype=np.float64)


def refuse(label: str, why: str) -> InputError:
    """The error for a version that no text fits."""
    return InputError(f"{label} {why}", "run it on tensors: --input")


def _row(encoding: Any) -> TokenRow:
    rows = {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }
    return TokenRow(
        {name: np.asarray([row], dtype=np.int64) for name, row in rows.items()},
        tuple(encoding.tokens),
        np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2),
        np.array([-1 if number is None else number for number in encoding.sequence_ids], dtype=np.int64),
        tuple(encoding.special_tokens_mask),
        bool(encoding.overflowing),
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
