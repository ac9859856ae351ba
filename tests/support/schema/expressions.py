"""Expressions at random, each as text together with a naive judge of it that never saw the parser; and candidates."""

import fnmatch
import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import strategies as some

from onnxreg.schema.core.ref import Version
from onnxreg.schema.query.fields import FIELDS, FieldKind

Judge = Callable[[dict[str, Any]], bool]
Case = tuple[str, Judge]
SIGNS = {"=": "eq", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
TEXTS = [name for name, kind in FIELDS.items() if kind is FieldKind.TEXT]
WORDS = some.sampled_from(["onnx", "onnx-int8", "a/b", "apache-2.0", "B"])
QUOTED = some.text(some.characters(exclude_categories=["Cs"], exclude_characters="'"), max_size=6)
NUMBERS = some.integers(0, 3000)
UNITS = some.sampled_from([("", 1), ("B", 1), ("kB", 1000), ("KiB", 1024), ("MB", 10**6)])
VERSIONS = some.sampled_from(["0.9.0", "1.0.0-rc.1", "1.0.0-rc.2", "1.0.0", "1.0.0+b", "1.2.0", "1.10.0"])
LABELS = some.sampled_from(["PHONE", "FIRST NAME", "é"])
METRICS = some.sampled_from(["sts/spearman", "sts/spearman/loss", "a b", "é"])
LABELLED = {"recall": LABELS, "metric": METRICS}
SHARES = some.sampled_from(["0", "0.25", "0.5", "1", "1.0"])
FIGURES = SHARES | some.sampled_from(["12.5", "0.002"])
SPACE = some.sampled_from([" ", "  ", "\n"])


def _known(value: Any, test: Callable[[Any], bool]) -> bool:
    return value is not None and test(value)


def _value(field: str, found: dict[str, Any], label: str | None) -> Any:
    value = found.get(field)
    if label is not None:
        value = (value or {}).get(label)
    return Version.parse(value).precedence if field == "version" and value else value


@some.composite
def operands(draw: some.DrawFn) -> tuple[str, str, str | None, some.SearchStrategy[tuple[str, Any]]]:
    """A field that is compared: as text, its name, its label, and what may stand beside it, as text and value."""
    kind = draw(
        some.sampled_from(
            [
                *(FieldKind.TEXT, FieldKind.VERSION, FieldKind.SIZE, FieldKind.COUNT),
                *(FieldKind.NUMBER, FieldKind.SHARE),
            ]
        )
    )
    field = draw(some.sampled_from([name for name, its in FIELDS.items() if its is kind]))
    label = draw(LABELLED[field]) if field in LABELLED else None
    shown = (
        field if label is None else draw(some.sampled_from([f"{field}['{label}']", f'{field}["{label}"]']))
    )
    values: dict[FieldKind, some.SearchStrategy[tuple[str, Any]]] = {
        FieldKind.TEXT: WORDS.map(lambda word: (word, word)) | QUOTED.map(lambda text: (f"'{text}'", text)),
        FieldKind.VERSION: VERSIONS.map(lambda text: (text, Version.parse(text).precedence)),
        FieldKind.SIZE: some.tuples(NUMBERS, UNITS).map(
            lambda pair: (f"{pair[0]}{pair[1][0]}", pair[0] * pair[1][1])
        ),
        FieldKind.COUNT: NUMBERS.map(lambda number: (str(number), number)),
        FieldKind.NUMBER: FIGURES.map(lambda text: (text, float(text))),
        FieldKind.SHARE: SHARES.map(lambda text: (text, float(text))),
    }
    return shown, field, label, values[kind]


@some.composite
def checks(draw: some.DrawFn) -> Case:
    """One test, and its judge."""
    space = draw(SPACE)
    match draw(some.sampled_from(["flag", "member", "glob", "compare", "among"])):
        case "flag":
            field = draw(some.sampled_from([name for name, kind in FIELDS.items() if kind is FieldKind.FLAG]))
            return field, lambda found: found.get(field) is True
        case "member":
            field = draw(some.sampled_from(["channels", "providers"]))
            word, negated = draw(WORDS), draw(some.booleans())
            text = f"{word}{space}{'not in' if negated else 'in'} {field}"
            return text, lambda found: _known(found.get(field), lambda held: (word in held) != negated)
        case "glob":
            field = draw(some.sampled_from(TEXTS))
            pattern = draw(some.text("ab*?[/-", max_size=5))
            regular = fnmatch.translate(pattern.replace("[", "\0")).replace("\0", "\\[")
            return f"{field}~{space}'{pattern}'", lambda found: _known(
                found.get(field), lambda held: re.match(regular, held) is not None
            )
        case "compare":
            shown, field, label, values = draw(operands())
            sign = draw(some.sampled_from(["=", "==", "!="] if field in TEXTS else list(SIGNS)))
            text, value = draw(values)
            compare = getattr(operator, SIGNS[sign])
            return f"{shown}{space}{sign}{space}{text}", lambda found: _known(
                _value(field, found, label), lambda held: compare(held, value)
            )
    shown, field, label, values = draw(operands())
    choices, negated = draw(some.lists(values, min_size=1, max_size=3)), draw(some.booleans())
    listed = f",{space}".join(text for text, _ in choices)
    return f"{shown} {'not in' if negated else 'in'}{space}({listed})", lambda found: _known(
        _value(field, found, label), lambda held: (held in [value for _, value in choices]) != negated
    )


def _joined(word: str, every: Callable[[Any], bool], cases: list[Case]) -> Case:
    text = f" {word} ".join(f"({text})" for text, _ in cases)
    return text, lambda found: every([judge(found) for _, judge in cases])


def _negated(case: Case) -> Case:
    return f"not ({case[0]})", lambda found: not case[1](found)


def _larger(smaller: some.SearchStrategy[Case]) -> some.SearchStrategy[Case]:
    several = some.lists(smaller, min_size=2, max_size=3)
    return (
        smaller.map(_negated)
        | several.map(partial(_joined, "and", all))
        | several.map(partial(_joined, "or", any))
    )


EXPRESSIONS = some.recursive(checks(), _larger, max_leaves=8)


def _perhaps(values: some.SearchStrategy[Any]) -> some.SearchStrategy[Any]:
    return some.none() | values


BY_KIND: dict[FieldKind, some.SearchStrategy[Any]] = {
    FieldKind.TEXT: _perhaps(WORDS | QUOTED | some.text("ab[/-", max_size=5)),
    FieldKind.VERSION: VERSIONS,
    FieldKind.SIZE: some.integers(0, 3000) | some.integers(0, 3000).map(lambda number: number * 1000),
    FieldKind.COUNT: _perhaps(NUMBERS),
    FieldKind.NUMBER: _perhaps(FIGURES.map(float)),
    FieldKind.SHARE: _perhaps(SHARES.map(float)),
    FieldKind.FLAG: some.booleans(),
    FieldKind.LIST: some.lists(WORDS, max_size=3),
}
CANDIDATES = some.fixed_dictionaries(
    {name: BY_KIND[kind] for name, kind in FIELDS.items()}
    | {
        "recall": some.dictionaries(LABELS, SHARES.map(float)),
        "metric": some.dictionaries(METRICS, FIGURES.map(float)),
    }
)
