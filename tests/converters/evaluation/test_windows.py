"""Windows of tokens: those of an evaluation, whose tokenizer is of Transformers, and of `reg run` are the same."""

import copy
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.evaluation.tokens import TextTokenizer, TokenRow
from onnxreg.schema.core.errors import InputError

WORDS = ["Ada", "Bo", "meets", "Oslo", "in", "xyzzy"]
texts = st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join)
Fast = "transformers.PreTrainedTokenizerFast"


def windows(tokenizer: Fast, size: int, text: str) -> list[TokenRow]:
    return list(TextTokenizer(tokenizer.backend_tokenizer, size).windows(text))


@given(text=texts, size=st.integers(3, 38))
def test_every_token_is_kept_once_and_in_order(tokenizer: Fast, text: str, size: int) -> None:
    cut = windows(tokenizer, size, text)
    kept = [tuple(pair) for window in cut for pair in window.offsets[window.positions].tolist()]
    for window in cut:
        assert window.inputs["input_ids"].shape == (1, len(window.offsets))
        assert len(window.offsets) <= size
        assert window.inputs["attention_mask"].all() and not window.inputs["token_type_ids"].any()
    whole = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    assert kept == [tuple(pair) for pair in whole]
    rows = tokenizer(
        text,
        truncation=True,
        max_length=size,
        stride=(size - 2) // 4,
        return_overflowing_tokens=True,
        return_attention_mask=True,
    )["input_ids"]
    assert [window.inputs["input_ids"][0].tolist() for window in cut] == rows


def test_a_kept_token_has_context_on_both_sides(tokenizer: Fast) -> None:
    cut = windows(tokenizer, 24, "Ada " * 200)
    assert len(cut) > 3
    for before, window in pairwise(cut):
        assert window.positions[0] - 1 >= 2
        assert len(before.offsets) - 2 - before.positions[-1] >= 2


def test_the_tokenizer_is_left_as_it_was_and_its_own_settings_change_nothing(tokenizer: Fast) -> None:
    odd = copy.deepcopy(tokenizer)
    odd.backend_tokenizer.enable_padding(length=64)
    odd.backend_tokenizer.enable_truncation(3, direction="left")
    before, text = odd.backend_tokenizer.to_str(), "Ada meets Bo " * 20
    for plain, other in zip(windows(tokenizer, 18, text), windows(odd, 18, text), strict=True):
        assert np.array_equal(plain.inputs["input_ids"], other.inputs["input_ids"])
        assert np.array_equal(plain.positions, other.positions)
    assert odd.backend_tokenizer.to_str() == before


def test_a_context_without_room_for_text_is_refused(tokenizer: Fast) -> None:
    with pytest.raises(InputError, match="leaves no room for text"):
        windows(tokenizer, 2, "Ada")
