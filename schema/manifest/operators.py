"""The operators that an artifact needs, and the operators that a reduced build of ONNX Runtime has.

A reduced build is made from an operator config (docs/resolve.md). Its lines are
`domain;opset[,opset];Op[{types}],Op...`, `!globally_allowed_types;T,T...` and
`!no_ops_specified_means_all_ops_are_required`. An opset is the version that introduced an operator's definition. If a
line has types for an operator, these types hold for all opsets of the operator, and replace types from earlier lines.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

import msgspec

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Count, convert
from onnxreg.schema.core.errors import InputError, about, listing

GLOBAL = "!globally_allowed_types;"
ALL = "!no_ops_specified_means_all_ops_are_required"
# A config lists the types of OneHot as triples. Types in another form allow nothing.
ONE_HOT = ("ai.onnx", "OneHot")
MAX_LISTED_NAMES = 3


class Need(msgspec.Struct, frozen=True):
    """An operator that an artifact needs. `inputs` and `outputs` have the element types by position. Both are empty if
    the types are not recorded.
    """

    domain: str
    name: str
    opset: Count
    inputs: dict[str, frozenset[str]] = {}
    outputs: dict[str, frozenset[str]] = {}

    def __str__(self) -> str:
        return f"{self.domain}:{self.name} (opset {self.opset})"


def read_operator_set(data: bytes) -> tuple[Need, ...]:
    """Read the blob of an artifact's operators. Raise InputError if it is malformed."""
    return convert(canonical.decode(data, "operator set"), tuple[Need, ...], "operator set")


class Restriction(msgspec.Struct, frozen=True):
    """The element types that a config allows for an operator, by the position of an input or output.

    For the operator OneHot, `custom` has the allowed triples of element types.
    """

    inputs: dict[str, frozenset[str]] = {}
    outputs: dict[str, frozenset[str]] = {}
    custom: frozenset[tuple[str, ...]] | None = None  # OneHot's types of (indices, values, depth)


class Build(msgspec.Struct, frozen=True):
    """A reduced build of ONNX Runtime: its operators as (domain, opset, name), and the element types they take."""

    operators: frozenset[tuple[str, int, str]] | None = frozenset()  # (domain, opset, name); None: all
    types: Mapping[tuple[str, str], Restriction] = {}  # by (domain, name)
    everywhere: frozenset[str] | None = None  # the types that all operators may use

    def shortfall(self, needs: Iterable[Need]) -> tuple[str, str] | None:
        """Return why the build cannot run these operators: `operators` or `types`, and a detail. None: it can."""
        needs, built = tuple(needs), self.operators
        missing = [str(n) for n in needs if built is not None and (n.domain, n.opset, n.name) not in built]
        if missing:
            return "operators", f"needs {listing(missing, MAX_LISTED_NAMES, None)}, which this build lacks"
        unfit = [f"{need} with {fault}" for need in needs if (fault := self._wrong_types(need))]
        return ("types", f"needs {listing(unfit, MAX_LISTED_NAMES, None)}") if unfit else None

    def _wrong_types(self, need: Need) -> str:
        unrecorded = "types that are not recorded"
        if self.everywhere is not None:
            kinds = frozenset[str]().union(*need.inputs.values(), *need.outputs.values())
            return " and ".join(sorted(kinds - self.everywhere)) if kinds else unrecorded
        allowed = self.types.get((need.domain, need.name), Restriction())
        if allowed.custom is not None:  # types of indices, values and depth: inputs 0, 2 and 1
            sides = [sorted(need.inputs.get(position, ())) for position in ("0", "2", "1")]
            lacking = (", ".join(triple) for triple in product(*sides) if triple not in allowed.custom)
            return next(lacking, "") if all(sides) else unrecorded
        for names_at, seen_at in ((allowed.inputs, need.inputs), (allowed.outputs, need.outputs)):
            for position, names in names_at.items():
                kinds = seen_at.get(position, frozenset())
                if not kinds <= names or not kinds:
                    return " and ".join(sorted(kinds - names)) or unrecorded
        return ""


def read_build(config: str) -> Build:
    """Read an operator config. Raise InputError, naming the line, if ONNX Runtime's build script would refuse it."""
    operators: set[tuple[str, int, str]] = set()
    types: dict[tuple[str, str], Restriction] = {}
    everywhere: frozenset[str] | None = None
    has_all = False
    for number, line in enumerate(map(str.strip, config.splitlines()), 1):
        with about(f"line {number} of the operator config"):
            if not line or line.startswith("#"):
                continue
            if line == ALL:
                has_all = True
                continue
            if line.startswith(GLOBAL):
                if everywhere is not None:
                    raise InputError("there are two lines of globally allowed types")
                everywhere = frozenset(name.strip() for name in line.split(";")[1].split(","))
                continue
            parts = [part.strip() for part in line.split(";")]
            if len(parts) != 3 or not all(parts):
                raise InputError("it is not domain;opset;operators")
            opsets = [opset.strip() for opset in parts[1].split(",")]
            if malformed := [opset for opset in opsets if not re.fullmatch("[0-9]{1,9}", opset)]:
                raise InputError(f"not an opset: {malformed[0][:40]!r}")
            for name, restriction in _entries(parts[2]):
                operators.update((parts[0], int(opset), name) for opset in opsets)
                if restriction is not None:  # replaces the types from earlier lines
                    if (parts[0], name) == ONE_HOT and restriction.custom is None:
                        restriction = Restriction(custom=frozenset())
                    types[parts[0], name] = restriction
    if everywhere is not None and types:
        raise InputError("the operator config has globally allowed types and types of single operators")
    return Build(None if has_all and not operators else frozenset(operators), types, everywhere)


_NAME_END = re.compile("[{,]")


def _entries(text: str) -> Iterator[tuple[str, Restriction | None]]:
    """Split `Op{types},Op` into the names of operators and their types."""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        stop = _NAME_END.search(text, position)
        end = stop.start() if stop else len(text)
        name, restriction = text[position:end].strip(), None
        if not name:
            raise InputError("an operator has no name")
        if text[end : end + 1] == "{":
            try:
                value, end = decoder.raw_decode(text, end)
            except (ValueError, RecursionError) as error:
                raise InputError(f"the types of {name[:80]} are malformed: {error}") from error
            restriction = convert(value, Restriction, f"the restriction of {name[:80]}")
        yield name, restriction
        if text[end : end + 1] not in ("", ","):
            raise InputError(f"there is no comma after {name[:80]}")
        position = end + 1
