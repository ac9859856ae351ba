"""The sorted Merkle map of a registry: each model's name, the number of its last line, and that line's digest.

Entries are sorted by key, the SHA-256 of the name, whose bits are the way from the root to the entry:

    hash(no entry)        = 32 zero bytes
    hash(one entry)       = SHA-256(0x00, "<name> <seq> <64 hex digits>")
    hash(several entries) = SHA-256(0x01, hash(those whose next bit is 0), hash(those whose next bit is 1))

So the root depends on the entries alone, an entry has one place, and an empty place or another entry there proves
that a name is absent. The map is kept in pages. A page has a subtree whose depth is a multiple of 8, as lines in
ascending order of keys: an entry, or `<2 hex digits> <64 hex digits>`, the next byte of the key and the hash of a
subtree of several entries that has a page of its own. The name of a page is its hash.
(A sparse Merkle tree: Dahlberg, Pulls and Peeters, "Efficient Sparse Merkle Trees", 2016.)
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from operator import attrgetter

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG, is_name
from onnxreg.schema.witness.merkle_tree import HASH_BYTES, leaf_hash, node_hash

EMPTY_MAP = bytes(HASH_BYTES)
MAX_PAGE_ITEMS = 256
"""A page with more items gives entries that share their next byte a page of their own."""
PAGE_BITS = 8
KEY_BITS = 256
_ENTRY = re.compile(r"([^ ]{1,200}) ([1-9][0-9]{0,15}) ([0-9a-f]{64})")
_BRANCH = re.compile(r"([0-9a-f]{2}) ([0-9a-f]{64})")
_KEY = attrgetter("key")

ReadPage = Callable[[bytes], bytes]
"""The bytes of the page with a hash."""


@dataclass(frozen=True, slots=True)
class MapEntry:
    """The end of a model's log: the number of its last line and that line's digest."""

    name: str
    seq: int
    head: Digest
    key: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", key_of(self.name))

    @property
    def line(self) -> str:
        return f"{self.name} {self.seq} {self.head.hex}"

    @property
    def hash(self) -> bytes:
        return leaf_hash(self.line.encode())


@dataclass(frozen=True, slots=True)
class Branch:
    """A subtree of several entries with a page of its own; `key` is the least key that it can have."""

    key: int
    hash: bytes


Item = MapEntry | Branch


def key_of(name: str) -> int:
    """The key of a name, of 256 bits."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")


def page_hash(items: Sequence[Item], depth: int) -> bytes:
    """The hash of the subtree at a depth. IntegrityError if two items have one place."""
    return _hash(items, 0, len(items), depth, depth + PAGE_BITS)


def _hash(items: Sequence[Item], begin: int, end: int, depth: int, branch_depth: int) -> bytes:
    if begin == end:
        return EMPTY_MAP
    item = items[begin]
    if end - begin == 1 and (isinstance(item, MapEntry) or depth == branch_depth):
        return item.hash
    if depth == KEY_BITS or (depth == branch_depth and isinstance(item, Branch)):
        raise IntegrityError("two items of the map have one place")
    below = KEY_BITS - depth - 1
    middle = bisect_left(items, (item.key >> below | 1) << below, begin, end, key=_KEY)
    left = _hash(items, begin, middle, depth + 1, branch_depth)
    return node_hash(left, _hash(items, middle, end, depth + 1, branch_depth))


