"""Facts read from an artifact itself: contract, operators, opsets, weights. Nothing here trusts a claim.

The tensor contract is the inputs and outputs as the manifest states them. The precision is that of the weights, by the
share of them that is quantized. A decoder's KV cache is counted from the inputs that take it.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.onnx import onnx_graph, ort_file
from onnxreg.converters.onnx.dataflow import read_onnx, read_ort, semantic_digest
from onnxreg.converters.onnx.elements import ELEMENTS, FLOATS, QUANTIZED, element_name
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.graph_operators import (
    DEFAULT_DOMAIN,
    Constant,
    OperatorUse,
    contrib_needs,
    operator_names,
    operators,
    read_operator_config,
    required_operators,
)
from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.source.source_files import CONFIG, GENAI_CONFIG
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.parts import Operator, SemanticDigest, TensorSpec, WeightCount

LABEL_OUTPUT = "logits"
"""The output of a classifier, whose static last axis counts the labels and is called `labels`."""
Shape = Sequence[str | int]
"""An axis is its size, or its name if it is dynamic ("" if the graph gives none)."""
WEIGHTS_ONLY = "int8-weights"
"""8-bit weights whose products are computed with activations in floating point."""
MINOR_SHARE = 0.01
"""A second floating-point type below this share of the weight bytes does not make a graph `mixed`."""
PAST_INPUT = re.compile(r"past_key_values\.\d+\.(key|value)")
"""The name of an input of shape `[batch, heads, tokens, head size]`."""
TOKEN_AXIS = 2
"""The axis of the tokens."""
ELEMENT_BITS = {element.name: element.bits for element in ELEMENTS.values()}
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
"""Operands that hold scales and zero points: of any rank, but never weights."""
_INT8_ACTIVATIONS = 4
"""The `accuracy_level` that lets the runtime round activations to int8."""
_PACKED = frozenset({"MatMulNBits", "GatherBlockQuantized"})
"""Operators whose uint8 weights hold several elements of `bits` bits each (4 unless stated)."""


@dataclass(frozen=True)
class GraphFacts:
    """The facts of a model file, read from the file itself.

    `contrib` see `schema/query/runtimes.py`. `operators` are sorted and carry opsets and element types; `operator_names`
    are in first-seen order, both with subgraphs and local functions included. `external_data` are paths relative to the file's folder. `ort_format` is
    None for ONNX. `precision` is that of the weights (`count_weights`), `semantic` see `dataflow`.
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

    def fields(self) -> dict[str, Any]:
        """The JSON form of these facts, for `DraftArtifact.fields`."""
        metadata: dict[str, Any] = {
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "operators": list(self.operator_names),
        }
        fields: dict[str, Any] = {
            "metadata": metadata,
            "opset_imports": dict(self.opset_imports),
            "ir_version": self.ir_version,
            "operators": [entry.to_json() for entry in self.operators],
            "semantic": self.semantic.to_json(),
        }
        if self.contrib:
            fields["contrib"] = list(self.contrib)
        if self.opset is not None:
            metadata["opset"] = self.opset
        if self.ort_format is not None:
            fields["ort_format"] = self.ort_format
        return fields


def inspect_onnx(path: Path) -> GraphFacts:
    """Read the facts of an ONNX file; external data is hashed block by block.

    Raises InputError, naming the file, if it is not ONNX, cut short, not a valid graph, or if its external
    data is outside its folder, is missing or is too short.
    """
    return inspect_model(onnx_graph.load_onnx(path), path)


def inspect_model(model: Any, path: Path) -> GraphFacts:
    """The same of a file that is loaded (`onnx_graph.load_onnx`)."""
    with about(path.name):
        inputs = tuple(onnx_spec(value) for value in onnx_graph.graph_inputs(model.graph))
        outputs = tuple(onnx_spec(value) for value in model.graph.output)
    external = external_files(model, path)
    imports = onnx_graph.opset_imports(model)
    ir_version = model.ir_version
    uses = onnx_graph.operator_uses(model, path)
    semantic = _onnx_semantic(model, path, inputs, outputs)
    with about(path.name):
        return _facts(inputs, outputs, operators(uses), uses, imports, ir_version, None, external, semantic)


