"""The map: one root for one set of entries, whatever way led to it; and the cost of a change."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.witness import map_judge

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.witness import merkle_map
from onnxreg.schema.witness.merkle_map import EMPTY_MAP, MapEntry, MerkleMap, decode_page
from onnxreg.schema.witness.merkle_tree import node_hash

NAMES = [f"org/m{number}" for number in range(400)]
changes = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=60)


def entry(name: str, seq: int) -> MapEntry:
    return MapEntry(name, seq, Digest.of(f"{name} {seq}".encode()))


def filled(names: list[str], seq: int = 1) -> MerkleMap:
    heads = MerkleMap(EMPTY_MAP, {}.__getitem__)
    heads.update({name: entry(name, seq) for name in names})
    return heads


@given(changes, st.integers(5, 50))
def test_the_root_depends_on_the_entries_alone(steps: list[tuple[str, int]], size: int) -> None:
    heads = filled(NAMES[:300])
    expected = {name: entry(name, 1) for name in NAMES[:300]}
    for start in range(0, len(steps), size):
        batch = {name: entry(name, seq) if seq else None for name, seq in steps[start : start + size]}
        heads.update(batch)
        expected = {name: each for name, each in (expected | batch).items() if each is not None}
    assert heads.root == map_judge.root_of(
        {name: (each.seq, each.head.hex) for name, each in expected.items()}
    )
    assert {each.name: each for each in heads} == expected
    assert [heads.get(name) for name in NAMES[::40]] == [expected.get(name) for name in NAMES[::40]]


@given(st.data())
def test_a_changed_page_is_refused(data: st.DataObject) -> None:
    """Whatever byte of a page on the way is changed, the look-up does not answer."""
    heads = filled(NAMES)
    pages = dict(heads.pages)
    name = data.draw(st.sampled_from(NAMES))
    page = data.draw(st.sampled_from(sorted(pages)))
    at = data.draw(st.integers(0, len(pages[page]) - 1))
    changed = bytearray(pages[page])
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    expected = heads.get(name)
    try:
        answer = MerkleMap(heads.root, {**pages, page: bytes(changed)}.__getitem__).get(name)
    except IntegrityError:
        return
    assert answer == expected


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (b"org/a 1 " + b"0" * 64 + b"\norg/a 1 " + b"0" * 64 + b"\n", "not sorted"),
        (b"org/a 0 " + b"0" * 64 + b"\n", "malformed"),
        (b"ORG/a 1 " + b"0" * 64 + b"\n", "malformed"),
        (b"00 zz\n", "malformed"),
    ],
)
def test_a_malformed_page_is_refused(lines: bytes, problem: str) -> None:
    with pytest.raises(IntegrityError, match=problem):
        decode_page(lines, 0, 0)


def test_an_entry_of_another_place_is_refused() -> None:
    heads = filled(NAMES)
    deeper = next(data for page, data in heads.pages.items() if page != heads.root)
    with pytest.raises(IntegrityError, match="belongs elsewhere"):
        decode_page(deeper, 0 if not deeper.startswith(b"00") else 1 << 255, 8)


def cost(pages: dict[bytes, bytes], root: bytes, name: str) -> tuple[int, int, int]:
    """Pages read, pages made, and node hashes computed for one changed entry."""
    read: list[bytes] = []
    hashes: list[bytes] = []

    def counted(left: bytes, right: bytes) -> bytes:
        hashes.append(node_hash(left, right))
        return hashes[-1]

    changed = MerkleMap(root, lambda page: read.append(page) or pages[page])  # type: ignore[func-returns-value]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merkle_map, "node_hash", counted)
        changed.update({name: entry(name, 7)})
    return len(read), len(changed.pages), len(hashes)


@pytest.mark.parametrize("count", [100, 10_000, pytest.param(1_000_000, marks=pytest.mark.more)])
def test_a_change_touches_a_logarithm_of_the_nodes(count: int) -> None:
    """A page for each 8 bits of the way, and at most the nodes of these pages, twice: to check and to make them."""
    depth = {100: 1, 10_000: 2, 1_000_000: 3}[count]
    heads = filled([f"org/m{number}" for number in range(count)])
    names = [f"org/m{random.Random(seed).randrange(count)}" for seed in range(20)]
    for read, made, hashes in (cost(heads.pages, heads.root, name) for name in names):
        assert read <= depth and made <= depth
        assert hashes <= depth * 2 * 300


def test_memory_is_that_of_the_pages_on_the_way() -> None:
    pages = filled([f"org/m{number}" for number in range(20_000)])
    stored, root = dict(pages.pages), pages.root
    tracemalloc.start()
    MerkleMap(root, stored.__getitem__).get("org/m77")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**20
