"""The tree of the log: roots and proofs by the definition of RFC 9162, and the files of its tiles."""

import hashlib
import random
from functools import cache

import pytest

from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.witness.merkle_tree import (
    EMPTY_TREE,
    Tile,
    TiledTree,
    consistency_proof,
    decode_entries,
    encode_entries,
    entries_path,
    inclusion_proof,
    is_consistent,
    leaf_hash,
    root_of_inclusion,
)

SIZE = 600
ENTRIES = [b"entry %d" % number for number in range(SIZE)]


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


@cache
def mth(begin: int, end: int) -> bytes:
    """RFC 9162, section 2.1.1."""
    if end - begin <= 1:
        return sha(b"\0", ENTRIES[begin]) if end > begin else EMPTY_TREE
    split = 1
    while split * 2 < end - begin:
        split *= 2
    return sha(b"\1", mth(begin, begin + split), mth(begin + split, end))


@pytest.fixture(scope="module")
def tiles() -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for size, entry in enumerate(ENTRIES):
        files.update(dict(TiledTree(size, lambda tile: files[tile.path]).append(entry)))
    return files


def test_roots_are_those_of_the_definition(tiles: dict[str, bytes]) -> None:
    for size in range(SIZE + 1):
        assert TiledTree(size, lambda tile: tiles[tile.path]).root == mth(0, size)


def test_proofs_lead_to_the_root_and_to_no_other(tiles: dict[str, bytes]) -> None:
    pick = random.Random(1)
    for size in (1, 2, 3, 255, 256, 257, 513, *pick.sample(range(4, SIZE), 30)):
        hash_at = TiledTree(size, lambda tile: tiles[tile.path]).hash_at
        for index in {0, size - 1, *pick.choices(range(size), k=8)}:
            proof = inclusion_proof(index, size, hash_at)
            assert root_of_inclusion(index, size, leaf_hash(ENTRIES[index]), proof) == mth(0, size)
            for wrong in (proof[1:], proof[:-1], [*proof, proof[-1] if proof else EMPTY_TREE]):
                if wrong != proof:
                    assert root_of_inclusion(index, size, leaf_hash(ENTRIES[index]), wrong) != mth(0, size)
        for old in {0, 1, size, *pick.choices(range(size), k=8)}:
            proof = consistency_proof(old, size, hash_at)
            assert is_consistent(old, size, mth(0, old), mth(0, size), proof)
            if 1 < old < size:
                assert not is_consistent(old, size, mth(0, old - 1), mth(0, size), proof)
                assert not is_consistent(old, size, mth(0, old), mth(1, size), proof)
                assert not is_consistent(old, size, mth(0, old), mth(0, size), proof[:-1])


@pytest.mark.parametrize(
    ("index", "width", "path"),
    [(0, 256, "000"), (5, 3, "005.p/3"), (1_234_067, 256, "x001/x234/067"), (1000, 1, "x001/000.p/1")],
)
def test_paths_are_those_of_the_specification(index: int, width: int, path: str) -> None:
    assert Tile(0, index, width).path == f"tile/0/{path}"
    assert entries_path(index, width) == f"tile/entries/{path}"


def test_a_tile_of_another_length_is_refused(tiles: dict[str, bytes]) -> None:
    with pytest.raises(IntegrityError, match="has 31 bytes"):
        _ = TiledTree(1, lambda tile: bytes(31)).root


def test_entries_come_back_and_a_cut_bundle_is_refused() -> None:
    data = encode_entries([b"", b"one", bytes(300)])
    assert decode_entries(data) == [b"", b"one", bytes(300)]
    for cut in (1, 3, len(data) - 1):
        with pytest.raises(IntegrityError, match="cut off"):
            decode_entries(data[:cut])
