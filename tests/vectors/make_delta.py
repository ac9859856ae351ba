"""Write `delta/*.json`: the vectors of docs/delta.md. Deltas are made by hand here, with nothing of the code under test.

    python tests/vectors/make_delta.py [--check]

With --check nothing is written; the exit status is 1 if a file differs. `apply.json` has deltas in base64 with their
old and new files; without `new` they are malformed, or make other bytes than they state. `choose.json` has what a
client fetches.
"""

import base64
import hashlib
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "delta"
Json = dict[str, Any]


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def descriptor(data: bytes) -> Json:
    return {"digest": digest(data), "size": len(data)}


def deflate(data: bytes) -> bytes:
    """Stored and compressed blocks, as any deflater may mix them."""
    half = len(data) // 2
    first, second = zlib.compressobj(0, wbits=-15), zlib.compressobj(9, wbits=-15)
    start = first.compress(data[:half]) + first.flush(zlib.Z_SYNC_FLUSH)
    return start + second.compress(data[half:]) + second.flush()


def squeeze(data: bytes) -> bytes:
    """As few bytes as deflating gives."""
    deflater = zlib.compressobj(9, wbits=-15)
    return deflater.compress(data) + deflater.flush()


def span(
    op: int,
    length: int,
    payload: bytes = b"",
    *,
    source: int = 0,
    offset: int = 0,
    width: int = 0,
    mode: int = 0,
    size: int | None = None,
) -> bytes:
    stated = len(payload) if size is None else size
    return struct.pack("<BBBBIQI", op, width, mode, source, length, offset, stated) + payload


def copy(length: int, offset: int, source: int = 0) -> bytes:
    return span(0, length, source=source, offset=offset)


def literal(data: bytes) -> bytes:
    return span(1, len(data), deflate(data))


def difference(new: bytes, old: bytes, offset: int, width: int, mode: int, source: int = 0) -> bytes:
    """A difference, element by element, in plain Python."""
    limit = 1 << (8 * width)
    top = limit >> 1

    def elements(data: bytes) -> list[int]:
        values = [int.from_bytes(data[at : at + width], "little") for at in range(0, len(data), width)]
        return (
            [value ^ (limit - 1) if value & top else value | top for value in values] if mode & 1 else values
        )

    deltas = []
    for after, before in zip(elements(new), elements(old[offset : offset + len(new)]), strict=True):
        change = (after - before) % limit
        signed = change - limit if change & top else change
        deltas.append(2 * signed if signed >= 0 else -2 * signed - 1)
    head = b""
    if mode & 2:
        bits = "".join("1" if delta else "0" for delta in deltas)
        bits += "0" * (-len(bits) % 8)
        head = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
        deltas = [delta - 1 for delta in deltas if delta]
    planes = b"".join(bytes(delta >> 8 * plane & 255 for delta in deltas) for plane in range(width))
    return span(2, len(new), deflate(head + planes), source=source, offset=offset, width=width, mode=mode)


def delta(new: bytes, olds: list[bytes], *spans: bytes, **changes: Any) -> bytes:
    value = {
        "format": "onnxreg-delta",
        "format_version": 1,
        "new": descriptor(new),
        "old": [descriptor(old) for old in olds],
    } | changes
    header = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return b"ONXDELT1" + struct.pack("<I", len(header)) + header + b"".join(spans)


