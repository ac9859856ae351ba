"""Texts as a model takes them: windows of tokens, overlapping if a text is longer than the model's context."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.decode import Integers
from onnxreg.schema.core.errors import InputError

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class TokenWindow:
    """Some tokens of one text.

    `inputs` are int64 of shape (1, tokens); `offsets` (tokens, 2) are code points of the text; `positions` holds the
    positions whose prediction counts: no special token, and in an overlap only the half that is nearer the middle
    of its window. Over the windows of a text every token of the text is kept once, in order.
    """

    text: int
    inputs: dict[str, Integers]
    offsets: Integers
    positions: Integers


def windows(tokenizer: Any, size: int, texts: Sequence[str]) -> list[TokenWindow]:
    """Cut every text into windows of at most `size` tokens, special ones included; together they cover each
    token.

    `tokenizer` is a fast one of Transformers; it is copied first, since encoding leaves truncation settings
    behind that a later save would publish. Raises InputError if special tokens leave no room for text.
    """
    if not texts:
        return []
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.truncation_side = "right"
    room = size - tokenizer.num_special_tokens_to_add()
    if room < 1:
        raise InputError(f"the model takes {size} tokens at once, which leaves no room for text")
    overlap = room // 4
    encoded = tokenizer(
        list(texts),
        truncation=True,
        max_length=size,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_token_type_ids=True,
        return_attention_mask=True,
    )
    owners = encoded["overflow_to_sample_mapping"]
    follows = [False, *(left == right for left, right in pairwise(owners))]
    return [
        TokenWindow(
            text,
            {name: np.asarray([encoded[name][number]], dtype=np.int64) for name in INPUTS},
            np.asarray(encoded["offset_mapping"][number], dtype=np.int64).reshape(-1, 2),
            kept_tokens(encoded["special_tokens_mask"][number], overlap, before, after),
        )
        for number, (text, before, after) in enumerate(
            zip(owners, follows, [*follows[1:], False], strict=True)
        )
    ]


def kept_tokens(special: Sequence[int], overlap: int, before: bool, after: bool) -> Integers:
    """`before` and `after` say whether a window of the same text shares the first or last `overlap` tokens."""
    content = np.flatnonzero(np.asarray(special) == 0)
    first = overlap // 2 if before else 0
    last = len(content) - (overlap - overlap // 2 if after else 0)
    return content[first:last]
