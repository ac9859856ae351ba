"""A small, safe language for questions about candidates: `format = onnx-int8 and size <= 30MB and recall.PHONE >= 0.95`.

A candidate is one artifact of one version of one model; `fields` lists its fields. The parser is a
recursive descent over tokens, and each of its functions has its production as docstring. It makes a tree that is plain
data and whose types fit; nothing in it can fail or run away when it is evaluated. `docs/query.md` is the specification.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from onnxreg.schema.core.errors import InputError, nearest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import MAX_SIZE_BYTES, SIZE_UNITS
from onnxreg.schema.log.summary import RECALL
from onnxreg.schema.query.expression.fields import FIELDS, LABELLED, FieldKind, FieldValues
from onnxreg.schema.query.expression.tree import (
    And,
    Field,
    FieldComparison,
    FieldMember,
    Flag,
    Glob,
    Literal,
    Node,
    Not,
    OneOf,
    Or,
)

MAX_DEPTH = 64
"""The deepest nesting of brackets and `not`."""
ORDERED = ("<", "<=", ">", ">=")
MAX_CHARACTERS = 4096
"""Characters of an expression, at most."""
MAX_COLUMNS = 76
"""Characters of an expression that an error draws, at most."""
KEYWORDS = ("and", "or", "not", "in")
MAX_DIGITS = 15
"""Digits of a number, at most: so every number is exact in any language's floating point."""
MAX_SHOWN_CHARACTERS = 40
"""Characters of a word that a message repeats."""

_IN_QUOTES = "put a text that begins with a digit in quotes"
_JOINED = {"and": "write it in lower case", "or": "write it in lower case"}
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
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Expression:
    """A parsed expression. `str` gives it in its canonical form, which parses to an equal expression."""

    tree: Node
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return str(self.tree)

    def matches(self, candidate: FieldValues) -> bool:
        """True if the candidate meets the expression; see `fields` for candidates."""
        return self.tree.matches(candidate)

    def fields(self) -> frozenset[str]:
        """The names of the fields that decide; recall of any label is `recall`, any metric `metric`."""
        return self.tree.fields()


def parse(text: str, fields: Mapping[str, FieldKind] = FIELDS) -> Expression:
    """Read an expression over these fields. ExpressionError, an InputError that marks the position, if it is malformed."""
    return Expression(_Parser(text, fields).expression(), text)


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


