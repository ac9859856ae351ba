"""The words of an expression, each with its place, and the error that draws it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from onnxreg.schema.core.errors import InputError

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
