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
from typing import Annotated

import msgspec

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError, about

Types = Mapping[str, frozenset[str]]
"""The element types at a position, such as `{"0": {"float"}}`."""

GLOBAL = "!globally_allowed_types;"
ALL = "!no_ops_specified_means_all_ops_are_required"
ONE_HOT = ("ai.onnx", "OneHot")
"""Its types are always triples: what a config says of it in any other form leaves none."""
MAX_LISTED_NAMES = 3
"""The most missing operators that a message names."""


class Need(msgspec.Struct, frozen=True):
    """One operator of an artifact, with the element types seen at its positions; none if nobody recorded them."""

    domain: str
    name: str
    opset: Annotated[int, msgspec.Meta(ge=0)]
    inputs: dict[str, frozenset[str]] = {}
    outputs: dict[str, frozenset[str]] = {}

    def __str__(self) -> str:
        return f"{self.domain}:{self.name} (opset {self.opset})"


def read_operator_set(data: bytes) -> tuple[Need, ...]:
    """Read an operator-set blob. InputError if it is malformed."""
    try:
        return msgspec.convert(canonical.decode(data, "operator set"), tuple[Need, ...])
    except msgspec.ValidationError as error:
        raise InputError(f"operator set is malformed: {error}") from error


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


class _Restriction(msgspec.Struct):
    """The types of one operator in a config; `custom` are triples."""

    inputs: dict[str, frozenset[str]] = {}
    outputs: dict[str, frozenset[str]] = {}
    custom: tuple[tuple[str, ...], ...] | None = None


def read_build(config: str) -> Build:
    """Read an operator config. InputError, naming the line, if ONNX Runtime's build would not take it.

    line = "#" COMMENT | GLOBAL type *("," type) | ALL | domain ";" opset *("," opset) ";" entries
    """
    operators: set[tuple[str, int, str]] = set()
    types: dict[tuple[str, str], tuple[Types, Types]] = {}
    triples: dict[tuple[str, str], frozenset[tuple[str, ...]]] = {}
    everywhere: frozenset[str] | None = None
    has_all = False
    for number, line in enumerate(map(str.strip, config.splitlines()), 1):
        with about(f"line {number} of the operator config"):
            if not line or line.startswith("#"):
                continue
            if line == ALL:
                has_all = True
            elif line.startswith(GLOBAL):
                if everywhere is not None:
                    raise InputError("there are two lines of globally allowed types")
                everywhere = frozenset(name.strip() for name in line.split(";")[1].split(","))
            else:
                parts = [part.strip() for part in line.split(";")]
                if len(parts) != 3 or not all(parts):
                    raise InputError("it is not domain;opset;operators")
                opsets = [_opset(opset.strip()) for opset in parts[1].split(",")]
                for name, restriction in _entries(parts[2]):
                    operators.update((parts[0], opset, name) for opset in opsets)
                    if restriction is not None:  # it replaces everything that earlier lines stated
                        key = parts[0], name
                        types.pop(key, None)
                        triples.pop(key, None)
                        if key == ONE_HOT or restriction.custom is not None:
                            triples[key] = frozenset(restriction.custom or ())
                        else:
                            types[key] = restriction.inputs, restriction.outputs
    if everywhere is not None and (types or triples):
        raise InputError("the operator config has globally allowed types and types of single operators")
    return Build(None if has_all and not operators else frozenset(operators), types, triples, everywhere)


_NAME_END = re.compile("[{,]")


def _entries(text: str) -> Iterator[tuple[str, _Restriction | None]]:
    """entries = name [json] *("," name [json])"""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        stop = _NAME_END.search(text, position)
        end = stop.start() if stop else len(text)
        name = text[position:end].strip()
        if not name:
            raise InputError("an operator has no name")
        restriction = None
        if text[end : end + 1] == "{":
            try:
                value, end = decoder.raw_decode(text, end)
                restriction = msgspec.convert(value, _Restriction)
            except (ValueError, RecursionError) as error:
                raise InputError(f"the types of {name[:80]} are malformed: {error}") from error
        yield name, restriction
        if text[end : end + 1] not in ("", ","):
            raise InputError(f"there is no comma after {name[:80]}")
        position = end + 1


def _opset(number: str) -> int:
    if not number.isascii() or not number.isdigit() or len(number) > 9:
        raise InputError(f"not an opset: {number[:40]!r}")
    return int(number)
