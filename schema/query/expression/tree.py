"""A parsed expression as data. `str` of a tree is an expression that parses to the same tree."""

from dataclasses import dataclass

from onnxreg.schema.core.version import Version

Value = str | int | float | Version


@dataclass(frozen=True, slots=True)
class Literal:
    """A value that was written down; `text` is how to write it."""

    value: Value
    text: str

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of_text(cls, value: str) -> "Literal":
        """A text in quotes; it holds one kind of quotes at most."""
        quote = '"' if "'" in value else "'"
        return cls(value, f"{quote}{value}{quote}")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a candidate; `label` is whose recall is meant."""

    name: str
    label: str | None = None

    def __str__(self) -> str:
        return self.name if self.label is None else f"{self.name}[{Literal.of_text(self.label)}]"


@dataclass(frozen=True, slots=True)
class Flag:
    """True if the field is."""

    field: Field

    def __str__(self) -> str:
        return str(self.field)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operator` is = != < <= > or >=."""

    field: Field
    operator: str
    value: Literal

    def __str__(self) -> str:
        return f"{self.field} {self.operator} {self.value}"


@dataclass(frozen=True, slots=True)
class Glob:
    """The text of the field fits a pattern of `*` (any characters) and `?` (one)."""

    field: Field
    pattern: Literal

    def __str__(self) -> str:
        return f"{self.field} ~ {self.pattern}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field equals one of the values; with `negated` none of them."""

    field: Field
    values: tuple[Literal, ...]
    negated: bool

    def __str__(self) -> str:
        return f"{self.field} {_in(self.negated)} ({', '.join(map(str, self.values))})"


@dataclass(frozen=True, slots=True)
class FieldMember:
    """The list that the field holds has this text; with `negated` it has not."""

    value: Literal
    field: Field
    negated: bool

    def __str__(self) -> str:
        return f"{self.value} {_in(self.negated)} {self.field}"


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Node"

    def __str__(self) -> str:
        return f"not {_inner(self.operand, And, Or)}"


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple["Node", ...]

    def __str__(self) -> str:
        return " and ".join(_inner(operand, And, Or) for operand in self.operands)


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple["Node", ...]

    def __str__(self) -> str:
        return " or ".join(_inner(operand, Or) for operand in self.operands)


Leaf = Flag | Comparison | Glob | OneOf | FieldMember
Node = Leaf | Not | And | Or


def _in(negated: bool) -> str:
    return "not in" if negated else "in"


def _inner(node: Node, *bracketed: type) -> str:
    return f"({node})" if isinstance(node, bracketed) else str(node)
