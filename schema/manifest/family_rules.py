"""The rules of a model family, without pydantic; see `rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest

if TYPE_CHECKING:
    from onnxreg.schema.manifest.family import Classes, Edge, Member, ModelFamily, Role, StackedHead

MAX_STAGES = 64
"""Stages of a pipeline: the index file lists the artifacts of each."""


def classes_digest(ids: Sequence[str]) -> Digest:
    """The SHA-256 of the canonical JSON array of class ids, in order."""
    return Digest.of(canonical.encode(list(ids)))


class ClassesRules:
    """The rules and properties of `family.Classes`."""

    if TYPE_CHECKING:
        ids: tuple[str, ...]
        digest: Digest

    def check_rules(self) -> None:
        if repeated := _repeated(self.ids):
            raise ValueError(f"class {repeated[:80]!r} is listed twice")
        if self.digest != classes_digest(self.ids):
            raise ValueError("digest is not that of ids: the classes are not in the order of training")


class MemberRules:
    """The rules and properties of `family.Member`."""

    if TYPE_CHECKING:
        name: str
        role: Role
        artifacts: tuple[str, ...]
        files: tuple[str, ...]
        classes: Classes | None
        heads: tuple[StackedHead, ...]

    def check_rules(self) -> None:
        if self.role == "metadata" and (self.artifacts or not self.files):
            raise ValueError(f"member {self.name} of role metadata has files and no artifacts")
        if self.role != "metadata" and not self.artifacts:
            raise ValueError(f"member {self.name} has no artifact")
        if self.role in ("backbone", "head") and self.classes is None:
            raise ValueError(f"member {self.name} does not say what its classes are")
        if bool(self.heads) != (self.role == "fused"):
            raise ValueError(f"member {self.name}: a fused graph names its heads, and nothing else does")


class ModelFamilyRules:
    """The rules and properties of `family.ModelFamily`."""

    if TYPE_CHECKING:
        members: tuple[Member, ...]
        edges: tuple[Edge, ...]
        routing: Mapping[str, str | None]

    def check_rules(self) -> None:
        if repeated := _repeated(member.name for member in self.members):
            raise ValueError(f"two members are called {repeated}")
        if self.stages:
            self._check_stages()
            return
        if len(self.of_role("backbone")) != 1:
            raise ValueError(f"a family has one backbone, this one {len(self.of_role('backbone'))}")
        self._check_routing()
        self._check_edges()
        for fused in self.of_role("fused"):
            self._check_fused(fused)

    @property
    def backbone(self) -> Member:
        return self.of_role("backbone")[0]

    @property
    def stages(self) -> list[Member]:
        """The members of a pipeline that have artifacts; none of another family."""
        return self.of_role("stage")

    @property
    def entries(self) -> list[Member]:
        """The members that an app asks for first: the backbone, or every stage."""
        return self.stages or self.of_role("backbone")

    def of_role(self, role: Role) -> list[Member]:
        """The members of a role, in the family's order."""
        return [member for member in self.members if member.role == role]

    def member(self, name: str) -> Member | None:
        """The member of this name."""
        return next((member for member in self.members if member.name == name), None)

    def _check_stages(self) -> None:
        if others := [member.name for member in self.members if member.role not in ("stage", "metadata")]:
            raise ValueError(f"member {others[0]} is not a stage, and the others are")
        if self.edges or self.routing:
            raise ValueError("stages have neither edges nor routing")
        if len(self.stages) > MAX_STAGES:
            raise ValueError(f"a pipeline has at most {MAX_STAGES} stages, this one {len(self.stages)}")

    def _check_routing(self) -> None:
        classes = set(self.backbone.classes.ids) if self.backbone.classes else set()
        heads = {member.name for member in self.of_role("head")}
        if missing := sorted(classes - self.routing.keys()):
            raise ValueError(f"class {missing[0][:80]} has neither a head nor a null in routing")
        if unrelated := sorted(self.routing.keys() - classes):
            raise ValueError(
                f"routing speaks of class {unrelated[0][:80]}, which {self.backbone.name} does not have"
            )
        routed = {head for head in self.routing.values() if head is not None}
        if unknown := sorted(routed - heads):
            raise ValueError(f"routing names {unknown[0]}, which is not a head of this family")
        if orphans := sorted(heads - routed):
            raise ValueError(f"member {orphans[0]} is an orphan: no class is routed to it")

    def _check_edges(self) -> None:
        names = {member.name for member in self.members}
        for edge in self.edges:
            if edge.source not in names:
                raise ValueError(f"an edge comes from {edge.source}, which is not a member")
            if not self.of_role(edge.target):
                raise ValueError(f"an edge leads to the role {edge.target}, which no member has")
        fed = {edge.target for edge in self.edges}
        for member in self.members:
            if member.role not in ("backbone", "metadata") and member.role not in fed:
                raise ValueError(f"member {member.name} is fed by no edge")

    def _check_fused(self, fused: Member) -> None:
        stacked, heads = [head.member for head in fused.heads], self.of_role("head")
        if repeated := _repeated(stacked):
            raise ValueError(f"member {fused.name} stacks {repeated} twice")
        if different := sorted({member.name for member in heads} ^ set(stacked)):
            raise ValueError(
                f"member {fused.name} does not stack exactly the heads: {different[0]} is on one side only"
            )


