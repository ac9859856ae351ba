"""Turn texts into tokens with the library `tokenizers`, and tags of tokens into labels of characters."""

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.metric import Integers
from onnxreg.schema.core.errors import InputError, missing_extra

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

        With `pair`, each row has the whole first text and a part of the second. Raises InputError if the first text is
        too long.
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


NOTHING = -1  # the label of a character without an entity

_MARKS, _JOINTS = "BILUESM", "-_:/."
_PATTERNS = tuple(
    re.compile(pattern, re.DOTALL | re.IGNORECASE)
    for joint in map(re.escape, _JOINTS)
    for pattern in (rf"(?P<mark>[{_MARKS}]){joint}(?P<name>.+)", rf"(?P<name>.+){joint}(?P<mark>[{_MARKS}])")
)
"""Match a tag with a mark: `B-NAME`, `b_name`, `NAME-B`, and so on."""


@dataclass(frozen=True)
class TagScheme:
    """The scheme by which a model's tags spell labels, such as BIO or BILOU.

    `names` are the labels without marks. For each tag, `label` is the index of its label (or `NOTHING`), `begins` is
    True if the tag always begins an entity, and `ends` is True if it always ends an entity.
    """

    names: tuple[str, ...]
    label: tuple[int, ...]
    begins: tuple[bool, ...]
    ends: tuple[bool, ...]


@cache
def tag_scheme(tags: tuple[str, ...]) -> TagScheme:
    """Return the scheme of a model's tags, which are in the order of the logits.

    In `B-NAME`, B is a mark. A letter in front counts as a mark in two cases: a label has a tag with B and another tag
    (`B-NAME`, `I-NAME`), or every tag but `O` begins with `B-` or `I-`. So `E-MAIL` alone is a label without a mark.
    """
    inside = [tag for tag in tags if tag not in ("O", "o")]
    split = {tag: ("", tag) for tag in inside}
    for pattern in _PATTERNS:
        matches = [match for tag in inside if (match := pattern.fullmatch(tag))]
        pairs = {match[0]: (match["mark"].upper(), match["name"]) for match in matches}
        is_prefix, is_every_tag = pattern.pattern.startswith("(?P<mark>"), 0 < len(matches) == len(inside)
        begun = {name for mark, name in pairs.values() if mark == "B"}
        continued = {name for mark, name in pairs.values() if mark in "IM" or (is_prefix and mark != "B")}
        is_io = is_prefix and is_every_tag and {mark for mark, _ in pairs.values()} <= {"B", "I"}
        if begun & continued or is_io:
            for tag, (mark, name) in pairs.items():
                if name in begun or (is_every_tag and mark in "BI"):
                    split[tag] = mark, name
            break
    names = tuple(dict.fromkeys(name for _, name in split.values()))
    marks = [split.get(tag, ("", ""))[0] for tag in tags]
    return TagScheme(
        names,
        tuple(names.index(split[tag][1]) if tag in split else NOTHING for tag in tags),
        tuple(mark in {"B", "S", "U"} for mark in marks),
        tuple(mark in {"E", "L", "S", "U"} for mark in marks),
    )


def decode(tags: Integers, offsets: Integers, length: int, scheme: TagScheme) -> Integers:
    """Label every character of a text.

    Neighbouring tokens of the same label form one entity, which includes the characters between them. The tokens stay
    apart if the left one ends an entity or the right one begins an entity.

    Args:
        tags: int64 `[tokens]`, the index of each token's tag among the model's tags.
        offsets: int64 `[tokens, 2]`, the range of code points of each token; an empty range is skipped.
        length: the number of code points in the text.

    Returns int64 `[length]`, the index of each character's label in `scheme.names`, or `NOTHING`.
    """
    labels = np.full(length, NOTHING, dtype=np.int64)
    current, reach = NOTHING, 0
    for tag, (start, end) in zip(tags.tolist(), offsets.tolist(), strict=True):
        if start >= end:
            continue
        label = scheme.label[tag]
        joins = label == current and not scheme.begins[tag]
        labels[reach if joins else start : end] = label
        current, reach = NOTHING if scheme.ends[tag] else label, end
    return labels


def runs(labels: Integers) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, label) of each run of characters with the same label."""
    edges = np.flatnonzero(np.diff(labels, prepend=NOTHING, append=NOTHING)).tolist()
    for start, end in pairwise(edges):
        if labels[start] != NOTHING:
            yield start, end, int(labels[start])