@dataclass
class MerkleMap:
    """A map by its root. Pages are read when they are needed; those that a change makes are in `pages`."""

    root: bytes
    read: ReadPage
    pages: dict[bytes, bytes] = field(default_factory=dict)

    def get(self, name: str) -> MapEntry | None:
        """Look a name up: one page for each 8 bits of its way. None proves that it is absent.

        IntegrityError if a page has not its hash.
        """
        key, page, depth = key_of(name), self.root, 0
        while page != EMPTY_MAP:
            items = [
                item for item in self._page(page, key, depth) if _byte(item.key, depth) == _byte(key, depth)
            ]
            if not items or isinstance(items[0], MapEntry):
                return next(
                    (item for item in items if isinstance(item, MapEntry) and item.name == name), None
                )
            page, depth = items[0].hash, depth + PAGE_BITS
        return None

    def __iter__(self) -> Iterator[MapEntry]:
        """Yield every entry, in ascending order of keys."""
        return self._entries(self.root, 0, 0)

    def _entries(self, page: bytes, key: int, depth: int) -> Iterator[MapEntry]:
        for item in self._page(page, key, depth):
            if isinstance(item, MapEntry):
                yield item
            else:
                yield from self._entries(item.hash, item.key, depth + PAGE_BITS)

    def update(self, changes: Mapping[str, MapEntry | None]) -> None:
        """Set these entries; None removes one. Only the pages on their ways are read and made."""
        keyed = sorted((key_of(name), entry) for name, entry in changes.items())
        items = self._page_items(self._changed(self.root, keyed, 0), 0) if keyed else []
        if keyed:
            self.root = self._add_page(items, 0)

    def _changed(self, page: bytes, changes: Sequence[tuple[int, MapEntry | None]], depth: int) -> list[Item]:
        """The items of a page after some changes."""
        old = self._page(page, changes[0][0], depth)
        grouped = groupby(old, lambda item: _byte(item.key, depth))
        slots: dict[int, Sequence[Item]] = {step: list(group) for step, group in grouped}
        for step, group in groupby(changes, lambda change: _byte(change[0], depth)):
            slots[step] = self._changed_slot(slots.get(step, []), list(group), depth)
        return [item for step in sorted(slots) for item in slots[step]]

    def _changed_slot(
        self, items: Sequence[Item], changes: Sequence[tuple[int, MapEntry | None]], depth: int
    ) -> Sequence[Item]:
        """The items with one next byte of the key, after some changes."""
        if items and isinstance(items[0], Branch):
            return self._subtree(self._changed(items[0].hash, changes, depth + PAGE_BITS), depth + PAGE_BITS)
        entries: dict[int, Item | None] = {item.key: item for item in items}
        return [entry for _, entry in sorted((entries | dict(changes)).items()) if entry is not None]

    def _page_items(self, items: Sequence[Item], depth: int) -> Sequence[Item]:
        """Items that fit a page."""
        if len(items) <= MAX_PAGE_ITEMS:
            return items
        groups = [list(group) for _, group in groupby(items, lambda item: _byte(item.key, depth))]
        return [
            item
            for group in groups
            for item in (group if isinstance(group[0], Branch) else self._subtree(group, depth + PAGE_BITS))
        ]

    def _subtree(self, items: Sequence[Item], depth: int) -> Sequence[Item]:
        """The items of a subtree for the page above: several as one branch, whose page is kept."""
        if not items or (len(items) == 1 and isinstance(items[0], MapEntry)):
            return items
        below = KEY_BITS - depth
        return [Branch(items[0].key >> below << below, self._add_page(self._page_items(items, depth), depth))]

    def _add_page(self, items: Sequence[Item], depth: int) -> bytes:
        """Keep a page with these items; return its hash."""
        digest = page_hash(items, depth)
        if items:
            self.pages[digest] = encode_page(items, depth)
        return digest

    def _page(self, page: bytes, key: int, depth: int) -> list[Item]:
        if page == EMPTY_MAP:
            return []
        data = self.pages.get(page) or self.read(page)
        items = decode_page(data, key, depth)
        if page_hash(items, depth) != page:
            raise IntegrityError(
                f"page {page.hex()[:12]}... of the witness map has other content than its name says"
            )
        return items


def _byte(key: int, depth: int) -> int:
    """The next byte of a key."""
    return key >> KEY_BITS - depth - PAGE_BITS & 255


def encode_page(items: Iterable[Item], depth: int) -> bytes:
    """The lines of a page."""
    lines = (
        item.line if isinstance(item, MapEntry) else f"{_byte(item.key, depth):02x} {item.hash.hex()}"
        for item in items
    )
    return "".join(f"{line}\n" for line in lines).encode()


def decode_page(data: bytes, key: int, depth: int) -> list[Item]:
    """Read the page at a depth on the way to a key. IntegrityError if it is malformed."""
    below = KEY_BITS - depth
    prefix = key >> below << below
    items = [_read_item(line, prefix, depth) for line in data.decode(errors="replace").splitlines()]
    if any(item.key >> below << below != prefix for item in items):
        raise IntegrityError("a page of the witness map has an entry that belongs elsewhere")
    if any(first.key >= second.key for first, second in pairwise(items)):
        raise IntegrityError("a page of the witness map is not sorted")
    return items


def _read_item(line: str, prefix: int, depth: int) -> Item:
    entry, branch = _ENTRY.fullmatch(line), _BRANCH.fullmatch(line)
    if entry is not None and (is_name(entry[1]) or entry[1] == POLICY_LOG):
        return MapEntry(entry[1], int(entry[2]), Digest(entry[3]))
    if branch is None:
        raise IntegrityError("a page of the witness map is malformed")
    return Branch(prefix | int(branch[1], 16) << KEY_BITS - depth - PAGE_BITS, bytes.fromhex(branch[2]))
