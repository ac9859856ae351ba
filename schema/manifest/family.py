"""A model family: several graphs released as one manifest, and which class is answered by which of them.

Graphs that work together under names, such as a detector and a recognizer, are a family of stages: `pipeline_of`.

The document checks what can be checked without opening a graph: `ModelFamily` alone that names, roles and routing fit each
other, `check_artifacts` that the tensor contracts of the artifacts do.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, Literal

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Document, FrozenDict, Items, RelPath, RuledDocument, Table, Text
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.manifest.family_rules import ClassesRules, Graph, MemberRules, ModelFamilyRules, Tensor

Role = Literal["backbone", "head", "ood", "fused", "stage", "metadata"]
MEMBER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"
MemberName = Annotated[str, Field(pattern=MEMBER_NAME)]

ClassId = Annotated[str, Field(min_length=1, max_length=200)]
MEMBERS_ADVICE = Advice("name-members")


class Classes(ClassesRules, RuledDocument):
    """The meaning of the last axis of the output `output`, in order.

    `digest` is `classes_digest` of the list in the order of training, as recorded with the checkpoint.
    """

    output: Text
    ids: Annotated[Items[ClassId], Field(min_length=1, max_length=100_000)]
    digest: Digest


class StackedHead(Document):
    """A head that was stacked into a fused graph: the member, and the digest of its artifact that was read."""

    member: MemberName
    digest: Digest


class Member(MemberRules, RuledDocument):
    """One graph of a family with its variants (`artifacts`, by path), or files about it (`files`, by path).

    `heads` of a fused graph are the heads in the order of its index input.
    """

    name: MemberName
    role: Role
    artifacts: Items[RelPath] = ()
    files: Items[RelPath] = ()
    classes: Classes | None = None
    heads: Items[StackedHead] = ()


class Edge(Document):
    """The output of the member `source` that is the input `input` of every member of the role `target`."""

    source: MemberName
    output: Text
    target: Role
    input: Text


class ModelFamily(ModelFamilyRules, RuledDocument):
    """The members of a family, their connections, and the head of each class of the backbone.

    `routing` maps every class id of the backbone to the name of its head, or to null if it deliberately has
    none. A family of stages is a pipeline: named graphs that an app runs together, without backbone, edges
    and routing.
    """

    members: Annotated[Items[Member], Field(min_length=1, max_length=10_000)]
    edges: Annotated[Items[Edge], Field(max_length=64)] = ()
    routing: Table[MemberName | None] = Field(default_factory=FrozenDict)


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
