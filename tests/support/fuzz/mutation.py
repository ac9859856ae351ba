"""Documents made wrong on purpose: byte by byte, line by line, value by value, and as forged but well-chained logs.

All of it is deterministic in the `Random` that is handed in. It knows JSON lines and the keys of a log line, and nothing
of the code under test: what it writes need not be readable by anybody.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutation = Callable[[bytes, Sequence[bytes], Random], bytes]
"""A document, others of its kind to take parts from, and the dice."""

ZEROS = "0" * 64
DEEPEST = 200
NAN, INFINITY = float("nan"), float("inf")
WORDS = r"""
x acme/pii Acme . 1 1.0.0 v1 1.0 stable con a/b/c ../../x /etc/passwd C:\x sha256: 2026-13-41T25:61:61Z é
"""
DIGESTS = (
    *(f"sha256:{ZEROS}", f"sha256:{'A' * 64}", f"sha256:{ZEROS[1:]}", f"sha256:{ZEROS}0"),
    *(f"sha256:{ZEROS}\n", f"sha512:{ZEROS * 2}", f"md5:{ZEROS[:32]}", ZEROS, ZEROS[:32]),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 64, 2**53 - 1, 2**53, -(2**53), 2**64, 10**30),
    *(0.5, 1.0, -0.0, 5e-324, 1e21, 1e308, NAN, INFINITY),
    *("", " ", "\ud800", "\U0001f600", "\x1b[31m\x00", "\u202e", "e\u0301"),
    *("x" * 300, "x" * 70_000, "9" * 130),
    *(*WORDS.split(), *DIGESTS),
    *([], {}, [[]], {"": None}, {"a": {"b": [1]}}, [0] * 1000, {str(key): key for key in range(300)}),
)
DEEP = (
    *("[" * depth + "]" * depth for depth in (63, 64, 65, 200, 480, 900, 960, 985, 992, 1000, 100_000)),
    *('{"a":' * depth + "0" + "}" * depth for depth in (64, 65, 300, 490, 950, 990, 20_000)),
)
ODD = r"""
1e400 -1e400 1E2 1.50 01 0x1 +1 1_000 -0 NaN -Infinity nul 'x' "\ud800" "\udc00\ud800" "\ud83d\ude00" "\u0000"
1,"seq":2 1,"name":"x" 1,"a":1,"a":2 1, 1"" 1// [1,] 1}{
"""
RAW = (*DEEP, "9" * 4299, "9" * 4301, "-" + "9" * 40, '"\t"', *ODD.split())
"""What `json.dumps` does not write: depth, long numbers, words that are not JSON, members that repeat a key."""

PIECES = (*'\n\r\0\ufeff\x1b\ud800\u2028{}"\\', "\r\n", *RAW[:4], *RAW[len(DEEP) :])
TOKENS = (
    *(piece.encode("utf-8", "surrogatepass") for piece in PIECES),
    *(b"\xff", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\xff\xfe", b"\n" * 70, b" " * 5000),
)
_MARK = "\ue000%d\ue000"


def mutate(data: bytes, others: Sequence[bytes], dice: Random, honest: bool = False) -> bytes:
    """One or several mutations of a document; the same bytes only by chance. `honest`: without forged logs."""
    known = BLIND if honest else MUTATIONS
    for _ in range(dice.choice((1, 1, 1, 1, 2, 3, 6))):
        data = dice.choice(known)(data, others, dice)
    return data


def _span(data: bytes, dice: Random, longest: int = 64) -> tuple[int, int]:
    start = dice.randrange(len(data) + 1)
    return start, min(len(data), start + dice.randrange(longest + 1))


def flip(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """One bit."""
    if not data:
        return data
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]


def poke(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """One byte, often a digit for a digit: the text stays well-formed."""
    if not data:
        return data
    at = dice.randrange(len(data))
    return data[:at] + bytes([dice.choice(b'0123456789abcdef"{}[]:, \n\\\x00\xff')]) + data[at + 1 :]


def cut(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """The end or a piece is missing."""
    start, stop = _span(data, dice)
    return data[:start] if dice.randrange(2) else data[:start] + data[stop:]


def repeat(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """A piece stands there twice or many times."""
    start, stop = _span(data, dice)
    return data[:start] + data[start:stop] * dice.choice((2, 3, 70)) + data[stop:]


def insert(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Something that does not belong there."""
    start, stop = _span(data, dice, 3)
    return data[:start] + dice.choice(TOKENS) + data[stop:]


