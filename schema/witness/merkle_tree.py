"""The Merkle tree of a log: hashes and proofs (RFC 9162, section 2.1), in tiles (c2sp.org/tlog-tiles)."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onnxreg.schema.core.errors import IntegrityError

HASH_BYTES = 32
TILE_HEIGHT = 8
TILE_WIDTH = 2**TILE_HEIGHT
EMPTY_TREE = hashlib.sha256(b"").digest()

HashAt = Callable[[int, int], bytes]
"""The hash of a complete subtree, by its level (0: a leaf) and its index among those of its level."""


def leaf_hash(entry: bytes) -> bytes:
    return hashlib.sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _split(count: int) -> int:
    """The largest power of two below a count."""
    return 1 << (count - 1).bit_length() - 1


def range_hash(begin: int, end: int, hash_at: HashAt) -> bytes:
    """The tree hash of the entries from `begin` to before `end`, where `begin` is a multiple of the subtree."""
    count = end - begin
    if count & (count - 1) == 0:
        level = count.bit_length() - 1
        return hash_at(level, begin >> level)
    middle = begin + _split(count)
    return node_hash(range_hash(begin, middle, hash_at), range_hash(middle, end, hash_at))


def root_hash(size: int, hash_at: HashAt) -> bytes:
    return range_hash(0, size, hash_at) if size else EMPTY_TREE


def inclusion_proof(index: int, size: int, hash_at: HashAt) -> list[bytes]:
    """The audit path of an entry, the sibling of the leaf first (section 2.1.3.1)."""
    begin, end, path = 0, size, []
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            path.append(range_hash(middle, end, hash_at))
            end = middle
        else:
            path.append(range_hash(begin, middle, hash_at))
            begin = middle
    return path[::-1]


def root_of_inclusion(index: int, size: int, leaf: bytes, proof: Sequence[bytes]) -> bytes | None:
    """The root that an audit path leads to (section 2.1.3.2); None if it has another length."""
    if not 0 <= index < size:
        return None
    position, last, current = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return None
        if position & 1 or position == last:
            current = node_hash(sibling, current)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            current = node_hash(current, sibling)
        position, last = position >> 1, last >> 1
    return current if last == 0 else None


def consistency_proof(old: int, new: int, hash_at: HashAt) -> list[bytes]:
    """The proof that a tree begins with the first `old` entries (section 2.1.4.1)."""
    if not 0 < old < new:
        return []
    begin, end, path = 0, new, []
    while end != old:
        middle = begin + _split(end - begin)
        if old <= middle:
            path.append(range_hash(middle, end, hash_at))
            end = middle
        else:
            path.append(range_hash(begin, middle, hash_at))
            begin = middle
    return [*([range_hash(begin, end, hash_at)] if begin else []), *path[::-1]]


def is_consistent(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """True if a proof shows that the tree with `new_root` begins with that of `old_root` (section 2.1.4.2)."""
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof and old_root == EMPTY_TREE
    if not 0 < old < new:
        return False
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    position, last = old - 1, new - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and (first, second) == (old_root, new_root)


@dataclass(frozen=True, slots=True)
class Tile:
    """Up to 256 consecutive hashes of a level that is a multiple of 8; `level` counts these."""

    level: int
    index: int
    width: int

    @property
    def path(self) -> str:
        return f"tile/{self.level}/{_numbered(self.index, self.width)}"


def entries_path(index: int, width: int) -> str:
    """The path of a bundle of entries."""
    return f"tile/entries/{_numbered(index, width)}"


def _numbered(index: int, width: int) -> str:
    digits = f"{index:03d}"
    digits = digits.zfill(-(-len(digits) // 3) * 3)
    groups = [digits[start : start + 3] for start in range(0, len(digits), 3)]
    number = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
    return number if width == TILE_WIDTH else f"{number}.p/{width}"


@dataclass(frozen=True)
class TiledTree:
    """A tree of some size whose tiles are read; they are believed only as far as a root confirms them.

    `read` returns the bytes of a tile of this tree; a tile of another length is an IntegrityError.
    """

    size: int
    read: Callable[[Tile], bytes]

    def tile(self, level: int, index: int) -> Tile:
        """The tile with this index, as wide as it is in this tree."""
        width = (self.size >> TILE_HEIGHT * level) - index * TILE_WIDTH
        return Tile(level, index, min(width, TILE_WIDTH))

    def hash_at(self, level: int, index: int) -> bytes:
        """See `HashAt`."""
        steps = level % TILE_HEIGHT
        first = index << steps
        tile = self.tile(level // TILE_HEIGHT, first // TILE_WIDTH)
        hashes = self._hashes(tile)
        start = first % TILE_WIDTH
        return range_hash(0, 1 << steps, lambda level, index: _complete(hashes, start, level, index))

    def _hashes(self, tile: Tile) -> list[bytes]:
        data = self.read(tile)
        if len(data) != tile.width * HASH_BYTES:
            raise IntegrityError(f"{tile.path} of the witness log has {len(data)} bytes")
        return [data[start : start + HASH_BYTES] for start in range(0, len(data), HASH_BYTES)]

    @property
    def root(self) -> bytes:
        return root_hash(self.size, self.hash_at)

    def append(self, entry: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield path and bytes of each tile that one more entry makes."""
        level, index, added = 0, self.size, leaf_hash(entry)
        while True:
            count = index % TILE_WIDTH
            tile = Tile(level, index // TILE_WIDTH, count)
            hashes = [*(self._hashes(tile) if count else []), added]
            yield Tile(level, tile.index, count + 1).path, b"".join(hashes)
            if len(hashes) < TILE_WIDTH:
                return
            added = _complete(hashes, 0, TILE_HEIGHT, 0)
            level, index = level + 1, tile.index


def _complete(hashes: Sequence[bytes], start: int, level: int, index: int) -> bytes:
    """The hash over 2**level of these hashes, from the `index`-th such group after `start` on."""
    begin = start + (index << level)
    row = list(hashes[begin : begin + (1 << level)])
    while len(row) > 1:
        row = [node_hash(row[at], row[at + 1]) for at in range(0, len(row), 2)]
    return row[0]


def encode_entries(entries: Sequence[bytes]) -> bytes:
    """A bundle of entries, each after its length in two bytes."""
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def decode_entries(data: bytes) -> list[bytes]:
    """Read a bundle. IntegrityError if it is cut off."""
    entries, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if at + 2 > len(data) or end > len(data):
            raise IntegrityError("a bundle of the witness log's entries is cut off")
        entries.append(data[at + 2 : end])
        at = end
    return entries
