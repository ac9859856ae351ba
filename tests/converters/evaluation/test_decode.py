from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.evaluation.tokens import NOTHING, decode, tag_scheme

BIO = ("O", "B-A", "I-A", "B-B", "I-B")
BIOES = ("O", "B-A", "I-A", "E-A", "S-A")
IO = ("O", "I-A", "I-B")
PLAIN = ("O", "A", "B")


def labels(tags: tuple[str, ...], tokens: list[tuple[str, int, int]], length: int) -> str:
    """Decoded characters as letters, `.` for none."""
    scheme = tag_scheme(tags)
    numbers = np.array([tags.index(tag) for tag, _, _ in tokens], dtype=np.int64)
    offsets = np.array([(start, end) for _, start, end in tokens], dtype=np.int64).reshape(-1, 2)
    return "".join("." if n == NOTHING else scheme.names[n] for n in decode(numbers, offsets, length, scheme))


@pytest.mark.parametrize(
    ("tags", "tokens", "expected"),
    [
        (BIO, [("B-A", 0, 2), ("I-A", 3, 5)], "AAAAA."),
        (BIO, [("B-A", 0, 2), ("B-A", 3, 5)], "AA.AA."),
        (BIO, [("I-A", 0, 2), ("I-A", 3, 5)], "AAAAA."),
        (BIO, [("B-A", 0, 2), ("I-B", 3, 5)], "AA.BB."),
        (BIO, [("B-A", 0, 1), ("O", 2, 3), ("I-A", 4, 5)], "A...A."),
        (BIO, [("B-A", 0, 2), ("O", 2, 2), ("I-A", 3, 5)], "AAAAA."),
        (BIO, [("B-A", 0, 4), ("O", 0, 4)], "......"),
        (BIOES, [("B-A", 0, 2), ("E-A", 3, 5)], "AAAAA."),
        (BIOES, [("E-A", 0, 2), ("I-A", 3, 5)], "AA.AA."),
        (BIOES, [("S-A", 0, 2), ("S-A", 3, 5)], "AA.AA."),
        (IO, [("I-A", 0, 2), ("I-A", 3, 5)], "AAAAA."),
        (PLAIN, [("A", 0, 2), ("A", 3, 5)], "AAAAA."),
        (PLAIN, [("A", 0, 2), ("B", 2, 4)], "AABB.."),
        (BIO, [], "......"),
        (("O", "B-A", "M-A", "E-A", "S-A"), [("B-A", 0, 1), ("M-A", 2, 3), ("E-A", 4, 5)], "AAAAA."),
        (("O", "B-A", "M-A", "E-A", "S-A"), [("S-A", 0, 1), ("S-A", 2, 3)], "A.A."),
        (("o", "A-b", "A-i"), [("A-b", 0, 1), ("A-i", 2, 3), ("A-b", 4, 5)], "AAA.A."),
    ],
)
def test_decoding(tags: tuple[str, ...], tokens: list[tuple[str, int, int]], expected: str) -> None:
    assert labels(tags, tokens, len(expected)) == expected


@pytest.mark.parametrize(
    ("tags", "names"),
    [
        (BIO, ("A", "B")),
        (BIOES, ("A",)),
        (("O", "B-A", "L-A", "U-A"), ("A",)),
        (IO, ("A", "B")),
        (PLAIN, ("A", "B")),
        (("O", "B_A", "I_A"), ("A",)),
        (("O", "NAME", "E-MAIL", "S_NUMBER"), ("NAME", "E-MAIL", "S_NUMBER")),
        (("O", "B-E-MAIL", "I-E-MAIL"), ("E-MAIL",)),
        (("O", "B-A", "I-A", "E-MAIL"), ("A", "E-MAIL")),
        (("LABEL_0", "LABEL_1"), ("LABEL_0", "LABEL_1")),
        (("O",), ()),
        (("o", "b-name", "i-name"), ("name",)),
        (("O", "B-A", "M-A", "E-A", "S-A"), ("A",)),
        (("O", "A-B", "A-I", "C-B", "C-I"), ("A", "C")),
        (("O", "A_B", "A_I", "A_E", "A_S"), ("A",)),
        (("O", "b_a", "i_a"), ("a",)),
        (("O", "B:A", "I:A"), ("A",)),
        (("O", "B_CELL", "T_CELL"), ("B_CELL", "T_CELL")),
        (("O", "HEPATITIS_B", "HEPATITIS_E"), ("HEPATITIS_B", "HEPATITIS_E")),
    ],
)
def test_the_labels_behind_the_tags(tags: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert tag_scheme(tags).names == names


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 3)), max_size=20))
def test_a_character_is_labelled_only_by_a_token_on_it_or_between_two_of_its_entity(steps) -> None:  # type: ignore[no-untyped-def]
    at, tokens = 0, []
    for tag, gap, width in steps:
        tokens.append((BIO[tag], at + gap, at + gap + width))
        at += gap + width
    decoded = labels(BIO, tokens, at)
    for tag, start, end in tokens:
        assert decoded[start:end] == ("." if tag == "O" else tag[2:]) * (end - start)
    for (left, _, end), (right, start, _) in pairwise(tokens):
        inside = right.startswith("I-") and left[2:] == right[2:]
        assert decoded[end:start] == (right[2:] if inside else ".") * (start - end)
