"""The candidates of a search: lines of passes, and an estimate of their bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.onnx.elements import tensor_bytes
from onnxreg.converters.passes.tools.graph import factors
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.inputs.recipe_file import SearchCandidate, SearchRequest

PRODUCTS = ("MatMul", "Gemm")
SCALE_BITS = 32
"""Bits of the scale of a block of weights."""
PREFIX = "search-"
"""Prefix of the names of a candidate's steps."""


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of a graph's float32 weights: of products, of embedding tables, and of the remainder of the file."""

    products: int
    tables: int
    remainder: int


@dataclass(frozen=True)
class Candidate:
    """A line of passes in JSON form, `{pass, params, data?}`, each taking the result of the one before.

    `mark` is put into the name of the file. `bits` are those of a weight of the result in products, in tables and in the
    remainder; none of a candidate of the user's own.
    """

    name: str
    passes: tuple[Mapping[str, Any], ...]
    mark: str = "small"
    bits: tuple[float, float, float] | None = None

    def estimate(self, weights: WeightBytes) -> float:
        """Estimate the bytes of the result; 0 for a candidate of the user's own, which is then tried first."""
        parts = (weights.products, weights.tables, weights.remainder)
        return sum(size * bits / 32 for size, bits in zip(parts, self.bits or (0, 0, 0), strict=True))

    def steps(self, start: str) -> list[dict[str, Any]]:
        """The recipe steps of this candidate, which begins with the result of the step `start`."""
        steps = []
        for number, work in enumerate(self.passes, start=1):
            name = f"{PREFIX}{self.name}" if len(self.passes) == 1 else f"{PREFIX}{self.name}-{number}"
            steps.append({"name": name, "input": start, **work})
            start = name
        return steps


def library(has_tables: bool, calibration: str | None) -> list[Candidate]:
    """The program's own candidates. Those that quantize embedding tables are left out for a graph without any.

    Args:
        calibration: rows for static quantization; left out without.
    """
    rows, halves = (_pass("EmbeddingQuantization"), _pass("OnnxFloatToFloat16", op_include_list=["Gather"]))
    four, four_bits = _blocks(4, 32), 4 + (SCALE_BITS + 4) / 32
    plain = [
        Candidate("fp16", (_pass("OnnxFloatToFloat16"),), "fp16", (16, 16, 16)),
        Candidate("int8", (_dynamic(*PRODUCTS),), "int8", (8, 32, 32)),
        Candidate("weights4", (four,), "int4", (four_bits, 32, 32)),
    ]
    tables = [
        Candidate("int8-int8-embeddings", (_dynamic(*PRODUCTS, "Gather"),), "int8", (8, 8, 32)),
        Candidate("weights4-int8-embeddings", (four, rows), "int4", (four_bits, 8, 32)),
    ]
    for size in (32, 64, 128):
        name, blocks, bits = f"weights8-{size}", _blocks(8, size), 8 + SCALE_BITS / size
        plain.append(Candidate(name, (blocks,), "int8", (bits, 32, 32)))
        tables.append(Candidate(f"{name}-int8-embeddings", (blocks, rows), "int8", (bits, 8, 32)))
        tables.append(Candidate(f"{name}-fp16-embeddings", (blocks, halves), "int8", (bits, 16, 32)))
    if calibration is not None:
        static = _pass("OnnxStaticQuantization", data=calibration)
        plain.append(Candidate("static-int8", (static,), "int8", (8, 32, 32)))
    return plain + tables if has_tables else plain


def choose(request: SearchRequest, has_tables: bool) -> Iterator[Candidate]:
    """Yield the candidates that a request asks for, in its order.

    Raises InputError for a name that is unknown, or two candidates of one name.
    """
    own = {candidate.name: candidate for candidate in library(True, request.calibration)}
    usable = {candidate.name for candidate in library(has_tables, request.calibration)}
    names = set()
    for choice in request.candidates or tuple(own):
        name = choice.name if isinstance(choice, SearchCandidate) else choice
        if name in names:
            raise InputError(f"two candidates are called {name}", "give each a name of its own")
        names.add(name)
        if isinstance(choice, SearchCandidate):
            steps = (step.to_json() for step in choice.steps)
            own_steps = (
                {key: value for key, value in step.items() if key not in ("name", "input")} for step in steps
            )
            yield Candidate(name, tuple(own_steps))
        elif name not in own:
            raise InputError(f"no candidate is called {name}", suggest(name, own))
        elif name in usable or request.candidates:
            yield own[name]


def measure_weights(graph: Any, size: int) -> WeightBytes:
    """Measure the constant weights of a graph (`onnx.ModelProto`) in a file of `size` bytes."""
    weights = factors(graph, frozenset(PRODUCTS))
    products = sum(tensor_bytes(tensor) for tensor in weights.values())
    read = {node.input[0] for node in graph.graph.node if node.op_type == "Gather"}
    tables = sum(
        tensor_bytes(tensor)
        for tensor in graph.graph.initializer
        if tensor.name in read and tensor.data_type == tensor.FLOAT and len(tensor.dims) == 2
    )
    return WeightBytes(products, tables, max(size - products - tables, 0))


def _pass(name: str, data: str | None = None, **params: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"pass": name, "params": params}
    return value if data is None else {**value, "data": data}


def _dynamic(*operators: str) -> dict[str, Any]:
    return _pass("OnnxDynamicQuantization", op_types_to_quantize=list(operators))


def _blocks(bits: int, size: int) -> dict[str, Any]:
    return _pass(
        "OnnxBlockWiseRtnQuantization", bits=bits, block_size=size, is_symmetric=bits == 8, gemm=True
    )