class _Parser:
    """Reads tokens from left to right, one ahead."""

    def __init__(self, text: str, fields: Mapping[str, FieldKind]) -> None:
        self._text = text
        self._fields = fields
        self._tokens = list(tokenize(text))
        self._place = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def expression(self) -> Node:
        """expression = alternatives END"""
        node = self._alternatives()
        if self._next.kind != "end":
            raise self._expected("and, or, or the end", _JOINED.get(self._next.text.lower(), ""))
        return node

    def _alternatives(self) -> Node:
        """alternatives = conditions {"or" conditions}"""
        operands = [self._conditions()]
        while self._accept("or"):
            operands.append(self._conditions())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _conditions(self) -> Node:
        """conditions = condition {"and" condition}"""
        operands = [self._condition()]
        while self._accept("and"):
            operands.append(self._condition())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _condition(self) -> Node:
        """condition = "not" condition | "(" alternatives ")" | test"""
        if self._next.text == "not":
            return self._deeper(lambda: Not(self._condition()))
        if self._next.text == "(":
            node = self._deeper(self._alternatives)
            self._require(")", "and, or, or )")
            return node
        return self._test()

    def _deeper(self, read: Callable[[], Node]) -> Node:
        """Read the part after the next token, one level down."""
        if self._depth == MAX_DEPTH:
            raise self._wrong(self._next, f"it is nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        self._place += 1
        node = read()
        self._depth -= 1
        return node

    def _test(self) -> Node:
        """test = value ["not"] "in" LIST-FIELD | field [relation]"""
        if self._is_membership():
            return self._membership()
        start = self._next
        field = self._field()
        if self._next.kind == "operator":
            return self._relation(start, field)
        if self._next.text in ("not", "in"):
            return self._among(start, field)
        if self._fields[field.name] is not FieldKind.FLAG:
            raise self._expected(f"a comparison: {field} is by itself neither true nor false")
        return Flag(field)

    def _is_membership(self) -> bool:
        """True if a value and `in` follow, without the bracket of a list of values."""
        after = [token.text for token in self._tokens[self._place + 1 : self._place + 4]]
        following = after[1:] if after[:1] == ["not"] else after
        literal = self._next.kind in ("word", "string", "number")
        return literal and following[:1] == ["in"] and following[1:2] != ["("]

    def _membership(self) -> Node:
        """membership = TEXT ["not"] "in" LIST-FIELD"""
        value = self._literal(FieldKind.TEXT, "the text that the list may have")
        negated = self._accept("not")
        self._require("in", "in")
        start = self._next
        field = self._field()
        if self._fields[field.name] is not FieldKind.LIST:
            lists = " or ".join(name for name, kind in self._fields.items() if kind is FieldKind.LIST)
            raise self._wrong(start, f"expected {lists}, or values in brackets: (onnx-int8, ort-android)")
        return FieldMember(value, field, negated)

    def _relation(self, start: Token, field: Field) -> Node:
        """relation = ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value | "~" TEXT"""
        sign = self._advance()
        kind = self._comparable(start, field)
        if sign.text == "~":
            if kind not in (FieldKind.TEXT, FieldKind.VERSION):
                raise self._wrong(sign, f"{field} is {kind.value}, which has no patterns")
            return Glob(field, self._literal(FieldKind.TEXT, "a pattern, such as 'acme/*'"))
        if kind is FieldKind.TEXT and sign.text in ORDERED:
            raise self._wrong(sign, f"{field} is a text, which has no order", "use =, !=, in or ~")
        return FieldComparison(field, sign.text.replace("==", "="), self._literal(kind, kind.value))

    def _among(self, start: Token, field: Field) -> Node:
        """among = ["not"] "in" "(" value {"," value} ")" """
        kind = self._comparable(start, field)
        negated = self._accept("not")
        self._require("in", "in")
        self._require("(", "(")
        values = [self._literal(kind, kind.value)]
        while self._accept(","):
            values.append(self._literal(kind, kind.value))
        self._require(")", ", or )")
        return OneOf(field, tuple(values), negated)

    def _comparable(self, start: Token, field: Field) -> FieldKind:
        """The kind of a field that can be compared with values."""
        kind = self._fields[field.name]
        if kind is FieldKind.FLAG:
            hint = f"write {field}, or not {field}"
            raise self._wrong(start, f"{field} is true or false by itself and is not compared", hint)
        if kind is FieldKind.LIST:
            raise self._wrong(start, f"{field} is a list and is not compared", f"write 'VALUE' in {field}")
        return kind

    def _field(self) -> Field:
        """field = NAME | ("recall" | "metric") ("." LABEL | "[" TEXT "]")

        `metric['character_recall/PHONE']` is `recall.PHONE`.
        """
        token = self._next
        if token.kind != "word":
            raise self._expected("a field, such as size, on the left")
        self._place += 1
        name, _, label = token.text.partition(".")
        if name in LABELLED and name in self._fields:
            label = label or self._label(token, name)
            of_recall = name == "metric" and label.startswith(RECALL)
            return Field("recall", label.removeprefix(RECALL)) if of_recall else Field(name, label)
        if token.text not in self._fields:
            hint = _nearest(token.text, self._fields)
            raise self._wrong(token, f"there is no field {short(token.text)}", hint)
        return Field(token.text)

    def _label(self, field: Token, name: str) -> str:
        if self._next.text != "[":
            missing, hint = LABELLED[name]
            raise self._wrong(field, f"expected {missing}", hint)
        self._place += 1
        label = self._next
        if label.kind != "string":
            raise self._expected("a label in quotes")
        self._place += 1
        self._require("]", "]")
        return written(label)

    def _literal(self, kind: FieldKind, expected: str) -> Literal:
        """value = TEXT | VERSION | SIZE | NUMBER, whichever the field is"""
        token = self._next
        if token.kind not in TOKEN_KINDS[kind]:
            raise self._expected(expected, _IN_QUOTES if token.kind == "number" else "")
        self._place += 1
        try:
            return read_literal(token, kind)
        except InputError as error:
            raise self._wrong(token, f"expected {expected}: {error.message}", error.hint) from None

    def _advance(self) -> Token:
        self._place += 1
        return self._tokens[self._place - 1]

    def _accept(self, text: str) -> bool:
        is_match = self._next.kind in ("keyword", "mark") and self._next.text == text
        self._place += is_match
        return is_match

    def _require(self, text: str, expected: str) -> None:
        if not self._accept(text):
            raise self._expected(expected)

    def _expected(self, expectation: str, hint: str = "") -> ExpressionError:
        actual = f"found {short(self._next.text)}" if self._next.text else "it ends here"
        return self._wrong(self._next, f"expected {expectation}; {actual}", hint)

    def _wrong(self, token: Token, problem: str, hint: str = "") -> ExpressionError:
        return ExpressionError(self._text, (token.start, token.end), problem, hint)


def _nearest(name: str, fields: Iterable[str]) -> str:
    """The fields that were perhaps meant; else all of them. The name of a model is the value of a field."""
    if "/" in name:
        return f"write name = {name}"
    parts = {part.replace("-", "_"): None for part in name.lower().split(".") if len(part) > 2}
    suggestions = [field for part in parts for field in nearest(part, fields)]
    suggestions += [field for part in parts for field in fields if part in field]
    return (
        f"did you mean {' or '.join(dict.fromkeys(suggestions))}?"
        if suggestions
        else f"the fields are {', '.join(fields)}"
    )


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


def draw(text: str, start: int, end: int) -> tuple[str, str]:
    """Two lines: the expression, or the part of it around the span, and `~~~^` under the span."""
    first = max(0, min(start - MAX_COLUMNS // 2, len(text) - MAX_COLUMNS))
    excerpt = text[first : first + MAX_COLUMNS]
    line = "".join(char if char.isprintable() else " " for char in excerpt)
    under = max(1, min(end, first + MAX_COLUMNS) - start)
    return line, " " * (start - first) + "~" * (under - 1) + "^"


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
