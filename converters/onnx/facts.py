"""Facts read from an artifact itself: contract, operators, opsets, weights, and the KV cache of a decoder."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx import onnx_graph, ort_file
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.graph_operators import (
    DEFAULT_DOMAIN,
    contrib_needs,
    element_of,
    operators,
    qualified_name,
)
from onnxreg.converters.onnx.semantic import free_inputs, semantic_digest, stored_tensors
from onnxreg.converters.onnx.tensors import ELEMENTS, FLOATS, QUANTIZED, dims_of, is_numeric
from onnxreg.converters.source.source_files import CONFIG, GENAI_CONFIG, read_json
from onnxreg.schema.core.errors import about
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.parts import Operator, SemanticDigest, TensorSpec, WeightCount

if TYPE_CHECKING:
    import onnx_ir as ir

LABEL_OUTPUT = "logits"
"""The output of a classifier. Its static last axis counts the labels, and gets the name `labels` in a contract."""
_KINDS = {"SequenceType": "sequence", "OptionalType": "optional", "SparseTensorType": "sparse_tensor"}
"""Names in a contract for the types of onnx_ir that are not tensors."""
WEIGHTS_ONLY = "int8-weights"
"""The precision of a graph that multiplies 8-bit weights with floating-point activations."""
MINOR_SHARE = 0.01
"""The least share of the weight bytes with which a second floating-point type makes a graph `mixed`."""
PAST_INPUT = re.compile(r"past_key_values\.\d+\.(key|value)")
_SCALES = {
    "DequantizeLinear": (1, 2),
    "QuantizeLinear": (1, 2),
    "MatMulInteger": (2, 3),
    "ConvInteger": (2, 3),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "DynamicQuantizeMatMul": (2, 3),
    "MatMulIntegerToFloat": (2, 3, 4, 5),
    "MatMulNBits": (2, 3),
    "MatMulBnb4": (2,),
    "GatherBlockQuantized": (2, 3),
    "QMoE": (3, 6, 9),
}
"""Positions of operands that hold scales and zero points: these may have any rank, but are never weights."""
_INT8_ACTIVATIONS = 4
"""The `accuracy_level` that lets the runtime round activations to int8."""
_PACKED = frozenset({"MatMulNBits", "GatherBlockQuantized"})
"""Operators whose uint8 weights hold several elements of `bits` bits each (4 unless stated)."""


@dataclass(frozen=True)
class GraphFacts:
    """The facts of a model file, read from the file itself.

    `operators` are sorted and have opsets and element types; `operator_names` are in first-seen order; both include
    subgraphs and local functions. For `contrib` see `schema/query/runtimes.py`. `external_data` are paths relative to
    the file's folder, `ort_format` is None for ONNX, `precision` is the precision of the weights (`count_weights`).
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    operators: tuple[Operator, ...]
    operator_names: tuple[str, ...]
    contrib: tuple[str, ...]
    opset_imports: dict[str, int]
    ir_version: int
    ort_format: int | None
    external_data: tuple[str, ...]
    weights: WeightCount
    precision: str
    semantic: SemanticDigest

    @property
    def opset(self) -> int | None:
        """The version of the default domain; None if the graph does not import it."""
        return self.opset_imports.get(DEFAULT_DOMAIN)

    @property
    def format(self) -> str:
        """The format name that the file's content gives: `ort`, `onnx-int8`, `onnx-int4` or `onnx`."""
        kind = weight_type(self.precision)
        return (
            "ort" if self.ort_format is not None else f"onnx-{kind}" if kind in ("int8", "int4") else "onnx"
        )

    def fields(self, requested: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts as JSON for `DraftArtifact.fields`; `requested` are the requested settings of a quantization."""
        metadata = {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "operators": list(self.operator_names),
            **({} if self.opset is None else {"opset": self.opset}),
        }
        quantization = {"requested": dict(requested or {}), "measured": self.weights.to_json()}
        return {
            "metadata": metadata,
            "opset_imports": dict(self.opset_imports),
            "ir_version": self.ir_version,
            "operators": [entry.to_json() for entry in self.operators],
            "semantic": self.semantic.to_json(),
            **({"contrib": list(self.contrib)} if self.contrib else {}),
            **({} if self.ort_format is None else {"ort_format": self.ort_format}),
            **({"quantization": quantization} if self.weights.weights_quantized else {}),
        }


def inspect_file(path: Path, model: Any = None) -> GraphFacts:
    """Read the facts of an ONNX or ORT-format file; `model` is the result of `load_onnx`, if the file is loaded already.

    External data is hashed block by block. Raises InputError, naming the file, if the file has another format, is cut short
    or is not a valid graph, or if its external data is outside its folder, missing or too short.
    """
    large, external = set[str](), tuple[str, ...]()
    if path.suffix == ".ort":
        graph = ort_file.read_ort(path)
        nodes = list(graph.graph.all_nodes())
    else:
        model = onnx_graph.load_onnx(path) if model is None else model
        large, external = {tensor.name for tensor in model.graph.initializer}, external_files(model, path)
        nodes, graph = onnx_graph.operator_nodes(model, path), onnx_graph.read_graph(model, path)
    ort_format = graph.meta.get("ort_format")
    with about(path.name):
        inputs, outputs = contract(graph)
    with onnx_graph.valid_graph(path):
        semantic = semantic_digest(graph, inputs, outputs)
    with about(path.name):
        weights, precision = count_weights(nodes, large)
        imports = {domain or DEFAULT_DOMAIN: version for domain, version in graph.opset_imports.items()}
        return GraphFacts(
            inputs,
            outputs,
            operators(nodes),
            tuple(dict.fromkeys(map(qualified_name, nodes))),
            contrib_needs(nodes, in_ort_format=ort_format is not None),
            dict(sorted(imports.items())),
            graph.ir_version,
            ort_format,
            external,
            weights,
            precision,
            semantic,
        )


def read_weights(path: Path) -> "dict[str, ir.TensorProtocol]":
    """Read the numeric initializers of the main graph of an ONNX or ORT-format file, by name."""
    stored = stored_tensors(onnx_graph.read_model(path).graph)
    return {name: tensor for name, tensor in stored.items() if is_numeric(tensor)}


def contract(model: "ir.Model") -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the specs of the inputs that a caller feeds, and the specs of the outputs."""
    return tuple(map(spec_of, free_inputs(model.graph))), tuple(map(spec_of, model.graph.outputs))


def spec_of(value: "ir.Value") -> TensorSpec:
    """Return the spec of an input or output. Axes and shape are absent if the rank is unknown, and empty for a scalar."""
    name, element, kind = value.name or "", element_of(value), _KINDS.get(type(value.type).__name__)
    spec: dict[str, Any] = {"name": name, "dtype": kind or (element.name if element else "unknown")}
    if kind is None and value.shape is not None:
        dims = [dim if isinstance(dim, int) else dim.value or "" for dim in value.shape]
        axes = ["" if isinstance(dim, int) else dim for dim in dims]
        shape = [
            {"kind": "static", "value": dim}
            if isinstance(dim, int) and dim >= 0
            else {"kind": "dynamic", "name": axis}
            for dim, axis in zip(dims, axes, strict=True)
        ]
        if name == LABEL_OUTPUT and len(shape) > 1 and shape[-1]["kind"] == "static":
            axes[-1] = "labels"
        spec |= {"axes": axes, "shape": shape}
    return TensorSpec.from_json(spec, f"tensor {name[:80]!r}")


def count_weights(nodes: Iterable["ir.Node"], large: Collection[str]) -> tuple[WeightCount, str]:
    """Count the constant weights of a graph, and name its precision.

    A weight is a stored tensor of rank 2 or more that an operator reads, of a floating-point type or of at most 8 bits.
    Scales and zero points do not count; a shared weight counts once. If weights are quantized, the precision is `int8`,
    `int4` or, for both, `mixed`; if all of these have 8 bits and are read by operators of `_PACKED` that leave
    activations in floating point, it is `int8-weights`. Otherwise it is the floating-point type, or `mixed` if a second
    type has at least `MINOR_SHARE` of the bytes. A graph without weights is `float32`.
    """
    kinds: dict[ir.Value, str] = {}
    scales: set[ir.Value] = set()
    for node in nodes:
        for position, value in enumerate(node.inputs):
            element = element_of(value)
            if value is None or element is None or element.name not in FLOATS | QUANTIZED:
                continue
            if len(_stored_dims(value, large)) < 2:
                continue
            if position in _SCALES.get(node.op_type, ()):
                scales.add(value)
            elif node.op_type in _PACKED and element.name == "uint8":
                numbers = {
                    name: item.value for name, item in node.attributes.items() if item.type.name == "INT"
                }
                bits, level = numbers.get("bits", 4), numbers.get("accuracy_level", 0)
                is_free = bits == 8 and level != _INT8_ACTIVATIONS
                kinds[value] = WEIGHTS_ONLY if is_free else f"int{bits}"
            else:
                kinds.setdefault(value, element.name.removeprefix("u"))
    counts, sizes = Counter[str](), Counter[str]()
    for value, kind in kinds.items():
        if value not in scales and (element := element_of(value)):
            counts[kind] += 1
            sizes[kind] += (prod(_stored_dims(value, large)) * element.bits + 7) // 8
    result = {
        "weights_quantized": sum(counts[kind] for kind in counts if kind not in FLOATS),
        "weights_total": counts.total(),
        "bytes_quantized": sum(sizes[kind] for kind in sizes if kind not in FLOATS),
        "bytes_total": sizes.total(),
    }
    quantized = sizes.keys() - FLOATS
    if quantized == {"int8", WEIGHTS_ONLY}:
        quantized = {"int8"}
    major = quantized or {kind for kind, size in sizes.items() if size >= MINOR_SHARE * sizes.total()}
    precision = "mixed" if len(major) > 1 else next(iter(major), "float32")
    return WeightCount.from_json(result, "weights"), precision


def _stored_dims(value: "ir.Value", large: Collection[str]) -> tuple[int, ...]:
    """Return the shape of a stored value, or of a Constant's output; () for any other value."""
    maker = value.producer()
    if maker is not None and maker.op_identifier() == ("", "Constant", "") and "value" in maker.attributes:
        tensor = maker.attributes["value"].value
        return dims_of(tensor) if hasattr(tensor, "tofile") else ()
    is_stored = value.is_initializer() or (value.is_graph_input() and value.name in large)
    return value.shape.numpy() if is_stored and value.shape is not None and value.shape.is_static() else ()


def weight_type(precision: str) -> str:
    """Return the element type of weights of this precision: `int8` for `int8-weights`."""
    return "int8" if precision == WEIGHTS_ONLY else precision


def with_kv_caches(draft: Draft) -> Draft:
    """Return the draft with the `kv_cache` of each decoder; see `manifest.KvCache`.

    The longest context is read from `genai_config.json` beside the graph, else from `config.json`. A head size that the
    graph leaves dynamic is read from `genai_config.json` only. If a number is unknown, the decoder gets no `kv_cache`.
    """
    return replace(draft, artifacts=tuple(_with_kv_cache(draft, artifact) for artifact in draft.artifacts))


def _with_kv_cache(draft: Draft, artifact: DraftArtifact) -> DraftArtifact:
    specs = artifact.fields.get("metadata", {}).get("inputs", ())
    past = [spec for spec in specs if PAST_INPUT.fullmatch(spec["name"])]
    files = {file.path for file in (*artifact.sidecars, *draft.companions)}
    folder = PurePosixPath(artifact.path).parent
    names = ((folder / name).as_posix() for name in (GENAI_CONFIG, CONFIG))
    path = next((name for name in names if name in files), None)
    if not past or path is None:
        return artifact
    settings, head_size = read_json(draft.root / path), None
    if path.endswith(GENAI_CONFIG):
        longest = _number(settings, "model", "context_length")
        head_size = _number(settings, "model", "decoder", "head_size")
    else:
        longest = _number(settings, "max_position_embeddings")
    total = 0
    for spec in past:  # of shape `[batch, heads, tokens, head size]`
        sizes = [dim.get("value") for dim in spec.get("shape", ())]
        element = next((item for item in ELEMENTS.values() if item.name == spec["dtype"]), None)
        if len(sizes) != 4 or element is None:
            return artifact
        bits = prod((sizes[0] or 1, sizes[1] or 0, sizes[3] or head_size or 0, element.bits))
        if not bits:
            return artifact
        total += bits
    if longest is None:
        return artifact
    cache = {"bytes_per_token": -(-total // 8), "max_tokens": longest}
    return replace(artifact, fields={**artifact.fields, "kv_cache": cache})


def _number(value: Any, *keys: str) -> int | None:
    """Return the positive number at these nested keys, else None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and value > 0 else None