def numbers(seed: str, count: int) -> bytes:
    """Bytes that look random and are the same everywhere."""
    blocks = (hashlib.sha256(f"{seed} {index}".encode()).digest() for index in range(count // 32 + 1))
    return b"".join(blocks)[:count]


OLD = numbers("old", 520)
NEW = bytes(byte ^ (1 if index % 5 == 0 else 0) for index, byte in enumerate(OLD))
FLOATS = struct.pack("<8f", 0.0, -0.0, 1.5, -1.5, 3e38, -3e38, 1e-40, float("inf"))
NUDGED = struct.pack("<8f", -0.0, 0.0, 1.5000001, -1.4999999, -3e38, 3e38, -1e-40, float("nan"))


def good() -> list[Json]:
    cases = [
        ("the whole file is copied", [OLD], OLD, [copy(520, 0)]),
        (
            "copies of any order and overlap",
            [OLD],
            OLD[100:200] + OLD[50:150],
            [copy(100, 100), copy(100, 50)],
        ),
        ("one literal", [OLD], b"new text", [literal(b"new text")]),
        ("an empty file", [OLD], b"", []),
        (
            "two old files",
            [OLD, FLOATS],
            OLD[:10] + FLOATS[4:8] + b"!",
            [copy(10, 0), copy(4, 4, source=1), literal(b"!")],
        ),
        (
            "a difference of a part, between copies",
            [OLD],
            OLD[:8] + NEW[8:24] + OLD[24:40],
            [copy(8, 0), difference(NEW[8:24], OLD, 8, 4, 0), copy(16, 24)],
        ),
        (
            "the last element of a sparse row is not the last bit",
            [OLD],
            NEW[:11],
            [difference(NEW[:11], OLD, 0, 1, 2)],
        ),
    ]
    for width in (1, 2, 4, 8):
        for mode in range(4):
            name = f"width {width}, {'sparse' if mode & 2 else 'dense'} {'float' if mode & 1 else 'integer'}"
            cases.append((name, [OLD], NEW, [difference(NEW, OLD, 0, width, mode)]))
    for mode in range(4):
        cases.append((f"odd floats, mode {mode}", [FLOATS], NUDGED, [difference(NUDGED, FLOATS, 0, 4, mode)]))
    return [
        {"name": name, "old": olds, "delta": delta(new, olds, *spans), "new": new}
        for name, olds, new, spans in cases
    ]


def bad() -> list[Json]:
    long, bombed = squeeze(bytes(2**20 + 1)), squeeze(bytes(2**24))
    extra_bits = deflate(b"\x00\x0f" + b"\x01" * 4)
    whole = delta(OLD, [OLD], copy(520, 0))
    cases: dict[str, bytes] = {
        "an empty file is not a delta": b"",
        "another magic": b"ONXDELT2" + whole[8:],
        "a header that is too long": whole[:8] + struct.pack("<I", 65537) + bytes(65537),
        "a header of another version": delta(OLD, [OLD], copy(520, 0), format_version=2),
        "a header with another key": delta(OLD, [OLD], copy(520, 0), more=1),
        "no old file": delta(OLD, [], literal(OLD)),
        "cut in the header": whole[:40],
        "cut in a span": whole[:-5],
        "cut in a payload": delta(OLD, [OLD], literal(OLD))[:-9],
        "bytes after the last span": whole + b"\x00",
        "a span after the last": whole + copy(1, 0),
        "it ends before the new file does": delta(OLD, [OLD], copy(500, 0)),
        "it writes after the end of the new file": delta(OLD[:100], [OLD], copy(101, 0)),
        "an empty span": delta(OLD, [OLD], copy(0, 0), copy(520, 0)),
        "it reads after the end of an old file": delta(OLD, [OLD], copy(519, 0), copy(1, 520)),
        "an offset of 2^64 - 1": delta(OLD, [OLD], copy(519, 0), copy(1, 2**64 - 1)),
        "an old file that does not exist": delta(OLD, [OLD], copy(520, 0, source=1)),
        "an unknown operation": delta(OLD, [OLD], span(3, 520)),
        "a copy with a payload": delta(OLD, [OLD], span(0, 520, b"x")),
        "a copy with a width": delta(OLD, [OLD], span(0, 520, width=1)),
        "a literal with an offset": delta(OLD, [OLD], span(1, 520, deflate(OLD), offset=1)),
        "a width of 3": delta(NEW[:12], [OLD], span(2, 12, deflate(bytes(12)), width=3)),
        "a width of 0": delta(NEW[:12], [OLD], span(2, 12, deflate(bytes(12)))),
        "a mode of 4": delta(NEW[:12], [OLD], span(2, 12, deflate(bytes(12)), width=1, mode=4)),
        "a length that is no multiple of the width": delta(
            OLD[:6], [OLD], span(2, 6, deflate(bytes(6)), width=4)
        ),
        "a literal of more than a block": delta(bytes(2**20 + 1), [OLD], span(1, 2**20 + 1, long)),
        "a payload that is too short": delta(b"four", [OLD], span(1, 4, deflate(b"thr"))),
        "a payload that is too long": delta(b"four", [OLD], span(1, 4, deflate(b"fives"))),
        "a payload that is not deflated": delta(b"four", [OLD], span(1, 4, b"\xff\xff\xff\xff")),
        "a payload that is cut short": delta(b"four", [OLD], span(1, 4, deflate(b"four")[:-1])),
        "no payload": delta(b"four", [OLD], span(1, 4)),
        "a payload of 2^32 - 1 bytes": delta(b"four", [OLD], span(1, 4, deflate(b"four"), size=2**32 - 1)),
        "a literal that inflates without end": delta(b"four", [OLD], span(1, 4, bombed)),
        "a difference that inflates without end": delta(
            NEW[:16], [OLD], span(2, 16, bombed, width=1, mode=2)
        ),
        "fewer numbers than bits": delta(
            NEW[:16], [OLD], span(2, 16, deflate(b"\xff\xff\x01"), width=1, mode=2)
        ),
        "more numbers than bits": delta(
            NEW[:16], [OLD], span(2, 16, deflate(b"\x80\x00\x01\x02"), width=1, mode=2)
        ),
        "bits after the last element": delta(NEW[:12], [OLD], span(2, 12, extra_bits, width=1, mode=2)),
        "the bytes of another file": delta(OLD, [OLD], literal(NEW)),
    }
    return [{"name": name, "old": [OLD], "delta": data} for name, data in cases.items()]


def apply_vectors() -> Json:
    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    vectors = [
        {
            "name": case["name"],
            "old": [text(old) for old in case["old"]],
            "delta": text(case["delta"]),
            **({"new": text(case["new"])} if "new" in case else {}),
        }
        for case in [*good(), *bad()]
    ]
    return {"format": "onnxreg-delta-vectors", "format_version": 1, "vectors": vectors}


def sha(name: str) -> str:
    return digest(name.encode())


def offer(new: str, old: str | list[str], size: int) -> Json:
    """A delta named after its files, such as `b-from-a`."""
    olds = [old] if isinstance(old, str) else old
    name = f"{new}-from-{'+'.join(olds)}"
    entry = {"new": sha(new), "old": [sha(item) for item in olds], "delta": sha(name), "size": size}
    return entry | {"from": "1.0.0"}


AB, CB = offer("b", "a", 400), offer("c", "b", 300)
CHOICES: list[tuple[str, Json, Json]] = [
    ("nothing is offered", {"sizes": {"b": 1000}, "present": ["a"], "deltas": []}, {}),
    ("a delta from a file that is there", {"sizes": {"b": 1000}, "present": ["a"], "deltas": [AB]}, {"b": "b-from-a"}),
    ("the old file is not there", {"sizes": {"b": 1000}, "present": ["x"], "deltas": [AB]}, {}),
    ("never a chain", {"sizes": {"c": 1000}, "present": ["a"], "deltas": [AB, CB]}, {}),
    ("an old file of the same download is not there", {"sizes": {"b": 1000, "c": 1000}, "present": ["a"], "deltas": [AB, CB]}, {"b": "b-from-a"}),
    ("the smallest of several", {"sizes": {"c": 1000}, "present": ["a", "b"], "deltas": [offer("c", "a", 301), CB]}, {"c": "c-from-b"}),
    ("the smallest of which the old file is there", {"sizes": {"c": 1000}, "present": ["a"], "deltas": [CB, offer("c", "a", 301)]}, {"c": "c-from-a"}),
    ("of equal ones the least digest", {"sizes": {"c": 1000}, "present": ["a", "b"], "deltas": [CB, offer("c", "a", 300)]}, {"c": min("c-from-a", "c-from-b", key=sha)}),
    ("half of the file is too much", {"sizes": {"b": 800}, "present": ["a"], "deltas": [AB]}, {}),
    ("less than half of the file", {"sizes": {"b": 801}, "present": ["a"], "deltas": [AB]}, {"b": "b-from-a"}),
    ("a file from itself", {"sizes": {"x": 1000}, "present": [], "deltas": [offer("x", "x", 5)]}, {}),
    ("two old files, both there", {"sizes": {"x": 1000}, "present": ["a", "b"], "deltas": [offer("x", ["a", "b"], 5)]}, {"x": "x-from-a+b"}),
    ("two old files, one missing", {"sizes": {"x": 1000}, "present": ["a"], "deltas": [offer("x", ["a", "q"], 5)]}, {}),
    ("a file that nobody asked for", {"sizes": {"b": 1000}, "present": ["a", "b"], "deltas": [CB]}, {}),
]  # fmt: skip
"""Name, what a client knows, and the delta that it takes for a file; the other files are fetched whole."""


def choose_vectors() -> Json:
    vectors = []
    for name, inputs, expected in CHOICES:
        case = inputs | {
            "sizes": {sha(file): size for file, size in inputs["sizes"].items()},
            "present": [sha(file) for file in inputs["present"]],
        }
        chosen = {sha(file): sha(delta) for file, delta in expected.items()}
        vectors.append({"name": name, **case, "chosen": chosen})
    return {"format": "onnxreg-delta-choices", "format_version": 1, "vectors": vectors}


def main() -> int:
    differs = 0
    for name, value in (("apply", apply_vectors()), ("choose", choose_vectors())):
        path, data = FOLDER / f"{name}.json", json.dumps(value, indent=1) + "\n"
        if "--check" in sys.argv:
            differs |= not path.exists() or path.read_text() != data
        else:
            path.write_text(data)
    return differs


if __name__ == "__main__":
    sys.exit(main())
