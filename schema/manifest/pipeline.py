"""Graphs that work together under names, such as a detector and a recognizer: a family of stages."""

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.manifest.family import MEMBER_NAME
from onnxreg.schema.manifest.family_rules import Graph, Tensor

MEMBERS_ADVICE = Advice("name-members")


def pipeline_of(members: Mapping[str, str]) -> dict[str, Any]:
    """`model_family` of a manifest for artifacts whose member is given by path."""
    paths: dict[str, list[str]] = {}
    for path, name in members.items():
        paths.setdefault(name, []).append(path)
    return {"members": [{"name": name, "role": "stage", "artifacts": item} for name, item in paths.items()]}


def check_member(name: str) -> str:
    """The name, if a member can have it; else InputError."""
    if re.fullmatch(MEMBER_NAME, name) is None:
        raise InputError(
            f"{name[:80]!r} cannot be the name of a member", "letters, digits, dots, dashes and underscores"
        )
    return name


def check_alternatives(graphs: Mapping[str, Graph], hint: str | Advice = MEMBERS_ADVICE) -> None:
    """InputError, naming two files, if one graph cannot take the place of another.

    Alternatives have inputs and outputs of the same names, ranks and kinds of numbers. Float types may differ, and so may
    sizes: a variant may be of fixed shape.
    """
    for (path, first), (other_path, second) in combinations(graphs.items(), 2):
        sides = (("input", first.inputs, second.inputs), ("output", first.outputs, second.outputs))
        for side, tensors, other_tensors in sides:
            if difference := _difference(tensors, other_tensors):
                raise InputError(f"{path} and {other_path} are not alternatives: {side} {difference}", hint)


def _difference(tensors: Mapping[str, Tensor], other_tensors: Mapping[str, Tensor]) -> str:
    """The first tensor that the two sides do not agree on, in words; "" if they agree."""
    if alone := sorted(tensors.keys() ^ other_tensors.keys()):
        return f"{alone[0][:80]} is in one of them only"
    return next(_unlike(tensors, other_tensors), "")


def _unlike(tensors: Mapping[str, Tensor], other_tensors: Mapping[str, Tensor]) -> Iterator[str]:
    for name, (dtype, dims) in tensors.items():
        other_dtype, other_dims = other_tensors[name]
        if len(dims) != len(other_dims):
            yield f"{name[:80]} has {len(dims)} axes in one and {len(other_dims)} in the other"
        elif _kind(dtype) != _kind(other_dtype):
            yield f"{name[:80]} is {dtype} in one and {other_dtype} in the other"


def _kind(dtype: str) -> str:
    return "float" if "float" in dtype or dtype == "double" else dtype