def inspect_ort(path: Path, config: Path | None = None) -> GraphFacts:
    """Read the facts of an ORT-format file, its operators from the operator config if one is given.

    Raises InputError, naming the file, if it is not in ORT format or cut short, and if the config is
    malformed or lacks an operator or element type that the file uses.
    """
    with ort_file.reading(path):
        session = ort_file.load_ort(path)
        graph = session.Model().Graph()
        ort_file.check_extent(graph, path.stat().st_size)
        types = ort_file.value_types(graph)
        inputs = tuple(ort_spec(name, types[name]) for name in ort_file.graph_inputs(graph))
        outputs = tuple(ort_spec(name, types[name]) for name in ort_file.graph_outputs(graph))
        imports = ort_file.opset_imports(session)
        version, ir_version = ort_file.format_version(session), session.Model().IrVersion()
        uses = ort_file.operator_uses(session)
        semantic = semantic_digest(read_ort(session, path), inputs, outputs)
    used = operators(uses)
    if config is not None:
        used = required_operators(used, read_operator_config(config), path, config)
    return _facts(inputs, outputs, used, uses, imports, ir_version, version, (), semantic)


def onnx_spec(value: Any) -> TensorSpec:
    """The contract of one `onnx.ValueInfoProto`."""
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "unknown"
        return _spec(value.name, kind.removesuffix("_type"), None)
    tensor = value.type.tensor_type
    shape = None
    if tensor.HasField("shape"):
        shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim]
    return _spec(value.name, element_name(tensor.elem_type), shape)


def ort_spec(name: str, info: Any) -> TensorSpec:
    """The contract of one value of an ORT-format file, given its `fbs.TypeInfo`."""
    tensor = ort_file.tensor_type(info)
    if tensor is None:
        return _spec(name, "unknown", None)
    shape = tensor.Shape()
    dims = (
        None if shape is None else [_ort_dim(shape.Dim(index).Value()) for index in range(shape.DimLength())]
    )
    return _spec(name, element_name(tensor.ElemType()), dims)


def count_weights(uses: Iterable[OperatorUse]) -> tuple[WeightCount, str]:
    """Count the constant weights of a graph, and name its precision.

    A weight is a stored tensor of rank 2 or more and of a floating-point or 8-bit-or-less type that some operator
    reads, scales and zero points aside; one that several operators share counts once. The precision is `int8` or
    `int4` if weights are quantized (`mixed` if both), `int8-weights` if all of them have 8 bits and a
    `MatMulNBits` or `GatherBlockQuantized` that leaves activations in floating point reads them, else the floating-point type (`mixed` if a second one
    has at least `MINOR_SHARE` of the bytes); a graph without weights is `float32`.
    """
    weights = _weight_kinds(uses)
    quantized = {weight: kind for weight, kind in weights.items() if _type_name(weight) in QUANTIZED}
    value = {
        "weights_quantized": len(quantized),
        "weights_total": len(weights),
        "bytes_quantized": sum(map(_constant_bytes, quantized)),
        "bytes_total": sum(map(_constant_bytes, weights)),
    }
    return WeightCount.from_json(value, "weights"), _precision(
        quantized, [weight for weight in weights if weight not in quantized]
    )


def weight_type(precision: str) -> str:
    """The element type of a precision's weights: that of `int8-weights` is `int8`."""
    return "int8" if precision == WEIGHTS_ONLY else precision


def with_kv_caches(draft: Draft) -> Draft:
    """The draft, with the `kv_cache` of each decoder; see `manifest.KvCache`.

    Both numbers must be known: the longest context, and the head size if the graph leaves it open, are those of the
    `genai_config.json` of the draft beside the graph, else of the `config.json`.
    """
    return replace(draft, artifacts=tuple(_with_kv_cache(draft, artifact) for artifact in draft.artifacts))


