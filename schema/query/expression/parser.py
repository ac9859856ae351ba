"""A small, safe language for questions about candidates: `format = onnx-int8 and size <= 30MB and recall.PHONE >= 0.95`.

A candidate is one artifact of one version of one model; `fields` lists its fields. The parser is a
recursive descent over tokens, and each of its functions has its production as docstring. It makes a tree that is plain
data and whose types fit; nothing in it can fail or run away when it is evaluated. `docs/query.md` is the specification.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from onnxreg.schema.core.errors import InputError, nearest
from onnxreg.schema.log.summary import RECALL
from onnxreg.schema.query.expression.fields import FIELDS, LABELLED, FieldKind, FieldValues
from onnxreg.schema.query.expression.tokens import (
    TOKEN_KINDS,
    ExpressionError,
    Token,
    read_literal,
    short,
    tokenize,
    written,
)
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
_IN_QUOTES = "put a text that begins with a digit in quotes"
_JOINED = {"and": "write it in lower case", "or": "write it in lower case"}


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
