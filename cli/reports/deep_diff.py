"""`reg diff --deep`: the files of two versions, fetched for a moment and opened."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxreg.cli.errors import needs
from onnxreg.cli.render import output
from onnxreg.schema.compare.graphs import DeepDiff
from onnxreg.schema.compare.manifests import artifact_pairs
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.units import measure
from onnxreg.schema.manifest.manifest import Artifact

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import Release
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.schema.core.progress import Progress

SAME = "the semantic digests are equal: same graph and weights"
OTHER_KIND = "the files are of different kinds, or of one that cannot be opened"
SUFFIXES = (".onnx", ".ort")
FEW = 10
"""Tensors and nodes that people are shown of each artifact."""


@dataclass(frozen=True)
class DiffSide:
    """A version, and where it was read."""

    reader: "RegistryReader"
    version: "Release"


def open_pairs(old: DiffSide, new: DiffSide, progress: "Progress") -> list[DeepDiff]:
    """Compare the insides of each pair of artifacts whose bytes differ; only their files are fetched."""
    pairs = artifact_pairs(old.version.manifest, new.version.manifest)
    return [
        _open(name, old, one, new, other, progress)
        for name, (one, other) in pairs.items()
        if one is not None and other is not None and _bytes(one) != _bytes(other)
    ]


def _bytes(artifact: Artifact) -> list[object]:
    return [file.digest for file in artifact.all_files() if file.role in ("artifact", "external-data")]


def _open(
    name: str, old: DiffSide, one: Artifact, new: DiffSide, other: Artifact, progress: "Progress"
) -> DeepDiff:
    from onnxreg.registry.transfer.export_files import fetched

    if one.semantic is not None and one.semantic == other.semantic:
        return DeepDiff(artifact=name, graph=None, why_not=SAME)
    if not any(one.path.endswith(suffix) and other.path.endswith(suffix) for suffix in SUFFIXES):
        return DeepDiff(artifact=name, graph=None, why_not=OTHER_KIND)
    with needs("onnx", "reg diff --deep"), ExitStack() as stack:
        from onnxreg.converters.onnx.compare_files import compare_models

        paths = [
            stack.enter_context(fetched(side.reader, artifact, side.version.held, progress))
            for side, artifact in ((old, one), (new, other))
        ]
        try:
            return DeepDiff(artifact=name, graph=compare_models(*paths))
        except InputError as error:
            return DeepDiff(artifact=name, graph=None, why_not=error.message)


def lines(deep: list[DeepDiff]) -> Iterator[str]:
    """The differences as text; of many tensors and nodes only the first."""
    for pair in deep:
        yield from ("", f"inside {output.printable(pair.artifact)}")
        if pair.graph is None:
            yield f"  {output.printable(pair.why_not or '')}"
            continue
        graph = pair.graph
        yield f"  equal: {output.counted(graph.equal_tensors, 'tensor')}, {output.counted(graph.equal_nodes, 'node')}"
        for fact in graph.facts:
            old, new = ("absent" if side is None else f'"{side}"' for side in (fact.old, fact.new))
            yield output.printable(f"  {fact.name}: {old} -> {new}")
        tensors = [
            (
                f"  tensor {item.change}",
                item.name,
                *map(measure, (item.max_abs, item.relative_l2)),
                "dequantized" if item.dequantized else "",
            )
            for item in graph.tensors
        ]
        yield from output.table(("  CHANGE", "TENSOR", "MAX ABS", "RELATIVE L2", ""), tensors[:FEW])
        yield from _more(len(tensors))
        nodes = [
            (f"  node {item.change}", item.operator, item.name, ", ".join(item.what)) for item in graph.nodes
        ]
        yield from output.table(("  CHANGE", "OPERATOR", "NODE", "IN"), nodes[:FEW])
        yield from _more(len(nodes))


def _more(count: int) -> Iterator[str]:
    if count > FEW:
        yield f"  and {count - FEW} more: --json has all"
