"""The step that writes golden vectors beside a graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.converters.passes.base import Pass, PassParams
from onnxreg.converters.runtime import golden
from onnxreg.schema.core.errors import ConversionError


@dataclass(frozen=True)
class Outputs:
    """The inputs and outputs of a graph by case (numpy arrays by name)."""

    graph: Path
    inputs: Mapping[str, golden.Tensors]
    outputs: Mapping[str, golden.Tensors]


class Vectors(NamedTuple):
    """The file that was written, and the cases that it was written from."""

    path: Path
    cases: tuple[golden.GoldenCase, ...]


class GoldenParams(PassParams):
    """`tolerance` is a share of the largest output, and of the expected value; `least` is a lower bound of the absolute tolerance.

    `least` is in units of the output: the artifact's own distance from full precision. Dynamic quantization turns a last
    bit that another CPU adds up otherwise into a step of the quantization, so no stricter test would be fair.
    """

    tolerance: float
    least: float = 0.0


class GoldenVectors(Pass[Outputs, Vectors]):
    """Write an artifact's own outputs in ONNX Runtime on the CPU, as the reference for other runtimes."""

    id = "golden-vectors"
    version = 1
    takes = "outputs"
    Params = GoldenParams

    def apply(self, subject: Outputs) -> Vectors:
        arrays: dict[str, list[Any]] = {}
        for name, array in (item for outputs in subject.outputs.values() for item in outputs.items()):
            arrays.setdefault(name, []).append(array)
        bounds = self.params.tolerance, self.params.least
        tolerances = {name: golden.tolerance_of(arrays[name], *bounds) for name in sorted(arrays)}
        cases = tuple(
            golden.GoldenCase(case, inputs, subject.outputs[case], tolerances)
            for case, inputs in subject.inputs.items()
        )
        path = subject.graph.with_name(f"{subject.graph.name}.golden.json")
        path.write_bytes(golden.encode(cases))
        return Vectors(path, cases)

    def ensures(self, before: Mapping[str, Any], after: Vectors) -> dict[str, Any]:
        """The file, read back, holds what the graph gave."""
        path, cases = after
        written = golden.decode(path.read_bytes(), path.name)
        pairs = zip(written, cases, strict=True)
        comparisons = [item for case, computed in pairs for item in golden.compare(case, computed.outputs)]
        if not all(item.passed for item in comparisons):
            raise ConversionError(f"{path.name} does not hold what the graph gave")
        tolerances = {item.output: item.tolerance.atol for item in comparisons}
        return {"cases": len(written), "values": sum(item.values for item in comparisons), "atol": tolerances}
