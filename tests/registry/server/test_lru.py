"""What was used lately stays, within the bound."""

from hypothesis import given
from hypothesis import strategies as st

from onnxreg.registry.server.lru import LruCache


def test_the_one_that_was_not_asked_for_goes() -> None:
    lru: LruCache[str, int] = LruCache(3)
    for key in "abc":
        lru.put(key, 1, 1)
    assert lru.get("a") == 1
    lru.put("d", 1, 1)
    assert [lru.get(key) for key in "abcd"] == [1, None, 1, 1]


def test_an_entry_beyond_the_limit_is_not_kept() -> None:
    lru: LruCache[str, int] = LruCache(3)
    lru.put("a", 1, 4)
    assert lru.get("a") is None
    lru.put("b", 2, 3)
    assert lru.get("b") == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4))))
def test_it_keeps_the_latest_that_fit(puts: list[tuple[int, int]]) -> None:
    lru: LruCache[int, int] = LruCache(8)
    model: dict[int, int] = {}
    for key, weight in puts:
        lru.put(key, weight, weight)
        model.pop(key, None)
        model[key] = weight
        while sum(model.values()) > 8:
            del model[next(iter(model))]
    assert {key: lru.get(key) for key in range(6) if lru.get(key) is not None} == model
