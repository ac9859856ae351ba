"""The words of an expression with their positions, the values that they spell, and the error that shows a position."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import MAX_SIZE_BYTES, SIZE_UNITS
from onnxreg.schema.query.expression.fields import FieldKind
from onnxreg.schema.query.expression.tree import Literal

MAX_CHARACTERS = 4096
"""Characters of an expression, at most."""
MAX_COLUMNS = 76
"""Characters of an expression that an error draws, at most."""

KEYWORDS = ("and", "or", "not", "in")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<word>[A-Za-z_][A-Za-z0-9_./+-]*)
      | (?P<number>[0-9][A-Za-z0-9.+-]*)
      | (?P<string>'[^']*'|"[^"]*")
      | (?P<operator>==|!=|<=|>=|[=<>~])
      | (?P<mark>[()\[\],])""",
    re.VERBOSE,
)

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is word, number, string, operator, mark, keyword or end; `start` and `end` are positions in the expression."""

    kind: str
    text: str
    start: int
    end: int


class ExpressionError(InputError):
    """An expression that means nothing. `span` is the part at fault; `drawing` shows it.

    Args:
        text: the whole expression.
        problem: what was expected, or what is wrong.
    """

    def __init__(self, text: str, span: tuple[int, int], problem: str, hint: str = "") -> None:
        super().__init__(
            f"the expression cannot be read: {problem}", hint or "docs/query.md has the language"
        )
        self.span = span
        self.drawing = draw(text, *span)


def draw(text: str, start: int, end: int) -> tuple[str, str]:
    """Two lines: the expression, or the part of it around the span, and `~~~^` under the span."""
    first = max(0, min(start - MAX_COLUMNS // 2, len(text) - MAX_COLUMNS))
    excerpt = text[first : first + MAX_COLUMNS]
    line = "".join(char if char.isprintable() else " " for char in excerpt)
    under = max(1, min(end, first + MAX_COLUMNS) - start)
    return line, " " * (start - first) + "~" * (under - 1) + "^"


def tokenize(text: str) -> Iterator[Token]:
    """Yield the tokens, and one of kind `end` after them. ExpressionError at the first character that begins no token."""
    if len(text) > MAX_CHARACTERS:
        raise ExpressionError(
            text, (MAX_CHARACTERS, len(text)), f"it is longer than {MAX_CHARACTERS} characters"
        )
    stray = _SURROGATE.search(text)
    if stray is not None:
        raise ExpressionError(text, stray.span(), "a character is cut in two: this is not valid text")
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _bad_character(text, position)
        kind, position = str(match.lastgroup), match.end()
        if kind != "space":
            yield Token("keyword" if match[0] in KEYWORDS else kind, match[0], match.start(), position)
    yield Token("end", "", position, position)


def _bad_character(text: str, position: int) -> ExpressionError:
    char = text[position]
    if char in "'\"":
        return ExpressionError(text, (position, len(text)), f"the text that begins with {char} has no end")
    hint = {"*": "put a pattern in quotes: name ~ 'acme/*'", "!": "write not, or !="}.get(char, "")
    if char in "&|":
        hint = "write and, or"
    return ExpressionError(text, (position, position + 1), f"{char!r} is not part of the language", hint)


MAX_DIGITS = 15
"""Digits of a number, at most: so every number is exact in any language's floating point."""
MAX_SHOWN_CHARACTERS = 40
"""Characters of a word that a message repeats."""
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def read_literal(token: Token, kind: FieldKind) -> Literal:
    """Read a token as the value of a field of this kind; `TOKEN_KINDS` must allow the token for it."""
    return _READERS[kind](token)


def written(token: Token) -> str:
    """The text of a token, without quotes."""
    return token.text[1:-1] if token.kind == "string" else token.text


def _text(token: Token) -> Literal:
    """TEXT = WORD | "'" {any but "'"} "'" | '"' {any but '"'} '"'"""
    return Literal.of_text(written(token))


def _version(token: Token) -> Literal:
    """VERSION = as SemVer 2.0 has it; quotes do not matter"""
    version = Version.parse(written(token))
    return Literal(version, f"'{version}'")


def _number(token: Token) -> Literal:
    """NUMBER = DIGITS ["." DIGITS]"""
    digits, dot, part = token.text.partition(".")
    if not (_is_digits(digits) and (_is_digits(part) or not dot)):
        raise InputError(f"{short(token.text)} is no number")
    if len(digits + part) > MAX_DIGITS:
        raise InputError(f"{short(token.text)} has more than {MAX_DIGITS} digits")
    return Literal(float(token.text) if dot else int(digits), token.text)


def _share(token: Token) -> Literal:
    """SHARE = NUMBER, at most 1"""
    share = _number(token)
    if float(token.text) > 1:
        raise InputError(f"{short(token.text)} is more than 1")
    return share


def _size(token: Token) -> Literal:
    """SIZE = NUMBER ["B" | "kB" | "MB" | "GB" | "TB" | "KiB" | "MiB" | "GiB" | "TiB"], a whole number of bytes"""
    number = token.text.rstrip(_LETTERS)
    unit = token.text[len(number) :]
    if unit and unit not in SIZE_UNITS:
        hint = next((f"write {name}" for name in SIZE_UNITS if name.lower() == unit.lower()), "")
        raise InputError(f"{short(unit)} is no unit", hint or f"units are {', '.join(SIZE_UNITS)}")
    _number(Token("number", number, token.start, token.end))
    digits, _, part = number.partition(".")
    count, remainder = divmod(int(digits + part) * SIZE_UNITS.get(unit, 1), 10 ** len(part))
    if remainder:
        raise InputError(f"{short(token.text)} is no whole number of bytes")
    if count > MAX_SIZE_BYTES:
        raise InputError(f"{short(token.text)} is more than {MAX_SIZE_BYTES} bytes")
    return Literal(count, token.text)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


_READERS: dict[FieldKind, Callable[[Token], Literal]] = {
    FieldKind.TEXT: _text,
    FieldKind.VERSION: _version,
    FieldKind.SIZE: _size,
    FieldKind.COUNT: _number,
    FieldKind.NUMBER: _number,
    FieldKind.SHARE: _share,
}
TOKEN_KINDS = {
    FieldKind.TEXT: ("word", "string"),
    FieldKind.VERSION: ("number", "string"),
    **dict.fromkeys((FieldKind.SIZE, FieldKind.COUNT, FieldKind.NUMBER, FieldKind.SHARE), ("number",)),
}
"""The kinds of tokens as which a value may be written."""
