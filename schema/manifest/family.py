"""A model family: a manifest with several graphs that work together. The graphs are members of the family.

In one kind of family, an app runs a backbone, which predicts a class, and then the head that was made for this class.
The other kind is a pipeline, such as a detector and a recognizer: its members are stages.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_MEMBERS, MAX_STAGES
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.document import Document, Items, RelPath, Table, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.vocabulary import Tensor

Role = Literal["backbone", "head", "ood", "stage", "metadata"]
MEMBER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"
MemberName = Annotated[str, Field(pattern=MEMBER_NAME)]
ClassId = Annotated[str, Field(min_length=1, max_length=200)]
MEMBERS_ADVICE = "files of one model are alternatives; name graphs that work together: --member NAME=FILE"

Graph = tuple[Mapping[str, Tensor], Mapping[str, Tensor]]  # inputs and outputs, each by name


class Classes(Document):
    """The class ids of a classifier, in the order of the last axis of its output `output`.

    `digest` was recorded at training. It must equal `classes_digest(ids)`, which shows that `ids` are in the order of
    training.
    """

    output: Text
    ids: Annotated[Items[ClassId], Field(min_length=1, max_length=100_000)]
    digest: Digest

    @model_validator(mode="after")
    def _check(self) -> Self:
        if repeated := _repeated(self.ids):
            raise ValueError(f"class {repeated[:80]!r} is listed twice")
        if self.digest != classes_digest(self.ids):
            raise ValueError("digest is not that of ids: the classes are not in the order of training")
        return self


def classes_digest(ids: Sequence[str]) -> Digest:
    """Encode class ids, in their order, as a canonical JSON array, and return the SHA-256 of its bytes."""
    return Digest.of(canonical.encode(list(ids)))


class Member(Document):
    """One graph of a family, as artifacts in several precisions. A member of role `metadata` has `files` instead."""

    name: MemberName
    role: Role
    artifacts: Items[RelPath] = ()
    files: Items[RelPath] = ()
    classes: Classes | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.role == "metadata" and (self.artifacts or not self.files):
            raise ValueError(f"member {self.name} of role metadata has files and no artifacts")
        if self.role != "metadata" and not self.artifacts:
            raise ValueError(f"member {self.name} has no artifact")
        if self.role in ("backbone", "head") and self.classes is None:
            raise ValueError(f"member {self.name} does not say what its classes are")
        return self


class Edge(Document):
    """A connection between graphs: the output `output` of the member `source` is passed as the input `input` to each
    member with the role `target`.
    """

    source: MemberName
    output: Text
    target: Role
    input: Text


class ModelFamily(Document):
    """The members of a family, and the edges between their graphs.

    `routing` maps each class id of the backbone to the name of its head, or to null. A pipeline has only stages. It has
    no backbone, edges or routing.
    """

    members: Annotated[Items[Member], Field(min_length=1, max_length=MAX_MEMBERS)]
    edges: Annotated[Items[Edge], Field(max_length=64)] = ()
    routing: Table[MemberName | None] = {}

    @property
    def stages(self) -> list[Member]:
        return self.of_role("stage")

    def of_role(self, role: Role) -> list[Member]:
        return [member for member in self.members if member.role == role]

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if repeated := _repeated(member.name for member in self.members):
            raise ValueError(f"two members are called {repeated}")
        if fault := next(self._stage_faults() if self.stages else self._routing_faults(), None):
            raise ValueError(fault)
        return self

    def _stage_faults(self) -> Iterator[str]:
        others = (member.name for member in self.members if member.role not in ("stage", "metadata"))
        yield from (f"member {name} is not a stage, and the others are" for name in others)
        if self.edges or self.routing:
            yield "stages have neither edges nor routing"
        if len(self.stages) > MAX_STAGES:
            yield f"a pipeline has at most {MAX_STAGES} stages, this one {len(self.stages)}"

    def _routing_faults(self) -> Iterator[str]:
        if len(self.of_role("backbone")) != 1:
            yield f"a family has one backbone, this one {len(self.of_role('backbone'))}"
        backbone = self.of_role("backbone")[0]
        classes = set(backbone.classes.ids if backbone.classes else ())
        heads = {member.name for member in self.of_role("head")}
        routed = {head for head in self.routing.values() if head is not None}
        if missing := sorted(classes - self.routing.keys()):
            yield f"class {missing[0][:80]} has neither a head nor a null in routing"
        if unrelated := sorted(self.routing.keys() - classes):
            yield f"routing speaks of class {unrelated[0][:80]}, which {backbone.name} does not have"
        if unknown := sorted(routed - heads):
            yield f"routing names {unknown[0]}, which is not a head of this family"
        if orphans := sorted(heads - routed):
            yield f"member {orphans[0]} is an orphan: no class is routed to it"
        for edge in self.edges:
            if self.member(edge.source) is None:
                yield f"an edge comes from {edge.source}, which is not a member"
            if not self.of_role(edge.target):
                yield f"an edge leads to the role {edge.target}, which no member has"
        fed = {"backbone", "metadata", *(edge.target for edge in self.edges)}
        yield from (f"member {item.name} is fed by no edge" for item in self.members if item.role not in fed)


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def pipeline_of(members: Mapping[str, str]) -> dict[str, Any]:
    """Make the `model_family` of a pipeline, as JSON. `members` maps an artifact's path to the name of its stage."""
    paths: dict[str, list[str]] = {}
    for path, name in members.items():
        paths.setdefault(name, []).append(path)
    return {"members": [{"name": name, "role": "stage", "artifacts": item} for name, item in paths.items()]}


def check_member(name: str) -> str:
    """Return a member's name unchanged. Raise InputError if it is malformed."""
    if re.fullmatch(MEMBER_NAME, name) is None:
        hint = "letters, digits, dots, dashes and underscores"
        raise InputError(f"{name[:80]!r} cannot be the name of a member", hint)
    return name


def check_alternatives(graphs: Mapping[str, Graph], hint: str = MEMBERS_ADVICE) -> None:
    """Raise InputError if two of the graphs cannot replace each other. The error names the two files. The keys of
    `graphs` are paths.

    Inputs and outputs must have equal names, ranks and kinds of numbers. Sizes and float types may differ.
    """
    for (path, graph), (other_path, other_graph) in combinations(graphs.items(), 2):
        for side, tensors, other_tensors in zip(("input", "output"), graph, other_graph, strict=True):
            if difference := _difference(tensors, other_tensors):
                raise InputError(f"{path} and {other_path} are not alternatives: {side} {difference}", hint)


def _difference(tensors: Mapping[str, Tensor], other_tensors: Mapping[str, Tensor]) -> str:
    if alone := sorted(tensors.keys() ^ other_tensors.keys()):
        return f"{alone[0][:80]} is in one of them only"
    for name, (dtype, dims) in tensors.items():
        other_dtype, other_dims = other_tensors[name]
        if len(dims) != len(other_dims):
            return f"{name[:80]} has {len(dims)} axes in one and {len(other_dims)} in the other"
        kinds = {"float" if "float" in kind or kind == "double" else kind for kind in (dtype, other_dtype)}
        if len(kinds) > 1:
            return f"{name[:80]} is {dtype} in one and {other_dtype} in the other"
    return ""
