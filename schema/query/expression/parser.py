"""A small, safe language for questions about candidates: `format = onnx-int8 and size <= 30MB and recall.PHONE >= 0.95`.

A candidate is one artifact of one version of one model; `fields` lists its fields. The parser splits the text into
tokens and joins tests by the binding power of `and` and `or` (Pratt, "Top down operator precedence", 1973); the
docstring of each method is its production. It checks the types of all values, so no error is left for the evaluation.
`docs/query.md` is the specification.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from onnxreg.schema.core.errors import InputError, nearest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import MAX_SIZE_BYTES, SIZE_UNITS
from onnxreg.schema.log.summary import RECALL
from onnxreg.schema.query.expression.fields import FIELDS, LABELLED, FieldKind, FieldValues
from onnxreg.schema.query.expression.tree import Field, Junction, Literal, Node, Not, Test

MAX_CHARACTERS = 4096
"""Characters of an expression, at most."""
MAX_DEPTH = 64
"""The deepest nesting of brackets and `not`."""
MAX_DIGITS = 15
"""Digits of a number, at most: so every number is exact in any language's floating point."""
MAX_COLUMNS = 76
"""Characters of an expression that an error draws, at most."""
MAX_SHOWN_CHARACTERS = 40
"""Characters of a word that a message repeats."""
POWERS = {"or": 1, "and": 2, "not": 3}
"""The binding power of each word: a larger one binds closer."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<keyword>(?:and|or|not|in)(?![A-Za-z0-9_./+-]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_./+-]*)
      | (?P<number>[0-9][A-Za-z0-9.+-]*)
      | (?P<string>'[^']*'|"[^"]*")
      | (?P<operator>==|!=|<=|>=|[=<>~])
      | (?P<mark>[()\[\],])""",
    re.VERBOSE,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMERAL = re.compile(r"([0-9]+)(?:\.([0-9]+))?")
_HINTS = {
    "*": "put a pattern in quotes: name ~ 'acme/*'",
    "!": "write not, or !=",
    **dict.fromkeys("&|", "write and, or"),
}
"""Hints for characters of other languages."""


class Expression:
    """A parsed expression. `str` gives it in its canonical form, which parses to an equal expression."""

    def __init__(self, tree: Node) -> None:
        self.tree = tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    def __str__(self) -> str:
        return str(self.tree)

    def matches(self, candidate: FieldValues) -> bool:
        """True if the candidate meets the expression; see `fields` for candidates."""
        return self.tree.matches(candidate)

    def fields(self) -> frozenset[str]:
        """The names of the fields that decide; recall of any label is `recall`, any metric `metric`."""
        return self.tree.fields()


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


