"""The values that an expression compares with, read from its words."""

from collections.abc import Callable

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.sizes import MAX_SIZE_BYTES, UNITS
from onnxreg.schema.core.version import Version
from onnxreg.schema.query.expression.fields import FieldKind
from onnxreg.schema.query.expression.tokens import Token
from onnxreg.schema.query.expression.tree import Literal

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
    if unit and unit not in UNITS:
        hint = next((f"write {name}" for name in UNITS if name.lower() == unit.lower()), "")
        raise InputError(f"{short(unit)} is no unit", hint or f"units are {', '.join(UNITS)}")
    _number(Token("number", number, token.start, token.end))
    digits, _, part = number.partition(".")
    count, remainder = divmod(int(digits + part) * UNITS.get(unit, 1), 10 ** len(part))
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
