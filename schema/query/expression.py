"""The language of conditions on artifacts, such as `format = onnx-int8 and size <= 30MB and recall.PHONE >= 0.95`.

docs/query.md is the specification and has the grammar. The parser joins tests by the binding power of `and` and `or`
(Pratt, "Top down operator precedence", 1973). It checks the types of all values, so that evaluation cannot fail. A
`Budget` limits the steps of an evaluation: a test of a value is one step.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import translate
from string import ascii_letters
from typing import Any, NamedTuple

from onnxreg.schema.core.bounds import MAX_DEPTH, MAX_DIGITS, MAX_EXPRESSION_CHARS
from onnxreg.schema.core.errors import InputError, nearest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import parse_size
from onnxreg.schema.log.state import RECALL
from onnxreg.schema.query.fields import FIELDS, LABELLED, FieldKind, FieldValues

MAX_COLUMNS = 76  # of an expression in an error
MAX_SHOWN_CHARACTERS = 40  # of a word in a message
CHARACTERS_PER_STEP = 8  # that one step of a budget matches against a pattern
POWERS = {"or": 1, "and": 2, "not": 3}  # a larger number binds closer
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

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
# Hints for operators of other languages
_HINTS = {
    "*": "put a pattern in quotes: name ~ 'acme/*'",
    "!": "write not, or !=",
    **dict.fromkeys("&|", "write and, or"),
}


class ExpressionError(InputError):
    """An expression cannot be read. `span` is the start and end of the mistake in `text`."""

    def __init__(self, text: str, span: tuple[int, int], problem: str, hint: str = "") -> None:
        message = f"the expression cannot be read: {problem}"
        super().__init__(message, hint or "docs/query.md has the language")
        self.span, self.drawing = span, draw(text, *span)


class Expression:
    """A parsed condition. `str` gives its canonical text. `matches` tests the field values of an artifact.

    `fields` has the names of the tested fields, such as `recall`. If the value of a field is unknown, each test of the
    field is false, even with `!=` and `not in`.
    """

    def __init__(
        self, text: str, fields: frozenset[str], matches: Callable[[FieldValues], bool], word: str = ""
    ) -> None:
        self._text, self.fields, self.matches, self.word = text, fields, matches, word

    def __str__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self._text)


class Literal(NamedTuple):
    """A value in an expression, and its spelling. The value of a version is its `precedence`."""

    value: str | int | float | tuple[object, ...]
    text: str

    @classmethod
    def of_text(cls, value: str) -> "Literal":
        """Put a text in quotes. The text may contain either ' or ", but not both."""
        quote = '"' if "'" in value else "'"
        return cls(value, f"{quote}{value}{quote}")


class Field(NamedTuple):
    """A field, such as `size`, or a label of a field, such as `recall.PHONE`."""

    name: str
    label: str | None = None

    def __str__(self) -> str:
        return self.name if self.label is None else f"{self.name}[{Literal.of_text(self.label).text}]"


def field_test(field: Field, text: str, accepts: Callable[[Any], bool]) -> Expression:
    """Make a condition, written as `text`, that is true if `accepts` is true for the field's value."""

    def matches(candidate: FieldValues) -> bool:
        spend(1)
        value = candidate.get(field.name)
        if value is not None and field.label is not None:
            value = value.get(field.label)
        return value is not None and accepts(value)

    return Expression(text, frozenset({field.name}), matches)


