"""The tokens of texts, by the library `tokenizers`: for evaluations and for `reg run` alike."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.scores import Integers
from onnxreg.schema.core.errors import InputError, missing_extra


@dataclass(frozen=True)
class TokenRow:
    """The tokens of a text, or of a pair of texts.

    `inputs` are int64 `[1, tokens]`; `offsets` are int64 `[tokens, 2]`, code points of the text that a token is
    of; `sequences` holds 0 or 1 for that text, -1 for a special token. `positions` are those of the tokens whose
    prediction counts: no special token, and in an overlap of windows only the half that is nearer the middle of its
    window. Over the windows of a text every token is kept once, in order.
    """

    inputs: dict[str, Integers]
    tokens: tuple[str, ...]
    offsets: Integers
    sequences: Integers
    positions: Integers
    is_cut: bool


class TextTokenizer:
    """A tokenizer, and the most tokens of one row."""

    def __init__(self, tokenizer: Any, max_length: int, side: str = "right") -> None:
        """Args:
        tokenizer: `tokenizers.Tokenizer`; it is copied, since encoding leaves settings behind.
        side: where a row that is too long is cut.
        """
        self.max_length, self._side = max_length, side
        self._tokenizer = copy.deepcopy(tokenizer)
        self._tokenizer.no_padding()

    @classmethod
    def read(cls, path: Path, max_length: int) -> "TextTokenizer":
        """Read a file. InputError if it is not one of the library; HostError for a missing extra."""
        return cls(load_tokenizer(path), max_length)

    def limit(self, length: int | None) -> None:
        """Make no longer rows than this, if a length is given."""
        self.max_length = min(self.max_length, length or self.max_length)

    def row(self, text: str, pair: str | None = None) -> TokenRow:
        """One row; what is longer than the model takes is cut at its end. InputError if there is no room for text."""
        self._room(pair is not None)
        self._tokenizer.enable_truncation(self.max_length, direction=self._side)
        return _row(self._tokenizer.encode(text, pair))

    def whole(self, text: str) -> TokenRow:
        """All tokens of a text, in one row."""
        self._tokenizer.no_truncation()
        return _row(self._tokenizer.encode(text))

    def windows(self, text: str) -> Iterator[TokenRow]:
        """Rows that together have every token of a text, overlapping by a quarter of their room."""
        overlap = self._room(False) // 4
        self._tokenizer.enable_truncation(self.max_length, stride=overlap)
        first = self._tokenizer.encode(text)
        windows = (first, *first.overflowing)
        for number, window in enumerate(windows):
            yield _row(
                window, overlap // 2 * (number > 0), (overlap - overlap // 2) * (window is not windows[-1])
            )

    def pair_windows(self, text: str, pair: str, overlap: int) -> Iterator[TokenRow]:
        """Rows of a whole text with parts of a second one, which share `overlap` tokens if the model's length allows.

        Raise InputError if the text leaves no more room than two parts share.
        """
        overlap = min(overlap, self.max_length // 4)
        self._tokenizer.no_truncation()
        count = len(self._tokenizer.encode(text, add_special_tokens=False).ids)
        if self._room(True) - count <= overlap:
            raise InputError(
                f"the question has {count} tokens, which leaves too little room for its context in {self.max_length}",
                "shorten the question, or state a larger max_seq_length",
            )
        self._tokenizer.enable_truncation(self.max_length, stride=overlap, strategy="only_second")
        first = self._tokenizer.encode(text, pair)
        yield from map(_row, (first, *first.overflowing))

    def text(self, ids: list[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(ids))

    def _room(self, is_pair: bool) -> int:
        """The tokens of a row that are not special. InputError if there are none."""
        room = self.max_length - int(self._tokenizer.num_special_tokens_to_add(is_pair))
        if room < 1:
            raise InputError(
                f"the model takes {self.max_length} tokens at once, which leaves no room for text"
            )
        return room


def load_tokenizer(path: Path) -> Any:
    """The `tokenizers.Tokenizer` in a file. InputError if it is not one; HostError for a missing extra."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise missing_extra("tokenizers", "run", "reading text") from error
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise InputError(f"{path.name} is not a tokenizer of the tokenizers library") from error


def _row(encoding: Any, before: int = 0, after: int = 0) -> TokenRow:
    """A row whose first and last tokens another window predicts."""
    rows = {
        "input_ids": encoding.ids,
        "attention_mask": encoding.attention_mask,
        "token_type_ids": encoding.type_ids,
    }
    content = np.flatnonzero(np.asarray(encoding.special_tokens_mask) == 0)
    return TokenRow(
        {name: np.asarray([row], dtype=np.int64) for name, row in rows.items()},
        tuple(encoding.tokens),
        np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2),
        np.array([-1 if number is None else number for number in encoding.sequence_ids], dtype=np.int64),
        content[before : len(content) - after],
        bool(encoding.overflowing),
    )
