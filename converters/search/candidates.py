"""The candidates of a search: built-in and requested sequences of passes, and an estimate of their sizes."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.converters.evaluation.latency import Latency, Ratio
from onnxreg.converters.passes import models
from onnxreg.converters.passes.quantization import find_tables
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.inputs.recipe_file import SearchRequest

PRODUCTS = ("MatMul", "Gemm")
DYNAMIC = "OnnxDynamicQuantization"
SCALE_BITS = 32
INT8_ACTIVATIONS = 4
"""The `accuracy_level` with which MatMulNBits may round activations to int8."""
TABLES = "-embeddings"
"""The suffix in the names of candidates that also shrink embedding tables."""
MIXED, MIXED_BITS = ("mixed-int8", "mixed-stored8"), 8.1
"""The names of two mixed candidates, and a guess of their bits per weight.

A mixed candidate uses dynamic INT8 for the matrix products that tolerate it. The weights of all other products have 8
bits in blocks of 128. For these products, the first candidate rounds activations too, and the second does not.
"""
ALPHA = 0.6  # the share of the activations' range that smoothing moves into the weights
UNTRIED = "a smaller candidate passed"


class WeightBytes(NamedTuple):
    """The bytes of a file: float32 weights of matrix products, float32 embedding tables, everything else."""

    products: int
    tables: int
    remainder: int


@dataclass
class Candidate:
    """A sequence of passes to try, in JSON form `{pass, params, data?}`.

    `mark` is a part of the file's name. `bits` are the bits per weight of products, tables and other weights; None for
    a user's candidate. If `is_default` is False, the candidate is tried only if the user names it. A search sets the
    other fields. `state` is `failed` if a pass or the file does not work, `untried` if another candidate passed, and
    otherwise the verdict.
    """

    name: str
    passes: tuple[Mapping[str, Any], ...]
    mark: str = "small"
    bits: tuple[float, float, float] | None = None
    is_default: bool = True
    state: str = "untried"
    reasons: Sequence[str] = (UNTRIED,)
    file: Path = Path()
    latencies: Sequence[Latency] = ()
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def ratios(self) -> list[Ratio]:
        return [item.ratio for item in self.latencies if item.ratio is not None]

    @property
    def excess(self) -> float:
        losses = (
            (one["loss"], one["limit"]) for one in self.figures.get("metrics", ()) if one["loss"] is not None
        )
        return max(((loss - limit) / (abs(limit) or 1.0) for loss, limit in losses), default=inf)

    def record(self) -> dict[str, Any]:
        return {"candidate": self.name, "state": self.state, "reasons": list(self.reasons), **self.figures}

    def estimate(self, weights: WeightBytes) -> float:
        """Estimate the bytes of the result: 0 for a user's candidate, which is therefore tried first."""
        return sum(size * bits / 32 for size, bits in zip(weights, self.bits or (0, 0, 0), strict=True))

    def steps(self, start: str) -> list[dict[str, Any]]:
        """Return the recipe steps of this candidate. The first step has the input `start`."""
        steps = []
        for number, work in enumerate(self.passes, start=1):
            name = f"search-{self.name}" if len(self.passes) == 1 else f"search-{self.name}-{number}"
            steps.append({"name": name, "input": start, **work})
            start = name
        return steps


def pass_of(name: str, **params: Any) -> dict[str, Any]:
    return {"pass": name, "params": params}


SMOOTHING = (pass_of("SmoothQuant", alpha=ALPHA),)


def dynamic_except(groups: Sequence[Sequence[str]]) -> dict[str, Any]:
    return pass_of(DYNAMIC, nodes_to_exclude=sorted(name for group in groups for name in group))


def _blocks(bits: int, size: int, **more: Any) -> dict[str, Any]:
    symmetric = bits == 8
    return pass_of(
        "OnnxBlockWiseRtnQuantization", bits=bits, block_size=size, is_symmetric=symmetric, gemm=True, **more
    )