def junction(word: str, operands: Sequence[Expression]) -> Expression:
    """Join conditions by `and` or `or`, or negate one condition by `not`."""
    bracketed = ("or",) if word == "or" else ("and", "or")
    texts = [f"({node})" if node.word in bracketed else str(node) for node in operands]
    text = f"not {texts[0]}" if word == "not" else f" {word} ".join(texts)

    def matches(candidate: FieldValues) -> bool:
        results = (node.matches(candidate) for node in operands)
        if word == "not":
            return not any(results)
        return all(results) if word == "and" else any(results)

    return Expression(text, frozenset[str]().union(*(node.fields for node in operands)), matches, word)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whole texts. `*` matches any characters, and `?` one character. Case matters."""
    match = re.compile(translate(pattern.replace("[", "[[]"))).match

    def fits(text: str) -> bool:
        spend(len(text) // CHARACTERS_PER_STEP)
        return match(text) is not None

    return fits


class Budget:
    """A limit on the steps that evaluations may take, and the number of steps that are left."""

    def __init__(self, steps: int) -> None:
        self.steps = self.left = steps


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limit_steps(steps: int) -> Iterator[Budget]:
    """Limit the steps that all evaluations in this context may take together. A test of a value is one step."""
    budget = Budget(steps)
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


def spend(steps: int) -> None:
    """Take steps from the budget of `limit_steps`, if any. Raise InputError if too few steps are left."""
    budget = _budget.get()
    if budget is not None:
        budget.left -= steps
        if budget.left < 0:
            hint = "use fewer or simpler tests, or ask the registry itself instead of a server"
            raise InputError(f"the question takes more than {budget.steps:,} steps", hint)


class Token(NamedTuple):
    kind: str  # a group of `_TOKEN`, or "end"
    text: str
    start: int
    end: int

    @property
    def content(self) -> str:
        return self.text[1:-1] if self.kind == "string" else self.text


def parse(text: str, fields: Mapping[str, FieldKind] = FIELDS) -> Expression:
    """Read an expression over these fields. Raise ExpressionError, which shows the position of the fault."""
    return _Parser(text, fields).whole()


class _Parser:
    """A parser that reads tokens from left to right and looks one token ahead."""

    def __init__(self, text: str, fields: Mapping[str, FieldKind]) -> None:
        self._text, self._fields, self._tokens = text, fields, tokenize(text)
        self._index = self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._index]

    def whole(self) -> Expression:
        node = self._conditions()
        if self._next.kind != "end":
            hint = "write it in lower case" if self._next.text.lower() in POWERS else ""
            raise self._expected("and, or, or the end", hint)
        return node

    def _conditions(self, power: int = 0) -> Expression:
        """Parse conditions joined by `and` or `or`. Stop at a word whose binding power is not above `power`."""
        node = self._condition()
        while (word := self._next.text) in ("and", "or") and POWERS[word] > power:
            operands = [node]
            while self._accept(word):
                operands.append(self._conditions(POWERS[word]))
            node = junction(word, operands)
        return node

    def _condition(self) -> Expression:
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
            return junction("not", [node])
        self._require(")", "and, or, or )")
        return node

    def _test(self) -> Expression:
        """Parse a test, such as `newest`, `size <= 30MB`, `format in (onnx, ort)` or `stable in channels`."""
        if self._is_membership():
            return self._membership()
        start = self._next
        subject = self._field()
        kind, sign = self._fields[subject.name], self._next
        if sign.kind != "operator" and sign.text not in ("not", "in"):
            if kind is not FieldKind.FLAG:
                raise self._expected(f"a comparison: {subject} is by itself neither true nor false")
            return field_test(subject, str(subject), lambda value: value is True)
        if kind is FieldKind.FLAG:
            hint = f"write {subject}, or not {subject}"
            raise self._wrong(start, f"{subject} is true or false by itself and is not compared", hint)
        if kind is FieldKind.LIST:
            hint = f"write 'VALUE' in {subject}"
            raise self._wrong(start, f"{subject} is a list and is not compared", hint)
        is_version = kind is FieldKind.VERSION
        key_of = (lambda value: Version.parse(value).precedence) if is_version else lambda value: value
        if sign.kind != "operator":
            negated = self._accept("not")
            self._require("in")
            self._require("(")
            literals = [self._literal(kind)]
            while self._accept(","):
                literals.append(self._literal(kind))
            self._require(")", ", or )")
            among, texts = {literal.value for literal in literals}, [literal.text for literal in literals]
            text = f"{subject} {'not in' if negated else 'in'} ({', '.join(texts)})"
            return field_test(subject, text, lambda value: (key_of(value) in among) is not negated)
        self._index += 1
        if sign.text == "~":
            if kind not in (FieldKind.TEXT, FieldKind.VERSION):
                raise self._wrong(sign, f"{subject} is {kind.value}, which has no patterns")
            pattern = self._literal(FieldKind.TEXT, "a pattern, such as 'acme/*'")
            return field_test(subject, f"{subject} ~ {pattern.text}", matcher(str(pattern.value)))
        if kind is FieldKind.TEXT and sign.text[0] in "<>":
            raise self._wrong(sign, f"{subject} is a text, which has no order", "use =, !=, in or ~")
        word, literal = sign.text.replace("==", "="), self._literal(kind)
        compare = COMPARE[word]
        text = f"{subject} {word} {literal.text}"
        return field_test(subject, text, lambda value: compare(key_of(value), literal.value))

    def _is_membership(self) -> bool:
        """True if a test such as `stable in channels` comes next."""
        after = [token.text for token in self._tokens[self._index + 1 : self._index + 4]]
        following = after[1:] if after[:1] == ["not"] else after
        is_literal = self._next.kind in ("word", "string", "number")
        return is_literal and following[:1] == ["in"] and following[1:2] != ["("]

    def _membership(self) -> Expression:
        value = self._literal(FieldKind.TEXT, "the text that the list may have")
        negated = self._accept("not")
        self._require("in")
        start = self._next
        subject = self._field()
        if self._fields[subject.name] is not FieldKind.LIST:
            lists = " or ".join(name for name, kind in self._fields.items() if kind is FieldKind.LIST)
            raise self._wrong(start, f"expected {lists}, or values in brackets: (onnx-int8, ort-android)")
        text = f"{value.text} {'not in' if negated else 'in'} {subject}"
        return field_test(subject, text, lambda items: (value.value in items) is not negated)

    def _field(self) -> Field:
        """Parse a field. `metric['character_recall/PHONE']` means `recall.PHONE`."""
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

    def _literal(self, kind: FieldKind, expected: str = "") -> Literal:
        token, expected = self._next, expected or kind.value
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
    """Split an expression into tokens. The last one has kind `end`. Raise ExpressionError for an unknown character."""
    if len(text) > MAX_EXPRESSION_CHARS:
        span = MAX_EXPRESSION_CHARS, len(text)
        raise ExpressionError(text, span, f"it is longer than {MAX_EXPRESSION_CHARS} characters")
    if half := re.search("[\ud800-\udfff]", text):
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
    """Return two lines: the expression, and `~~~^` under the span. A long expression is cut around the span."""
    first = max(0, min(start - MAX_COLUMNS // 2, len(text) - MAX_COLUMNS))
    line = "".join(char if char.isprintable() else " " for char in text[first : first + MAX_COLUMNS])
    under = max(1, min(end, first + MAX_COLUMNS) - start)
    return line, " " * (start - first) + "~" * (under - 1) + "^"


def short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def _nearest(name: str, fields: Iterable[str]) -> str:
    """Return a hint about an unknown field: similar fields or, for a name with `/`, how to test a model's name."""
    if "/" in name:
        return f"write name = {name}"
    parts = {part.replace("-", "_"): None for part in name.lower().split(".") if len(part) > 2}
    suggestions = [field for part in parts for field in nearest(part, fields)]
    suggestions += [field for part in parts for field in fields if part in field]
    if suggestions:
        return f"did you mean {' or '.join([*dict.fromkeys(suggestions)][:3])}?"
    return f"the fields are {', '.join(fields)}"


