"""Turn texts into tokens with the library `tokenizers`, and tags of tokens into labels of characters."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxreg.schema.core.errors import InputError, missing_extra

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
STRIDE = 128  # the maximum overlap of neighbouring windows over a pair's second text, in tokens


@dataclass(frozen=True)
class TokenRow:
    """The tokens of a text, or of a pair of texts.

    `inputs` are int64 `[1, tokens]`. `offsets` (int64 `[tokens, 2]`) are each token's range of code points. `sequences`
    has 0 for the first text, 1 for the second, -1 for special tokens. `positions` are the tokens whose predictions are
    used: the windows of a long text overlap, and each token is used in one window.
    """

    inputs: dict[str, Integers]
    tokens: tuple[str, ...]
    offsets: Integers
    sequences: Integers
    positions: Integers
    is_cut: bool


class TextTokenizer:
    """A `tokenizers.Tokenizer` that makes rows of at most `max_length` tokens. Longer rows are cut at `side`."""

    def __init__(self, tokenizer: Any, max_length: int, side: str = "right") -> None:
        self.max_length, self._side = max_length, side
        self._tokenizer = copy.deepcopy(tokenizer)  # encoding changes its settings
        self._tokenizer.no_padding()

    @classmethod
    def read(cls, path: Path, max_length: int) -> "TextTokenizer":
        """Read a tokenizer file. Raise InputError if it is invalid, and HostError if the library is missing."""
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise missing_extra("tokenizers", "run", "reading text") from error
        try:
            return cls(Tokenizer.from_file(str(path)), max_length)
        except Exception as error:
            raise InputError(f"{path.name} is not a tokenizer of the tokenizers library") from error

    def row(self, text: str, pair: str | None = None) -> TokenRow:
        """Return the row of a text or a pair, cut to `max_length`. Raise InputError if special tokens alone fill it."""
        self._room(pair is not None)
        self._tokenizer.enable_truncation(self.max_length, direction=self._side)
        return _row(self._tokenizer.encode(text, pair))

    def whole(self, text: str) -> TokenRow:
        self._tokenizer.no_truncation()
        return _row(self._tokenizer.encode(text))

    def windows(self, text: str, pair: str | None = None) -> Iterator[TokenRow]:
        """Yield rows that together have every token of a text. Neighbours overlap by a quarter.

        With `pair`, each row has the whole first text and a part of the second. A first text may be too long:
        InputError.
        """
        room = self._room(pair is not None)
        overlap, strategy = room // 4, "longest_first"
        if pair is not None:
            overlap, strategy = min(STRIDE, self.max_length // 4), "only_second"
            self._tokenizer.no_truncation()
            count = len(self._tokenizer.encode(text, add_special_tokens=False).ids)
            if room - count <= overlap:
                raise InputError(
                    f"the question has {count} tokens, which leaves too little room for its context in {self.max_length}",
                    "shorten the question, or state a larger max_seq_length",
                )
        self._tokenizer.enable_truncation(self.max_length, stride=overlap, strategy=strategy)
        first = self._tokenizer.encode(text, pair)
        windows = (first, *first.overflowing)
        for number, window in enumerate(windows):
            yield _row(
                window, overlap // 2 * (number > 0), (overlap - overlap // 2) * (window is not windows[-1])
            )

    def text(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids))

    def _room(self, is_pair: bool) -> int:
        room = self.max_length - int(self._tokenizer.num_special_tokens_to_add(is_pair))
        if room < 1:
            message = f"the model takes {self.max_length} tokens at once, which leaves no room for text"
            raise InputError(message)
        return room


def _row(encoding: Any, before: int = 0, after: int = 0) -> TokenRow:
    """Return the row of an encoding. Predictions for its first `before` and last `after` tokens do not count."""
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
