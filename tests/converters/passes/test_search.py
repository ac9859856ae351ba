"""`minimize`: what is left is needed, whatever the predicate."""

from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.passes.mixed_precision import Trials, minimize

NAMES = [f"n{index}" for index in range(12)]


@given(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES), min_size=1))
def test_nothing_more_can_be_left_out(needed: set[str], any_of: set[str]) -> None:
    def holds(names: frozenset[str]) -> bool:
        return needed <= names and bool(any_of & names)

    kept, minimal = minimize(NAMES, Trials(holds, 1000))
    assert minimal
    assert holds(frozenset(kept))
    assert not any(holds(frozenset(kept) - {name}) for name in kept)


@given(st.sets(st.sampled_from(NAMES)), st.integers(1, 8))
def test_a_search_that_ends_early_holds_all_the_same(needed: set[str], most: int) -> None:
    asked: list[frozenset[str]] = []

    def holds(names: frozenset[str]) -> bool:
        asked.append(names)
        return needed <= names

    kept, _ = minimize(NAMES, Trials(holds, most))
    assert needed <= set(kept)
    assert len(asked) == len(set(asked)) <= most
