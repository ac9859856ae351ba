"""The candidates of a search: lines of passes, and an estimate of their bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.onnx.elements import tensor_bytes
from onnxreg.converters.passes.tools.graph import factors
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.inputs.recipe_file import SearchCandidate, SearchRequest

PRODUCTS = ("MatMul", "Gemm")
FLOAT_BITS, HALF_BITS, BYTE_BITS = 32, 16, 8
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

    `mark` is put into the name of the file. `product_bits` and `table_bits` are bits of a weight of the result, None if
    unknown; `is_half` says that the rest of the file is halved too.
    """

    name: str
    passes: tuple[Mapping[str, Any], ...]
    mark: str = "small"
    product_bits: float | None = None
    table_bits: float | None = None
    is_half: bool = False

    def estimate(self, weights: WeightBytes) -> float:
        """Estimate the bytes of the result; 0 for a candidate of the user's own, which is then tried first."""
        if self.product_bits is None or self.table_bits is None:
            return 0.0
        remainder = weights.remainder / 2 if self.is_half else weights.remainder
        return (
            weights.products * self.product_bits / FLOAT_BITS
            + weights.tables * self.table_bits / FLOAT_BITS
            + remainder
        )

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
    candidates = [
        Candidate("fp16", (_pass("OnnxFloatToFloat16"),), "fp16", HALF_BITS, HALF_BITS, is_half=True),
        Candidate("int8", (_dynamic(*PRODUCTS),), "int8", BYTE_BITS, FLOAT_BITS),
        Candidate("weights4", (_blocks(4, 32),), "int4", 4 + (SCALE_BITS + 4) / 32, FLOAT_BITS),
        *(
            Candidate(f"weights8-{size}", (_blocks(8, size),), "int8", _bits(size), FLOAT_BITS)
            for size in (32, 64, 128)
        ),
    ]
    if calibration is not None:
        static = _pass("OnnxStaticQuantization", data=calibration)
        candidates.append(Candidate("static-int8", (static,), "int8", BYTE_BITS, FLOAT_BITS))
    if has_tables:
        rows = _pass("EmbeddingQuantization")
        halves = _pass("OnnxFloatToFloat16", op_include_list=["Gather"])
        candidates += [
            Candidate("int8-int8-embeddings", (_dynamic(*PRODUCTS, "Gather"),), "int8", BYTE_BITS, BYTE_BITS),
            Candidate(
                "weights4-int8-embeddings",
                (_blocks(4, 32), rows),
                "int4",
                4 + (SCALE_BITS + 4) / 32,
                BYTE_BITS,
            ),
        ]
        for size in (32, 64, 128):
            blocks = _blocks(8, size)
            candidates += [
                Candidate(f"weights8-{size}-int8-embeddings", (blocks, rows), "int8", _bits(size), BYTE_BITS),
                Candidate(
                    f"weights8-{size}-fp16-embeddings", (blocks, halves), "int8", _bits(size), HALF_BITS
                ),
            ]
    return candidates


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
            yield Candidate(name, tuple(_of_step(step.to_json()) for step in choice.steps))
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


def _of_step(step: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key not in ("name", "input")}


def _bits(block_size: int) -> float:
    return BYTE_BITS + SCALE_BITS / block_size


def _pass(name: str, data: str | None = None, **params: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"pass": name, "params": params}
    return value if data is None else {**value, "data": data}


def _dynamic(*operators: str) -> dict[str, Any]:
    return _pass("OnnxDynamicQuantization", op_types_to_quantize=list(operators))


def _blocks(bits: int, size: int) -> dict[str, Any]:
    return _pass(
        "OnnxBlockWiseRtnQuantization", bits=bits, block_size=size, is_symmetric=bits == 8, gemm=True
    )
