"""The differences that `reg diff --deep` reports inside two model files."""

from typing import Literal

from onnxreg.schema.core.document import Count, Document, Items


class FactChange(Document):
    """Something that a file says of itself: an input, an opset, its producer. Null if a side does not say it."""

    name: str
    old: str | None
    new: str | None


class TensorForm(Document):
    """`dtype` is numpy's name."""

    name: str
    dtype: str
    dims: Items[int]


class TensorChange(Document):
    """A stored tensor that is on one side only, or differs.

    `renamed`: the same values under another name. `max_abs` is the largest difference of two elements, `relative_l2` the
    length of the difference in parts of the old tensor's; null if types or shapes cannot be subtracted, or the old tensor
    is all zero. `dequantized`: both were measured on the dequantized values.
    """

    change: Literal["added", "removed", "renamed", "changed", "retyped", "reshaped"]
    old: TensorForm | None
    new: TensorForm | None
    max_abs: float | None = None
    relative_l2: float | None = None
    dequantized: bool = False

    @property
    def name(self) -> str:
        form = self.new or self.old
        return form.name if form else ""


class NodeChange(Document):
    """A node that is on one side only, or differs in `what`: `operator`, `inputs`, or the names of attributes.

    `name` is that of its first output, which tells the nodes of a graph apart.
    """

    change: Literal["added", "removed", "changed"]
    name: str
    operator: str
    what: Items[str] = ()


class GraphDiff(Document):
    """The differences of two model files; `equal_*` count what is the same in both."""

    facts: Items[FactChange]
    tensors: Items[TensorChange]
    equal_tensors: Count
    nodes: Items[NodeChange]
    equal_nodes: Count


class DeepDiff(Document):
    """One pair of artifacts; `graph` is null if the semantic digests say that the files compute the same.

    `artifact` is the name that the diff has for it, `why_not` the reason if the files cannot be compared.
    """

    artifact: str
    graph: GraphDiff | None
    why_not: str | None = None
