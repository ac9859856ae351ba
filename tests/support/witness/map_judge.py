"""The witness map by another program: it shares no code with the registry, and knows only docs/format.md.

`root_of` computes the root from heads, `look_up` finds a name through the pages.
"""

import hashlib
from pathlib import Path

EMPTY = bytes(32)


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def bits(name: str) -> str:
    return "".join(f"{byte:08b}" for byte in sha(name.encode()))


def tree(items: list[tuple[str, bytes, bool]], depth: int, page_end: int) -> bytes:
    """`items`: bits of the way, hash, and whether it is a page of several entries."""
    if not items:
        return EMPTY
    if len(items) == 1 and (not items[0][2] or depth == page_end):
        return items[0][1]
    halves = [[item for item in items if item[0][depth] == bit] for bit in "01"]
    return sha(b"\1", *(tree(half, depth + 1, page_end) for half in halves))


def root_of(entries: dict[str, tuple[int, str]]) -> bytes:
    leaves = [
        (bits(name), sha(b"\0", f"{name} {seq} {head}".encode()), False)
        for name, (seq, head) in entries.items()
    ]
    return tree(leaves, 0, 256)


def look_up(folder: Path, root: bytes, name: str) -> tuple[int, str] | None:
    """Follow the pages to a name, and check the hash of each."""
    way, page, depth = bits(name), root, 0
    while page != EMPTY:
        answer, below, items = None, EMPTY, []
        for line in (folder / page.hex()[:2] / page.hex()).read_text().splitlines():
            first, *rest = line.split(" ")
            if len(rest) == 2:
                items.append((bits(first), sha(b"\0", line.encode()), False))
                answer = (int(rest[0]), rest[1]) if first == name else answer
            else:
                items.append((way[:depth] + f"{int(first, 16):08b}", bytes.fromhex(rest[0]), True))
                below = bytes.fromhex(rest[0]) if items[-1][0] == way[: depth + 8] else below
        assert tree(items, depth, depth + 8) == page
        if answer or below == EMPTY:
            return answer
        page, depth = below, depth + 8
    return None