Tensor = tuple[str, tuple[int | None, ...]]
"""An input or output: its type, and the size of each axis, None if that is dynamic."""


class Graph(NamedTuple):
    """The part of an artifact that a family needs: its digest, and its inputs and outputs by name."""

    digest: Digest
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


def check_artifacts(family: ModelFamily, graphs: Mapping[str, Graph], files: Collection[str]) -> None:
    """Raise ValueError, naming the member, if a family does not fit the artifacts and companion files of its manifest.

    Every artifact belongs to exactly one member; the classes are as many as their output has columns; both ends of an edge
    have the same type and sizes, in every variant; a fused graph was stacked from heads that are there.

    Args:
        graphs: the artifacts by path.
        files: the paths of the companions.
    """
    owned = _owned(family, graphs.keys(), files)
    if orphans := sorted(graphs.keys() - owned):
        raise ValueError(f"artifact {orphans[0][:80]} belongs to no member of the family")
    digests = {member.name: {graphs[path].digest for path in member.artifacts} for member in family.members}
    for member in family.members:
        if member.classes is not None:
            _check_width(member, member.classes, graphs)
        for head in member.heads:
            if head.digest not in digests[head.member]:
                raise ValueError(
                    f"member {member.name} was stacked from another {head.member} than is in this manifest"
                )
    for edge in family.edges:
        _check_edge(edge, family, graphs)


def _owned(family: ModelFamily, artifacts: Collection[str], files: Collection[str]) -> set[str]:
    owned: set[str] = set()
    companions = set(files)
    for member in family.members:
        for kind, paths, allowed in (
            ("artifact", member.artifacts, artifacts),
            ("file", member.files, companions),
        ):
            for path in paths:
                if path not in allowed:
                    raise ValueError(
                        f"member {member.name} names {path[:80]}, which is not among the {kind}s of this manifest"
                    )
                if path in owned:
                    raise ValueError(f"member {member.name} names {path[:80]}, which another member has")
                owned.add(path)
    return owned


def _check_width(member: Member, classes: Classes, graphs: Mapping[str, Graph]) -> None:
    for path in member.artifacts:
        _, dims = _tensor(member, path, "output", classes.output, graphs)
        if not dims or dims[-1] != len(classes.ids):
            columns = dims[-1] if dims else None
            raise ValueError(
                f"member {member.name} has {len(classes.ids)} classes, and {classes.output} of {path} "
                f"{'no fixed number of' if columns is None else columns} columns"
            )


def _check_edge(edge: Edge, family: ModelFamily, graphs: Mapping[str, Graph]) -> None:
    source = family.member(edge.source)
    assert source is not None
    produced = {_tensor(source, path, "output", edge.output, graphs) for path in source.artifacts}
    for member in family.of_role(edge.target):
        for path in member.artifacts:
            accepted = _tensor(member, path, "input", edge.input, graphs)
            if unlike := sorted(produced - {accepted}, key=repr):
                raise ValueError(
                    f"member {member.name}: {edge.input} of {path} is {_shown(accepted)}, and "
                    f"{edge.output} of {edge.source} {_shown(unlike[0])}"
                )


def _tensor(member: Member, path: str, side: str, name: str, graphs: Mapping[str, Graph]) -> Tensor:
    """The input or output of this name of one variant of a member."""
    tensor = (graphs[path].inputs if side == "input" else graphs[path].outputs).get(name)
    if tensor is None:
        raise ValueError(f"member {member.name}: {path} has no {side} called {name[:80]}")
    return tensor


def _shown(tensor: Tensor) -> str:
    dtype, dims = tensor
    return f"{dtype}[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)