def _onnx_semantic(
    model: Any, path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> SemanticDigest:
    try:
        graph, functions = read_onnx(model, path)
        return semantic_digest(graph, inputs, outputs, functions)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(f"{path.name} is not a valid graph: {str(error)[:200]}") from error


def _facts(
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    used: tuple[Operator, ...],
    uses: Sequence[OperatorUse],
    imports: dict[str, int],
    ir_version: int,
    ort_format: int | None,
    external: tuple[str, ...],
    semantic: SemanticDigest,
) -> GraphFacts:
    weights, precision = count_weights(uses)
    return GraphFacts(
        inputs,
        outputs,
        used,
        operator_names(uses),
        contrib_needs(uses, in_ort_format=ort_format is not None),
        imports,
        ir_version,
        ort_format,
        external,
        weights,
        precision,
        semantic,
    )


def _ort_dim(value: Any) -> str | int:
    if value is None or value.DimType() != 1:
        return "" if value is None else (value.DimParam() or b"").decode("utf-8")
    return int(value.DimValue())


def _spec(name: str, dtype: str, shape: Shape | None) -> TensorSpec:
    """A tensor of unknown rank has neither axes nor shape; a scalar has both, empty."""
    value: dict[str, Any] = {"name": name, "dtype": dtype}
    if shape is not None:
        static = [isinstance(dim, int) and dim >= 0 for dim in shape]
        axes = [dim if isinstance(dim, str) else "" for dim in shape]
        value["shape"] = [
            {"kind": "static", "value": dim} if fixed else {"kind": "dynamic", "name": axis}
            for dim, axis, fixed in zip(shape, axes, static, strict=True)
        ]
        if name == LABEL_OUTPUT and len(shape) > 1 and static[-1]:
            axes[-1] = "labels"
        value["axes"] = axes
    return TensorSpec.from_json(value, f"tensor {name[:80]!r}")


def _weight_kinds(uses: Iterable[OperatorUse]) -> dict[Constant, str]:
    """Each weight with its kind: the element type, signed or not, that its values have once unpacked."""
    weights: dict[Constant, str] = {}
    scales: set[Constant] = set()
    for use in uses:
        for position, operand in enumerate(use.inputs):
            constant = operand.constant if operand else None
            if constant is None or len(constant.dims) < 2 or _type_name(constant) not in FLOATS | QUANTIZED:
                continue
            if position in _SCALES.get(use.name, ()):
                scales.add(constant)
            elif use.name in _PACKED and _type_name(constant) == "uint8":
                weights[constant] = _packed_kind(use.attributes)
            else:
                weights.setdefault(constant, _type_name(constant).removeprefix("u"))
    return {weight: kind for weight, kind in weights.items() if weight not in scales}


def _packed_kind(attributes: Mapping[str, int | None]) -> str:
    bits = attributes.get("bits", 4)
    return (
        WEIGHTS_ONLY if bits == 8 and attributes.get("accuracy_level") != _INT8_ACTIVATIONS else f"int{bits}"
    )


def _precision(quantized: dict[Constant, str], floats: list[Constant]) -> str:
    kinds = set(quantized.values())
    if kinds == {"int8", WEIGHTS_ONLY}:
        return "int8"
    if kinds:
        return kinds.pop() if len(kinds) == 1 else "mixed"
    sizes: Counter[str] = Counter()
    for weight in floats:
        sizes[_type_name(weight)] += _constant_bytes(weight)
    total = sum(sizes.values())
    major = [name for name, size in sizes.most_common() if size >= MINOR_SHARE * total]
    return "mixed" if len(major) > 1 else (major[0] if major else "float32")


def _type_name(constant: Constant) -> str:
    return constant.element.name if constant.element else "unknown"


def _constant_bytes(constant: Constant) -> int:
    bits = constant.element.bits if constant.element else 0
    return (prod(constant.dims) * bits + 7) // 8


def _with_kv_cache(draft: Draft, artifact: DraftArtifact) -> DraftArtifact:
    specs = artifact.fields.get("metadata", {}).get("inputs", ())
    past = [spec for spec in specs if PAST_INPUT.fullmatch(spec["name"])]
    if not past:
        return artifact
    longest, head_size = _context_and_head_size(draft, artifact)
    bits = [_bits_per_token(spec, head_size) for spec in past]
    if longest is None or None in bits:
        return artifact
    cache = {"bytes_per_token": -(-sum(filter(None, bits)) // 8), "max_tokens": longest}
    return replace(artifact, fields={**artifact.fields, "kv_cache": cache})


def _bits_per_token(spec: Mapping[str, Any], head_size: int | None) -> int | None:
    """The bits of one token in an input; None if they are not known."""
    sizes = [dim.get("value") for dim in spec.get("shape", ())]
    if len(sizes) != TOKEN_AXIS + 2:
        return None
    batch, heads, size = sizes[0] or 1, sizes[1], sizes[-1] or head_size
    bits = ELEMENT_BITS.get(spec["dtype"], 0)
    return prod((batch, heads, size, bits)) or None if heads and size else None


def _context_and_head_size(draft: Draft, artifact: DraftArtifact) -> tuple[int | None, int | None]:
    """The longest context in tokens, and the head size, as the files beside a graph state them."""
    files = {file.path for file in (*artifact.sidecars, *draft.companions)}
    folder = PurePosixPath(artifact.path).parent
    settings, config = ((folder / name).as_posix() for name in (GENAI_CONFIG, CONFIG))
    if settings in files:
        value = read_json(draft.root / settings)
        return _positive_number(value, "model", "context_length"), _positive_number(
            value, "model", "decoder", "head_size"
        )
    if config in files:
        return _positive_number(read_json(draft.root / config), "max_position_embeddings"), None
    return None, None


def _positive_number(value: Any, *keys: str) -> int | None:
    """The positive number at these keys, else None."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and value > 0 else None