def splice(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """The head of one document and the tail of another, or a piece of it in between."""
    other = dice.choice(others)
    start, stop = _span(data, dice)
    from_, to = _span(other, dice, 500)
    return data[:start] + other[from_:to] + data[stop:] if dice.randrange(2) else data[:start] + other[from_:]


def shuffle_lines(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Lines exchanged, repeated, taken away, taken from another document, or with other ends."""
    lines = data.split(b"\n")
    one, two = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(6):
        case 0:
            lines[one], lines[two] = lines[two], lines[one]
        case 1:
            lines.insert(one, lines[two])
        case 2:
            del lines[one]
        case 3:
            lines[one] = dice.choice(dice.choice(others).split(b"\n"))
        case 4:
            lines[one:two] = lines[one:two] * 70
        case _:
            return data.replace(b"\n", dice.choice((b"\r\n", b"\n\n", b"", b"\n \n")), dice.choice((1, -1)))
    return b"\n".join(lines)


def edit(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """One value of one line is another; the text around it stays canonical."""
    lines = data.split(b"\n")
    at = 0 if dice.randrange(2) else dice.randrange(len(lines))
    value, raw = _edited(_parse(lines[at]), dice)
    lines[at] = dump(value, raw)
    return b"\n".join(lines)


def forge(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Other events, or in another order, in a chain without a break up to the head that the state names.

    What follows from the events (versions, channels, ...) stays as it was, so that the state may lie.
    """
    first, *rest = data.split(b"\n")
    state, lines = _parse(first), [_parse(line) for line in rest if line]
    if not isinstance(state, dict) or not all(isinstance(line, dict) for line in lines) or not lines:
        return edit(data, others, dice)
    seq, prev = lines[0].get("seq"), lines[0].get("prev")
    raw: list[str] = []
    one, two = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(5):
        case 0:
            dice.shuffle(lines)
        case 1:
            lines.insert(one, dict(lines[two]))
        case 2 if len(lines) > 1:
            del lines[one]
        case 3:
            _exchange(lines[one].get("event"), lines[two].get("event"), dice)
        case _:
            lines[one]["event"], raw = _edited(lines[one].get("event"), dice)
    return b"\n".join([*chain(state, lines, seq, prev, raw), b""])


def rechained(data: bytes) -> bytes:
    """An index file whose lines follow each other again, after a change that broke their chain."""
    state, *lines = (_parse(line) for line in data.split(b"\n") if line)
    return b"\n".join([*chain(state, lines, lines[0]["seq"], lines[0]["prev"]), b""])


def chain(
    state: dict[str, Any], lines: list[dict[str, Any]], seq: Any, prev: Any, raw: Sequence[str] = ()
) -> list[bytes]:
    """The state and the lines as bytes, with `seq`, `prev` and `head` as a log has them that begins like this."""
    written = []
    for line in lines:
        written.append(dump({**line, "seq": seq, "prev": prev}, raw))
        prev = f"sha256:{hashlib.sha256(written[-1]).hexdigest()}"
        seq = seq + 1 if isinstance(seq, int) else seq
    return [dump({**state, "seq": seq - 1 if isinstance(seq, int) else seq, "head": prev}), *written]


def dump(value: Any, raw: Sequence[str] = ()) -> bytes:
    """Canonical bytes, as far as JSON's own encoder goes; the marks in it become the raw pieces."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    for number, piece in enumerate(raw):
        text = text.replace(f'"{_MARK % number}"', piece)
    return text.encode("utf-8", "surrogatepass")


def _parse(line: bytes) -> Any:
    """The JSON value of a line; some of its text where it is none, or deeper than can be followed from everywhere."""
    try:
        return (
            json.loads(line)
            if line.count(b"[") + line.count(b"{") < DEEPEST
            else line.decode("latin-1")[:10_000]
        )
    except ValueError:
        return line.decode("latin-1")[:10_000]


def _edited(value: Any, dice: Random) -> tuple[Any, list[str]]:
    """The value with one place changed, and the raw pieces that its marks stand for."""
    if not isinstance(value, dict | list) or not value:
        return dice.choice(VALUES), []
    holder, key = _place(value, dice)
    choice = dice.randrange(8)
    if choice < 3:
        holder[key] = dice.choice(VALUES)
    elif choice == 3:
        holder[key] = _MARK % 0
        return value, [dice.choice(RAW)]
    elif choice == 4:
        del holder[key]
    elif choice == 5:
        other, where = _place(value, dice)
        holder[key] = json.loads(json.dumps(other[where]))
    elif choice == 6 and isinstance(holder, dict):
        holder[_key(holder, dice)] = dice.choice(VALUES)
    elif isinstance(holder[key], list):
        dice.shuffle(holder[key])
        holder[key] += holder[key][: dice.randrange(3)]
    elif isinstance(holder[key], int):
        holder[key] += dice.choice((-1, 1, 64, 10**6))
    else:
        holder[key] = [holder[key]]
    return value, []


def _key(holder: dict[str, Any], dice: Random) -> str:
    return dice.choice(
        ("x", "", "sig", "via", "reason", "actor", "1.2.3", "kind", "\ud800", "checkpoint", *holder)
    )


def _place(value: Any, dice: Random) -> tuple[Any, Any]:
    """A container inside the value and one of its keys."""
    while True:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        below = value[key]
        if not isinstance(below, dict | list) or not below or not dice.randrange(4):
            return value, key
        value = below


def _exchange(one: Any, other: Any, dice: Random) -> None:
    """A field of one event becomes that of another."""
    if isinstance(one, dict) and isinstance(other, dict):
        key = dice.choice([*other, "tag"])
        one[key] = other.get(key, "stable")


BLIND: tuple[Mutation, ...] = (flip, poke, cut, repeat, insert, splice, shuffle_lines, edit, edit, edit)
MUTATIONS = (*BLIND, forge, forge)