def _version(text: str) -> Literal:
    version = Version.parse(text)
    return Literal(version.precedence, f"'{version}'")


def _number(text: str) -> Literal:
    match = re.fullmatch(r"([0-9]+)(?:\.([0-9]+))?", text)
    if match is None:
        raise InputError(f"not a number: {short(text)}")
    if len(match[1] + (match[2] or "")) > MAX_DIGITS:
        raise InputError(f"{short(text)} has more than {MAX_DIGITS} digits")
    return Literal(float(text) if match[2] else int(text), text)


def _share(text: str) -> Literal:
    share = _number(text)
    if float(text) > 1:
        raise InputError(f"{short(text)} is more than 1")
    return share


def _size(text: str) -> Literal:
    _number(text.rstrip(ascii_letters))
    return Literal(parse_size(text), text)


# The kinds of tokens, and the function that reads one
_LITERALS: dict[FieldKind, tuple[tuple[str, ...], Callable[[str], Literal]]] = {
    FieldKind.TEXT: (("word", "string"), Literal.of_text),
    FieldKind.VERSION: (("number", "string"), _version),
    FieldKind.SIZE: (("number",), _size),
    FieldKind.COUNT: (("number",), _number),
    FieldKind.NUMBER: (("number",), _number),
    FieldKind.SHARE: (("number",), _share),
}
