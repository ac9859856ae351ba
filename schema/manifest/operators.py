"""Operators: those an artifact needs, those a reduced build of ONNX Runtime has, and if the build has them all.

A build is described by its operator config (`required_operators_and_types.config`), read as ONNX Runtime's build reads
it: `domain;opset[,opset];Op[{types}],Op...`, `!globally_allowed_types;T,T...` and
`!no_ops_specified_means_all_ops_are_required`; `#` begins a comment. An opset is the since-version of the operator's
definition, as in the configs that ONNX Runtime's converter writes beside .ort files. Types belong to an operator
whatever its opset, and what a later line says of them replaces what an earlier one said. `docs/resolve.md` has the rules.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import count, items, mapping, required, text
from onnxreg.schema.core.errors import InputError

Types = Mapping[str, frozenset[str]]
"""The element types at a position, such as `{"0": {"float"}}`."""

GLOBAL = "!globally_allowed_types;"
ALL = "!no_ops_specified_means_all_ops_are_required"
SIDES = ("inputs", "outputs")
ONE_HOT = ("ai.onnx", "OneHot")
"""Its types are always triples: what a config says of it in any other form leaves none."""
MAX_LISTED_NAMES = 3
"""The most missing operators that a message names."""


@dataclass(frozen=True, slots=True)
class Need:
    """One operator of an artifact, with the element types seen at its positions; none if nobody recorded them."""

    domain: str
    name: str
    opset: int
    inputs: Types = field(default_factory=dict)
    outputs: Types = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.domain}:{self.name} (opset {self.opset})"

    @classmethod
    def read(cls, value: Any) -> "Need":
        fields = mapping(value)
        inputs, outputs = (_types(fields.get(side, {})) for side in SIDES)
        return cls(
            text(required(fields, "domain")),
            text(required(fields, "name")),
            count(required(fields, "opset")),
            inputs,
            outputs,
        )


def read_operator_set(data: bytes) -> tuple[Need, ...]:
    """Read an operator-set blob. InputError if it is malformed."""
    return items(canonical.decode(data, "operator set"), Need.read)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The reason for which a build lacks an artifact: a code (`operators` or `types`), and the lack."""

    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Build:
    """The operators of a reduced build; `operators` is None if it has all of them.

    `types` restricts the element types of an operator (by domain and name) at some positions, `triples` those of
    OneHot (indices, values, depth), `everywhere` those of all operators.
    """

    operators: frozenset[tuple[str, int, str]] | None = frozenset()
    types: Mapping[tuple[str, str], tuple[Types, Types]] = field(default_factory=dict)
    triples: Mapping[tuple[str, str], frozenset[tuple[str, ...]]] = field(default_factory=dict)
    everywhere: frozenset[str] | None = None

    def shortfall(self, needs: Iterable[Need]) -> Shortfall | None:
        """The first thing that the build lacks for these operators, operators before types. None if it has all."""
        needs = tuple(needs)
        missing = [str(need) for need in needs if not self._has(need)]
        if missing:
            return Shortfall("operators", f"needs {_few(missing)}, which this build lacks")
        wrong = [f"{need} {problem}" for need in needs if (problem := self._type_problem(need))]
        return Shortfall("types", f"needs {_few(wrong)}") if wrong else None

    def _has(self, need: Need) -> bool:
        return self.operators is None or (need.domain, need.opset, need.name) in self.operators

    def _type_problem(self, need: Need) -> str:
        """The fault of the types of an operator that the build has; "" if there is none."""
        if self.everywhere is not None:
            empty: frozenset[str] = frozenset()
            return _problem(empty.union(*need.inputs.values(), *need.outputs.values()), self.everywhere)
        key = need.domain, need.name
        if key in self.triples:
            return _triple_problem(need, self.triples[key])
        for allowed, seen_at in zip(self.types.get(key, ()), (need.inputs, need.outputs), strict=False):
            for position, names in allowed.items():
                problem = _problem(seen_at.get(position, frozenset()), names)
                if problem:
                    return problem
        return ""


def _problem(needed: frozenset[str], allowed: frozenset[str]) -> str:
    if not needed:
        return "with types that are not recorded"
    missing = sorted(needed - allowed)
    return f"with {' and '.join(missing)}" if missing else ""


