from itertools import pairwise

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.evaluation.tasks.token_spans import windows
from onnxreg.schema.core.errors import InputError

WORDS = ["Ada", "Bo", "meets", "Oslo", "in", "xyzzy"]
texts = st.lists(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join), max_size=4)


@given(texts=texts, size=st.integers(3, 38))
def test_every_token_is_kept_once_and_in_order(
    tokenizer: "transformers.PreTrainedTokenizerFast", texts: list[str], size: int
) -> None:
    kept: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(texts))}
    for window in windows(tokenizer, size, texts):
        assert window.inputs["input_ids"].shape == (1, len(window.offsets))
        assert len(window.offsets) <= size
        assert window.inputs["attention_mask"].all() and not window.inputs["token_type_ids"].any()
        kept[window.text] += [tuple(pair) for pair in window.offsets[window.positions].tolist()]
    for number, text in enumerate(texts):
        whole = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        assert kept[number] == [tuple(pair) for pair in whole]


def test_a_kept_token_has_context_on_both_sides(tokenizer: "transformers.PreTrainedTokenizerFast") -> None:
    cut = windows(tokenizer, 24, ["Ada " * 200])
    assert len(cut) > 3
    for before, window in pairwise(cut):
        assert window.positions[0] - 1 >= 2
        assert len(before.offsets) - 2 - before.positions[-1] >= 2


def test_the_tokenizer_is_left_as_it_was(tokenizer: "transformers.PreTrainedTokenizerFast") -> None:
    before = tokenizer.backend_tokenizer.to_str()
    windows(tokenizer, 10, ["Ada " * 40])
    assert tokenizer.backend_tokenizer.to_str() == before


def test_baked_in_padding_and_left_truncation_change_nothing(
    tokenizer: "transformers.PreTrainedTokenizerFast",
) -> None:
    import copy

    odd = copy.deepcopy(tokenizer)
    odd.backend_tokenizer.enable_padding(length=64)
    odd.truncation_side = "left"
    text = ["Ada meets Bo " * 20]
    for plain, other in zip(windows(tokenizer, 18, text), windows(odd, 18, text), strict=True):
        assert np.array_equal(plain.inputs["input_ids"], other.inputs["input_ids"])
        assert np.array_equal(plain.positions, other.positions)


def test_a_long_text_fills_its_windows(tokenizer: "transformers.PreTrainedTokenizerFast") -> None:
    sizes = [len(window.offsets) for window in windows(tokenizer, 16, ["Ada " * 100])]
    assert set(sizes[:-1]) == {16} and len(sizes) > 7


def test_a_context_without_room_for_text_is_refused(
    tokenizer: "transformers.PreTrainedTokenizerFast",
) -> None:
    with pytest.raises(InputError, match="leaves no room for text"):
        windows(tokenizer, 2, ["Ada"])
