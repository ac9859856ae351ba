"""ONNX Runtime's operator config: the operators and element types that a reduced build must have.

One line for each domain and opset: `domain;opset[,opset];Op[{types}],Op...`, where `{types}` is JSON such as
`{"inputs": {"0": ["float"]}}`. `#` begins a comment.
Source: https://onnxruntime.ai/docs/reference/operators/reduced-operator-config-file.html
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.graph_operators import operator
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Operator

OPERATOR_CONFIG = "required_operators_and_types.config"
"""The name that ONNX Runtime's converter gives its config: `<model>.required_operators_and_types.config`."""


def read_operator_config(path: Path) -> tuple[Operator, ...]:
    """The operators of a config, sorted; InputError, naming the line, if it is not one."""
    entries: dict[tuple[str, int, str], Operator] = {}
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        try:
            for entry in _line(line):
                entries[entry.domain, entry.opset, entry.name] = entry
        except (ValueError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path.name} is not an operator config: line {number} cannot be read: {error}",
                f"it is the {OPERATOR_CONFIG} that the ORT converter wrote beside the .ort file",
            ) from error
    if not entries:
        raise InputError(
            f"{path.name} lists no operators", "use the config that was written with the .ort file"
        )
    return tuple(entries[key] for key in sorted(entries))


def required(
    used: Iterable[Operator], config: Iterable[Operator], path: Path, config_path: Path
) -> tuple[Operator, ...]:
    """The entries of `config` for the operators that a file uses, in order of `used`.

    If the config says nothing of a position, the file's own types are used, so that a build that
    restricts more than this config does can be judged too.

    Raises InputError if a used operator, or one of its element types at a position that the config restricts,
    is missing: a build made from this config could not run the file.
    """
    listed = {(entry.domain, entry.opset, entry.name): entry for entry in config}
    result = []
    for need in used:
        entry = listed.get((need.domain, need.opset, need.name))
        if entry is None:
            raise _uncovered(path, config_path, _name(need))
        for side in ("inputs", "outputs"):
            for position, types in getattr(entry, side).items():
                missing = set(getattr(need, side).get(position, ())) - set(types)
                if missing:
                    raise _uncovered(path, config_path, f"{_name(need)} with {' and '.join(sorted(missing))}")
        result.append(_completed(entry, need))
    return tuple(result)


def _completed(entry: Operator, need: Operator) -> Operator:
    """An entry of a config, and the types of the file at the positions that it says nothing about."""
    sides = {side: {**getattr(need, side), **getattr(entry, side)} for side in ("inputs", "outputs")}
    inputs, outputs = (
        {int(position): set(types) for position, types in positions.items()} for positions in sides.values()
    )
    return operator(entry.domain, entry.opset, entry.name, inputs, outputs)


def _line(line: str) -> Iterable[Operator]:
    domain, opsets, entries = (part.strip() for part in line.split(";", 2))
    for name, types in _entries(entries):
        inputs, outputs = _sides(types)
        for opset in opsets.split(","):
            yield operator(domain, int(opset), name, inputs, outputs)


def _entries(text: str) -> Iterable[tuple[str, Any]]:
    """entries = name [json] *("," name [json])"""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        end = min(
            (at for at in (text.find("{", position), text.find(",", position)) if at >= 0), default=len(text)
        )
        name = text[position:end].strip()
        if not name:
            raise ValueError("an operator without a name")
        types: Any = {}
        if text[end : end + 1] == "{":
            types, end = decoder.raw_decode(text, end)
        yield name, types
        if text[end : end + 1] not in ("", ","):
            raise ValueError(f"expected a comma after {name[:80]}")
        position = end + 1


def _sides(types: Any) -> tuple[dict[int, set[str]], dict[int, set[str]]]:
    """`custom` triples (OneHot: inputs 0, 2 and 1) are read as the types of each input."""
    inputs = {int(position): set(names) for position, names in types.get("inputs", {}).items()}
    outputs = {int(position): set(names) for position, names in types.get("outputs", {}).items()}
    for triple in types.get("custom", []):
        for position, name in zip((0, 2, 1), triple, strict=True):
            inputs.setdefault(position, set()).add(name)
    return inputs, outputs


def _name(need: Operator) -> str:
    return f"{need.domain}:{need.name} (opset {need.opset})"


def _uncovered(path: Path, config_path: Path, operator_name: str) -> InputError:
    return InputError(
        f"{config_path.name} does not cover {path.name}: {operator_name} is missing",
        "use the config that was written when this .ort file was converted",
    )