def _triple_problem(need: Need, allowed: frozenset[tuple[str, ...]]) -> str:
    """OneHot is built for triples of types: of its indices, its values and its depth, which are inputs 0, 2 and 1."""
    sides = [need.inputs.get(position, frozenset()) for position in ("0", "2", "1")]
    if not all(sides):
        return "with types that are not recorded"
    missing = next((triple for triple in product(*map(sorted, sides)) if triple not in allowed), None)
    return f"with {', '.join(missing)}" if missing else ""


def _few(names: list[str]) -> str:
    more = [f"{len(names) - MAX_LISTED_NAMES} more"] if len(names) > MAX_LISTED_NAMES else []
    return " and ".join([*names[:MAX_LISTED_NAMES], *more])


def read_build(config: str) -> Build:
    """Read an operator config. InputError, naming the line, if ONNX Runtime's build would not take it."""
    reader = _Reader()
    for number, line in enumerate(config.splitlines(), 1):
        try:
            reader.line(line.strip())
        except InputError as error:
            raise InputError(
                f"line {number} of the operator config: {error.message}", error.advice
            ) from error
    return reader.build()


class _Reader:
    """The result of the lines read so far."""

    def __init__(self) -> None:
        self.operators: set[tuple[str, int, str]] = set()
        self.types: dict[tuple[str, str], tuple[Types, Types]] = {}
        self.triples: dict[tuple[str, str], frozenset[tuple[str, ...]]] = {}
        self.everywhere: frozenset[str] | None = None
        self.all = False

    def line(self, line: str) -> None:
        """line = "#" COMMENT | GLOBAL type *("," type) | ALL | domain ";" opset *("," opset) ";" entries"""
        if not line or line.startswith("#"):
            return
        if line.startswith(GLOBAL):
            if self.everywhere is not None:
                raise InputError("there are two lines of globally allowed types")
            self.everywhere = frozenset(name.strip() for name in line.split(";")[1].split(","))
        elif line == ALL:
            self.all = True
        else:
            self._operators(line)

    def _operators(self, line: str) -> None:
        parts = [part.strip() for part in line.split(";")]
        if len(parts) != 3 or not all(parts):
            raise InputError("it is not domain;opset;operators")
        domain, opsets, entries = parts
        numbers = [_opset(number.strip()) for number in opsets.split(",")]
        for name, types in _entries(entries):
            self.operators.update((domain, number, name) for number in numbers)
            if types is not None:
                self._restrict((domain, name), types)

    def _restrict(self, key: tuple[str, str], types: dict[str, Any]) -> None:
        """Replace everything that earlier lines stated about an operator's types."""
        self.types.pop(key, None)
        self.triples.pop(key, None)
        if key == ONE_HOT or "custom" in types:
            triples = items(types.get("custom", []), lambda triple: items(triple, text))
            self.triples[key] = frozenset(triples)
        else:
            inputs, outputs = (_types(types.get(side, {})) for side in SIDES)
            self.types[key] = inputs, outputs

    def build(self) -> Build:
        if self.everywhere is not None and (self.types or self.triples):
            raise InputError("the operator config has globally allowed types and types of single operators")
        operators = None if self.all and not self.operators else frozenset(self.operators)
        return Build(operators, self.types, self.triples, self.everywhere)


_NAME_END = re.compile("[{,]")


def _entries(text: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """entries = name [json] *("," name [json])"""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        stop = _NAME_END.search(text, position)
        end = stop.start() if stop else len(text)
        name = text[position:end].strip()
        if not name:
            raise InputError("an operator has no name")
        types = None
        if text[end : end + 1] == "{":
            try:
                types, end = decoder.raw_decode(text, end)
            except (ValueError, RecursionError) as error:
                raise InputError(f"the types of {name[:80]} are not JSON") from error
        yield name, types
        if text[end : end + 1] not in ("", ","):
            raise InputError(f"there is no comma after {name[:80]}")
        position = end + 1


def _opset(number: str) -> int:
    if not number.isascii() or not number.isdigit() or len(number) > 9:
        raise InputError(f"not an opset: {number[:40]!r}")
    return int(number)


def _types(value: Any) -> Types:
    return {position: frozenset(items(names, text)) for position, names in mapping(value).items()}