class Token(NamedTuple):
    """`kind` is a group of `_TOKEN`, or end; `start` and `end` are positions in the expression."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def content(self) -> str:
        """The text without quotes."""
        return self.text[1:-1] if self.kind == "string" else self.text


def parse(text: str, fields: Mapping[str, FieldKind] = FIELDS) -> Expression:
    """Read an expression over these fields. ExpressionError, an InputError that marks the position, if it is malformed."""
    return Expression(_Parser(text, fields).whole())


class _Parser:
    """Reads tokens from left to right, one ahead."""

    def __init__(self, text: str, fields: Mapping[str, FieldKind]) -> None:
        self._text = text
        self._fields = fields
        self._tokens = tokenize(text)
        self._index = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._index]

    def whole(self) -> Node:
        """whole = conditions END"""
        node = self._conditions()
        if self._next.kind != "end":
            hint = "write it in lower case" if self._next.text.lower() in POWERS else ""
            raise self._expected("and, or, or the end", hint)
        return node

    def _conditions(self, power: int = 0) -> Node:
        """conditions = condition {("and" | "or") condition}, as far as the words bind closer than `power`"""
        node = self._condition()
        while (word := self._next.text) in ("and", "or") and POWERS[word] > power:
            operands = [node]
            while self._accept(word):
                operands.append(self._conditions(POWERS[word]))
            node = Junction(word, tuple(operands))
        return node

    def _condition(self) -> Node:
        """condition = "not" condition | "(" conditions ")" | test"""
        opening = self._next
        if opening.text not in ("not", "("):
            return self._test()
        if self._depth == MAX_DEPTH:
            raise self._wrong(opening, f"it is nested deeper than {MAX_DEPTH} levels")
        self._depth += 1
        self._index += 1
        node = self._conditions(POWERS.get(opening.text, 0))
        self._depth -= 1
        if opening.text == "not":
            return Not(node)
        self._require(")", "and, or, or )")
        return node

    def _test(self) -> Node:
        """test = value ["not"] "in" LIST-FIELD | FLAG
        | field (("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value | "~" TEXT | ["not"] "in" "(" value {"," value} ")")
        """
        if self._is_membership():
            return self._membership()
        start = self._next
        subject = self._field()
        kind, sign = self._fields[subject.name], self._next
        if sign.kind != "operator" and sign.text not in ("not", "in"):
            if kind is not FieldKind.FLAG:
                raise self._expected(f"a comparison: {subject} is by itself neither true nor false")
            return Test(subject)
        if kind is FieldKind.FLAG:
            hint = f"write {subject}, or not {subject}"
            raise self._wrong(start, f"{subject} is true or false by itself and is not compared", hint)
        if kind is FieldKind.LIST:
            hint = f"write 'VALUE' in {subject}"
            raise self._wrong(start, f"{subject} is a list and is not compared", hint)
        if sign.kind != "operator":
            negated = self._accept("not")
            self._require("in")
            self._require("(")
            values = [self._literal(kind, kind.value)]
            while self._accept(","):
                values.append(self._literal(kind, kind.value))
            self._require(")", ", or )")
            return Test(subject, "in", tuple(values), negated)
        self._index += 1
        if sign.text == "~":
            if kind not in (FieldKind.TEXT, FieldKind.VERSION):
                raise self._wrong(sign, f"{subject} is {kind.value}, which has no patterns")
            return Test(subject, "~", (self._literal(FieldKind.TEXT, "a pattern, such as 'acme/*'"),))
        if kind is FieldKind.TEXT and sign.text[0] in "<>":
            raise self._wrong(sign, f"{subject} is a text, which has no order", "use =, !=, in or ~")
        return Test(subject, sign.text.replace("==", "="), (self._literal(kind, kind.value),))

    def _is_membership(self) -> bool:
        """True if a value and `in` follow, without the bracket of a list of values."""
        after = [token.text for token in self._tokens[self._index + 1 : self._index + 4]]
        following = after[1:] if after[:1] == ["not"] else after
        is_literal = self._next.kind in ("word", "string", "number")
        return is_literal and following[:1] == ["in"] and following[1:2] != ["("]

    def _membership(self) -> Node:
        """membership = TEXT ["not"] "in" LIST-FIELD"""
        value = self._literal(FieldKind.TEXT, "the text that the list may have")
        negated = self._accept("not")
        self._require("in")
        start = self._next
        subject = self._field()
        if self._fields[subject.name] is not FieldKind.LIST:
            lists = " or ".join(name for name, kind in self._fields.items() if kind is FieldKind.LIST)
            raise self._wrong(start, f"expected {lists}, or values in brackets: (onnx-int8, ort-android)")
        return Test(subject, "has", (value,), negated)

    def _field(self) -> Field:
        """field = NAME | ("recall" | "metric") ("." LABEL | "[" TEXT "]")

        `metric['character_recall/PHONE']` is `recall.PHONE`.
        """
        token = self._next
        if token.kind != "word":
            raise self._expected("a field, such as size, on the left")
        self._index += 1
        name, _, label = token.text.partition(".")
        if name not in LABELLED or name not in self._fields:
            if token.text not in self._fields:
                hint = _nearest(token.text, self._fields)
                raise self._wrong(token, f"there is no field {short(token.text)}", hint)
            return Field(token.text)
        if not label:
            if not self._accept("["):
                raise self._wrong(token, f"expected {LABELLED[name][0]}", LABELLED[name][1])
            if self._next.kind != "string":
                raise self._expected("a label in quotes")
            label = self._next.content
            self._index += 1
            self._require("]")
        if name == "metric" and label.startswith(RECALL):
            return Field("recall", label.removeprefix(RECALL))
        return Field(name, label)

    def _literal(self, kind: FieldKind, expected: str) -> Literal:
        """value = TEXT | VERSION | SIZE | NUMBER, whichever the field is"""
        token = self._next
        token_kinds, read = _LITERALS[kind]
        if token.kind not in token_kinds:
            hint = "put a text that begins with a digit in quotes" if token.kind == "number" else ""
            raise self._expected(expected, hint)
        self._index += 1
        try:
            return read(token.content)
        except InputError as error:
            raise self._wrong(token, f"expected {expected}: {error.message}", error.hint) from None

    def _accept(self, text: str) -> bool:
        is_match = self._next.kind in ("keyword", "mark") and self._next.text == text
        self._index += is_match
        return is_match

    def _require(self, text: str, expected: str = "") -> None:
        if not self._accept(text):
            raise self._expected(expected or text)

    def _expected(self, expectation: str, hint: str = "") -> ExpressionError:
        actual = f"found {short(self._next.text)}" if self._next.text else "it ends here"
        return self._wrong(self._next, f"expected {expectation}; {actual}", hint)

    def _wrong(self, token: Token, problem: str, hint: str = "") -> ExpressionError:
        return ExpressionError(self._text, (token.start, token.end), problem, hint)


def tokenize(text: str) -> list[Token]:
    """Split an expression into tokens; the last one is of kind `end`. ExpressionError at a character that begins none."""
    if len(text) > MAX_CHARACTERS:
        span = MAX_CHARACTERS, len(text)
        raise ExpressionError(text, span, f"it is longer than {MAX_CHARACTERS} characters")
    if half := _SURROGATE.search(text):
        raise ExpressionError(text, half.span(), "a character is cut in two: this is not valid text")
    tokens, position = [], 0
    while position < len(text):
        match, char = _TOKEN.match(text, position), text[position]
        if match is None and char in "'\"":
            raise ExpressionError(text, (position, len(text)), f"the text that begins with {char} has no end")
        if match is None:
            span = position, position + 1
            raise ExpressionError(text, span, f"{char!r} is not part of the language", _HINTS.get(char, ""))
        if match.lastgroup != "space":
            tokens.append(Token(str(match.lastgroup), match[0], *match.span()))
        position = match.end()
    return [*tokens, Token("end", "", position, position)]


def draw(text: str, start: int, end: int) -> tuple[str, str]:
    """Two lines: the expression, or the part of it around the span, and `~~~^` under the span."""
    first = max(0, min(start - MAX_COLUMNS // 2, len(text) - MAX_COLUMNS))
    excerpt = text[first : first + MAX_COLUMNS]
    line = "".join(char if char.isprintable() else " " for char in excerpt)
    under = max(1, min(end, first + MAX_COLUMNS) - start)
    return line, " " * (start - first) + "~" * (under - 1) + "^"


def short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def _nearest(name: str, fields: Iterable[str]) -> str:
    """The fields that were perhaps meant; else all of them. The name of a model is the value of a field."""
    if "/" in name:
        return f"write name = {name}"
    parts = {part.replace("-", "_"): None for part in name.lower().split(".") if len(part) > 2}
    suggestions = [field for part in parts for field in nearest(part, fields)]
    suggestions += [field for part in parts for field in fields if part in field]
    if suggestions:
        return f"did you mean {' or '.join(dict.fromkeys(suggestions))}?"
    return f"the fields are {', '.join(fields)}"


def _version(text: str) -> Literal:
    """VERSION = as SemVer 2.0 has it; quotes do not matter"""
    version = Version.parse(text)
    return Literal(version, f"'{version}'")


def _number(text: str) -> Literal:
    """NUMBER = DIGITS ["." DIGITS]"""
    match = _NUMERAL.fullmatch(text)
    if match is None:
        raise InputError(f"{short(text)} is no number")
    if len(match[1] + (match[2] or "")) > MAX_DIGITS:
        raise InputError(f"{short(text)} has more than {MAX_DIGITS} digits")
    return Literal(float(text) if match[2] else int(text), text)


def _share(text: str) -> Literal:
    """SHARE = NUMBER, at most 1"""
    share = _number(text)
    if float(text) > 1:
        raise InputError(f"{short(text)} is more than 1")
    return share


def _size(text: str) -> Literal:
    """SIZE = NUMBER ["B" | "kB" | "MB" | "GB" | "TB" | "KiB" | "MiB" | "GiB" | "TiB"], a whole number of bytes"""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = text[len(number) :] or "B"
    if unit not in SIZE_UNITS:
        hint = next((f"write {name}" for name in SIZE_UNITS if name.lower() == unit.lower()), "")
        raise InputError(f"{short(unit)} is no unit", hint or f"units are {', '.join(SIZE_UNITS)}")
    _number(number)
    digits, _, part = number.partition(".")
    count, remainder = divmod(int(digits + part) * SIZE_UNITS[unit], 10 ** len(part))
    if remainder:
        raise InputError(f"{short(text)} is no whole number of bytes")
    if count > MAX_SIZE_BYTES:
        raise InputError(f"{short(text)} is more than {MAX_SIZE_BYTES} bytes")
    return Literal(count, text)


_LITERALS: dict[FieldKind, tuple[tuple[str, ...], Callable[[str], Literal]]] = {
    FieldKind.TEXT: (("word", "string"), Literal.of_text),
    FieldKind.VERSION: (("number", "string"), _version),
    FieldKind.SIZE: (("number",), _size),
    FieldKind.COUNT: (("number",), _number),
    FieldKind.NUMBER: (("number",), _number),
    FieldKind.SHARE: (("number",), _share),
}
"""The kinds of tokens that write a value of a field, and its reader."""
