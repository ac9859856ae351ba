"""`minimize`: what is left is needed, whatever the predicate."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.passes.float16 import minimize

NAMES = [f"n{index}" for index in range(12)]


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES), min_size=1))
def test_nothing_more_can_be_left_out(needed: set[str], any_of: set[str]) -> None:
    def holds(names: Sequence[str]) -> bool:
        return needed <= set(names) and bool(any_of & set(names))

    kept = minimize(NAMES, holds)
    assert holds(kept)
    assert not any(holds([each for each in kept if each != name]) for name in kept)


@given(st.sets(st.sampled_from(NAMES)), st.integers(1, 8))
def test_a_search_that_ends_early_holds_all_the_same(needed: set[str], most: int) -> None:
    asked = 0

    def holds(names: Sequence[str]) -> bool:
        nonlocal asked
        asked += 1
        return asked <= most and needed <= set(names)

    assert needed <= set(minimize(NAMES, holds))
