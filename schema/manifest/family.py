"""A model family: several graphs released as one manifest, and which class is answered by which of them.

The document checks what can be checked without opening a graph: `ModelFamily` alone that names, roles and routing fit each
other, `check_artifacts` that the tensor contracts of the artifacts do.
"""

from typing import Annotated, Literal

from pydantic import Field

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Document, FrozenDict, Items, RelPath, RuledDocument, Table, Text
from onnxreg.schema.manifest.family_rules import ClassesRules, MemberRules, ModelFamilyRules

Role = Literal["backbone", "head", "ood", "fused", "stage", "metadata"]
MEMBER_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"
MemberName = Annotated[str, Field(pattern=MEMBER_NAME)]

ClassId = Annotated[str, Field(min_length=1, max_length=200)]


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