def built_in(calibration: str | None = None, head: str = "") -> Iterator[Candidate]:
    """Yield the built-in candidates. Static quantization needs `calibration`, a file with rows.

    `head` is the name of the last matrix product. Candidates that repeat what other tools do are not tried by default.
    """
    yield Candidate("fp16", (pass_of("OnnxFloatToFloat16"),), "fp16", (16, 16, 16))
    dynamic, tables = (
        pass_of(DYNAMIC, op_types_to_quantize=[*PRODUCTS, *more]) for more in ((), ("Gather",))
    )
    for prefix, before in {"": (), "smooth-": SMOOTHING}.items():
        yield Candidate(f"{prefix}int8", (*before, dynamic), "int8", (8, 32, 32))
        yield Candidate(f"{prefix}int8-int8{TABLES}", (*before, tables), "int8", (8, 8, 32))
    rows = ("int8", 8, pass_of("EmbeddingQuantization"))
    halves = ("fp16", 16, pass_of("OnnxFloatToFloat16", op_include_list=["Gather"]))
    four_bits = 4 + (SCALE_BITS + 4) / 32
    stored, coarse = (pass_of("WeightQuantization", block_size=size) for size in (32, 128))
    fine = {size: _blocks(8, size, accuracy_level=INT8_ACTIVATIONS) for size in (16, 32, 64, 128)}
    methods = [("weights4", "int4", four_bits, _blocks(4, 32), [rows])]
    for size in (32, 64, 128):
        methods.append((f"weights8-{size}", "int8", 8 + SCALE_BITS / size, _blocks(8, size), [rows, halves]))
    methods.append(("stored8-32", "int8", 8 + SCALE_BITS / 32, stored, [rows]))
    for name, work in zip(MIXED, (fine[128], coarse), strict=True):
        methods.append((name, "int8", MIXED_BITS, work, [rows]))
    for size, work in fine.items():
        methods.append((f"w8a8-{size}", "int8", 8 + SCALE_BITS / size, work, [rows]))
    for name, mark, bits, work, additions in methods:
        yield Candidate(name, (work,), mark, (bits, 32, 32))
        for kind, table_bits, addition in additions:
            yield Candidate(f"{name}-{kind}{TABLES}", (work, addition), mark, (bits, table_bits, 32))
    clipped = {"calibrate_method": "Percentile", "percentile": 99.99}
    ranges: dict[str, dict[str, Any]] = {"": {}, "-percentile": clipped, "-mse": {"calibrate_method": "MSE"}}
    for suffix, params in ranges.items() if calibration is not None else ():
        static = {**pass_of("OnnxStaticQuantization", **params), "data": calibration}
        yield Candidate(f"static-int8{suffix}", (static,), "int8", (8, 32, 32))
    optimized = pass_of("OrtTransformersOptimization", opt_level=1, only_onnxruntime=True)
    plain, channels = (pass_of("OrtDynamicQuantization", per_channel=one) for one in (False, True))
    body = (_blocks(4, 32, nodes_to_exclude=[head]), _blocks(8, 32))
    yield Candidate("weights4-int8-head", body, "int4", (four_bits, 32, 32), is_default=False)
    kernels = pass_of("WeightQuantization", op_types_to_quantize=[*PRODUCTS, "Conv", "ConvTranspose"])
    yield Candidate("stored8-kernels", (kernels,), "int8", (9, 32, 9), is_default=False)
    peers = {"ort-dynamic": (plain,), "olive-dynamic": (optimized, plain), "optimum-arm64": (channels,)}
    for name, passes in (peers | {"optimum-avx512-vnni": (channels,)}).items():
        yield Candidate(name, passes, "int8", (8, 8, 32), is_default=False)


def choose(request: SearchRequest, has_tables: bool, head: str) -> Iterator[Candidate]:
    """Yield the requested candidates. If none is named, yield the default candidates that fit the graph.

    `has_tables` is True if the graph has embedding tables. `head` is the name of its last matrix product. Raises
    InputError if a name is unknown or repeated.
    """
    own = {candidate.name: candidate for candidate in built_in(request.calibration, head)}
    usable = [
        one.name for one in own.values() if one.is_default and (has_tables or not one.name.endswith(TABLES))
    ]
    names = set()
    for choice in request.candidates or usable:
        name = choice if isinstance(choice, str) else choice.name
        if name in names:
            raise InputError(f"two candidates are called {name}", "give each a name of its own")
        names.add(name)
        if not isinstance(choice, str):
            works = (step.to_json().items() for step in choice.steps)
            passes = ({key: item for key, item in work if key not in ("name", "input")} for work in works)
            own[name] = Candidate(name, tuple(passes))
        elif name not in own:
            raise InputError(f"no candidate is called {name}", suggest(name, own))
        yield own[name]


def measure_weights(model: Any, size: int) -> WeightBytes:
    products = sum(value.const_value.nbytes for value in models.factors(model, PRODUCTS))
    tables = sum(value.const_value.nbytes for value in find_tables(model))
    return WeightBytes(products, tables, max(size - products - tables, 0))


def product_groups(model: Any) -> list[list[str]]:
    """Make groups of matrix products. A group has the products with one role, such as the queries of all layers.

    Returns the names of each group's products, the group with the largest weights first. Names in a group differ only
    in numbers: `/encoder/layer.0/query/MatMul`. If a product has no name, returns [].
    """
    groups, sizes = dict[str, list[str]](), Counter[str]()
    for node, weight in _products(model):
        if not node.name:
            return []
        key = re.sub(r"\d+", "#", f"{node.name} {weight.name}") + str(weight.shape)
        groups.setdefault(key, []).append(node.name)
        sizes[key] += weight.nbytes
    return [groups[key] for key, _ in sizes.most_common()]


def last_product(model: Any) -> str:
    """Return the name of the last product with a constant weight; "" if there is none."""
    return next((str(node.name) for node, _ in reversed([*_products(model)])), "")


def _products(model: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each product (`onnx_ir.Node`) with a constant weight, and the weight."""
    weights = models.factors(model, PRODUCTS)
    for node in model.graph:
        weight = next((value for value in node.inputs if value in weights), None)
        if node.op_type in PRODUCTS and weight is not None:
            yield node, weight.const_value
