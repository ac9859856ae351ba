"""Facts that are read from a model file: inputs and outputs, operators, weights, KV cache, semantic digest.

The semantic digest of a graph does not depend on the names or the order of nodes. docs/format.md has the rules.
"""

import re
from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.onnx_graph import (
    DEFAULT_DOMAIN,
    external_files,
    find_schema,
    is_variadic,
    load_onnx,
    operator_nodes,
    read_graph,
    valid_graph,
)
from onnxreg.converters.onnx.ort_file import read_ort
from onnxreg.converters.onnx.tensors import (
    ELEMENTS,
    FLOATS,
    QUANTIZED,
    Element,
    digest_of,
    dims_of,
    is_numeric,
    type_of,
)
from onnxreg.converters.source.source_files import CONFIG, GENAI_CONFIG, read_json
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import about
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.manifest import Operator, SemanticDigest, TensorSpec, WeightCount
from onnxreg.schema.query import runtimes

if TYPE_CHECKING:
    import onnx_ir as ir

LABEL_OUTPUT = "logits"
"""The output of a classifier. If the size of its last axis is fixed, `spec_of` calls this axis `labels`."""
_KINDS = {"SequenceType": "sequence", "OptionalType": "optional", "SparseTensorType": "sparse_tensor"}
WEIGHTS_ONLY = "int8-weights"
"""The precision of a graph that multiplies 8-bit weights with floating-point activations."""
MINOR_SHARE = 0.01
"""The precision is `mixed` if a second floating-point type has at least this share of the weight bytes."""
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
"""The positions of each operator's operands that are scales or zero points. They do not count as weights."""
_INT8_ACTIVATIONS = 4  # the `accuracy_level` with which ONNX Runtime may round activations to int8
_PACKED = frozenset({"MatMulNBits", "GatherBlockQuantized"})
"""The operators whose uint8 weights are packed. Their attribute `bits` (default 4) is the size of an element."""
Values = ChainMap[Any, str]
"""The digest of each value of a graph. A subgraph's values are in a child map."""
REFERENCE = "0"
"""In digests, the type of an attribute that refers (`ref_attr_name`) to an attribute of the enclosing function."""


@dataclass(frozen=True)
class GraphFacts:
    """The facts of a model file.

    `operators` are sorted. `operator_names` are in the order of first use, such as `"MatMul"` or
    `"com.microsoft:Gelu"`. Both include subgraphs and local functions. `ort_format` is None for ONNX. `contrib` is
    explained in `schema/query/runtimes.py`.
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
        return self.opset_imports.get(DEFAULT_DOMAIN)

    @property
    def format(self) -> str:
        if self.ort_format is not None:
            return "ort"
        kind = weight_type(self.precision)
        return f"onnx-{kind}" if kind in ("int8", "int4") else "onnx"

    def fields(self, requested: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts as JSON for `DraftArtifact.fields`. `requested` has the settings of a quantization."""
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
    """Read the facts of an ONNX or ORT-format file. `model` is the loaded file, if it was loaded already.

    Raises InputError if the file or its external data is invalid or incomplete.
    """
    large, external = set[str](), tuple[str, ...]()
    if path.suffix == ".ort":
        graph = read_ort(path)
        nodes = list(graph.graph.all_nodes())
    else:
        model = load_onnx(path) if model is None else model
        large, external = {tensor.name for tensor in model.graph.initializer}, external_files(model, path)
        nodes, graph = operator_nodes(model, path), read_graph(model, path)
    ort_format = graph.meta.get("ort_format")
    with about(path.name):
        inputs, outputs = contract(graph)
    with valid_graph(path):
        semantic = semantic_digest(graph, inputs, outputs)
    with about(path.name):
        weights, precision = count_weights(nodes, large)
        names = dict.fromkeys(f"{node.domain}:{node.op_type}".removeprefix(":") for node in nodes)
        imports = {domain or DEFAULT_DOMAIN: version for domain, version in graph.opset_imports.items()}
        return GraphFacts(
            inputs,
            outputs,
            operators(nodes),
            tuple(names),
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
    """Read the numeric initializers of a model file, by name."""
    model = read_ort(path) if path.suffix == ".ort" else read_graph(load_onnx(path), path)
    return {name: tensor for name, tensor in stored_tensors(model.graph).items() if is_numeric(tensor)}


def stored_tensors(graph: "ir.Graph") -> dict[str, "ir.TensorProtocol"]:
    return {name: value.const_value for name, value in graph.initializers.items() if value.const_value}


def free_inputs(graph: "ir.Graph | ir.Function") -> list["ir.Value"]:
    return [value for value in graph.inputs if not value.is_initializer()]


def contract(model: "ir.Model") -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the specs of a model's inputs and outputs."""
    return tuple(map(spec_of, free_inputs(model.graph))), tuple(map(spec_of, model.graph.outputs))


def spec_of(value: "ir.Value") -> TensorSpec:
    """Return the spec of an input or output. It has no shape if the rank is unknown."""
    name, element, kind = value.name or "", element_of(value), _KINDS.get(type(value.type).__name__)
    spec: dict[str, Any] = {"name": name, "dtype": kind or (element.name if element else "unknown")}
    if kind is None and value.shape is not None:
        axes = ["" if isinstance(dim, int) else dim.value or "" for dim in value.shape]
        shape: list[dict[str, Any]] = [{"kind": "dynamic", "name": axis} for axis in axes]
        for at, dim in enumerate(value.shape):
            if isinstance(dim, int) and dim >= 0:
                shape[at] = {"kind": "static", "value": dim}
        if name == LABEL_OUTPUT and len(shape) > 1 and shape[-1]["kind"] == "static":
            axes[-1] = "labels"
        spec |= {"axes": axes, "shape": shape}
    return TensorSpec.from_json(spec, f"tensor {name[:80]!r}")


def element_of(value: "ir.Value | None") -> Element | None:
    """Return the element type of a tensor; None if it is unknown."""
    kind = value.type if value is not None else None
    # `dtype` of a sequence is its elements'
    return ELEMENTS.get(int(kind.dtype)) if kind is not None and type(kind).__name__ == "TensorType" else None


def operators(nodes: Iterable["ir.Node"]) -> tuple[Operator, ...]:
    """Return each used operator once, sorted, with the element types of its inputs and outputs by position.

    All operands of a variadic parameter have the same position. Unknown types are left out.
    """
    sides_of: dict[tuple[str, int, str], dict[str, dict[int, set[str]]]] = {}
    for node in nodes:
        domain, name, version = node.domain or DEFAULT_DOMAIN, node.op_type, node.version or 1
        schema = find_schema(domain, name, version)
        key = (domain, schema.since_version if schema else version, name)
        sides = sides_of.setdefault(key, {"inputs": {}, "outputs": {}})
        for side, operands in (("inputs", node.inputs), ("outputs", node.outputs)):
            parameters = getattr(schema, side) if schema else ()
            has_last = parameters and is_variadic(parameters[-1])
            for index, operand in enumerate(operands):
                if (element := element_of(operand)) is not None:
                    position = min(index, len(parameters) - 1) if has_last else index
                    sides[side].setdefault(position, set()).add(element.cpp)
    result = []
    for (domain, version, name), sides in sorted(sides_of.items()):
        types = {
            side: {str(position): sorted(positions[position]) for position in sorted(positions)}
            for side, positions in sides.items()
            if positions
        }
        entry = {"domain": domain, "name": name, "opset": version, **types}
        result.append(Operator.from_json(entry, f"operator {domain[:80]}:{name[:80]}"))
    return tuple(result)


def contrib_needs(nodes: Iterable["ir.Node"], in_ort_format: bool) -> tuple[str, ...]:
    """Return the used contrib operators and features that some releases of ONNX Runtime lack."""
    uses = []
    for node in nodes:
        elements = map(element_of, (*node.inputs, *node.outputs))
        types = frozenset(element.cpp for element in elements if element)
        domain, stated = node.domain or DEFAULT_DOMAIN, node.attributes.items()
        numbers = {key: item.value if item.type.name == "INT" else None for key, item in stated}
        uses.append(runtimes.Use(domain, node.op_type, len(node.inputs), types, numbers, in_ort_format))
    return runtimes.needs(uses)


def count_weights(nodes: Iterable["ir.Node"], large: Collection[str]) -> tuple[WeightCount, str]:
    """Count the constant weights of a graph. Return the counts and the graph's precision.

    A weight is a stored tensor of rank 2 or more, with floats or with elements of at most 8 bits. A graph input with a
    name in `large` counts as stored. Scales and zero points do not count. The precision is the type of the quantized
    weights (such as `int4`) or else of all weights. Several types are `mixed`. Without weights, it is `float32`.
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
                stated = node.attributes.items()
                numbers = {name: item.value for name, item in stated if item.type.name == "INT"}
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
    """Return the shape of an initializer or of a Constant's output; () for any other value."""
    maker = value.producer()
    if maker is not None and maker.op_identifier() == ("", "Constant", "") and "value" in maker.attributes:
        tensor = maker.attributes["value"].value
        return dims_of(tensor) if hasattr(tensor, "tofile") else ()
    is_stored = value.is_initializer() or (value.is_graph_input() and value.name in large)
    return value.shape.numpy() if is_stored and value.shape is not None and value.shape.is_static() else ()


def weight_type(precision: str) -> str:
    """Return the element type of weights: `int8` for the precision `int8-weights`, otherwise the precision."""
    return "int8" if precision == WEIGHTS_ONLY else precision


def semantic_digest(
    model: "ir.Model", inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> SemanticDigest:
    """Compute the digests of a model's computation and of its weights. Raise ValueError for a cycle of nodes.

    This sorts the nodes of the model in place.
    """
    from onnx_ir.passes.common import TopologicalSortPass

    TopologicalSortPass()(model)  # nodes of ORT-format files are in no order
    graph, stored = model.graph, stored_tensors(model.graph)
    values: Values = ChainMap({value: _hash(["input", value.name]) for value in free_inputs(graph)})
    for name, tensor in stored.items():
        values[graph.initializers[name]] = _hash(["weight", name, *_tensor(tensor, with_values=False)])
    nodes = _trace(graph, values, 1)
    results = {value.name: values[value] for value in graph.outputs if value in values}
    document = {
        "inputs": list(map(_spec, inputs)),
        "outputs": [[*_spec(spec), results.get(spec.name, "")] for spec in outputs],
        "nodes": sorted(nodes),
        "functions": sorted(map(_function, model.functions.values())),
    }
    weights = sorted([name, *_tensor(tensor)] for name, tensor in stored.items())
    of_graph, of_weights = (Digest.of(canonical.encode(value)) for value in (document, weights))
    return SemanticDigest(graph=of_graph, weights=of_weights)


def _trace(graph: "ir.Graph | ir.Function", values: Values, depth: int) -> list[str]:
    """Return the digests of the nodes, and add the digests of their outputs to `values`."""
    digests: list[str] = []
    occurrences: Counter[str] = Counter()
    for node in graph:
        operator = [node.domain or DEFAULT_DOMAIN, node.op_type, node.overload or "", str(node.version)]
        stated = sorted(node.attributes.items())
        attributes = [[name, *_attribute(item, values, depth)] for name, item in stated]
        inputs = ["" if value is None else _value(values, value) for value in node.inputs]
        digest = _hash([operator, attributes, inputs, ["1" if value.name else "" for value in node.outputs]])
        occurrences[digest] += 1
        if occurrences[digest] > 1:
            digest = _hash([digest, str(occurrences[digest])])
        digests.append(digest)
        values |= {value: _hash([digest, str(at)]) for at, value in enumerate(node.outputs) if value.name}
    return digests


def _inner(graph: "ir.Graph | ir.Function", outer: Values, depth: int) -> str:
    """Return the digest of a subgraph or function body. `outer` has the digests of the enclosing graph's values."""
    inputs = free_inputs(graph)
    values, initializers = outer.new_child(), getattr(graph, "initializers", {})
    values |= {value: _hash(["input", str(depth), str(at)]) for at, value in enumerate(inputs)}
    values |= {value: _hash(_tensor(value.const_value)) for value in initializers.values()}
    nodes = sorted(_trace(graph, values, depth + 1))
    return _hash([str(len(inputs)), nodes, [_value(values, value) for value in graph.outputs]])


def _attribute(attribute: "ir.Attr", values: Values, depth: int) -> list[Any]:
    if attribute.is_ref():
        return [REFERENCE, attribute.ref_attr_name]

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return list(map(plain, value))
        if isinstance(value, str):
            return value.encode().hex()
        if isinstance(value, bytes | float):
            return value.hex()
        if hasattr(value, "initializers"):
            return _inner(value, values, depth)
        return _tensor(value) if hasattr(value, "tofile") else str(value)

    return [str(attribute.type.value), plain(attribute.value)]


def _function(function: "ir.Function") -> list[Any]:
    attributes = sorted(function.attributes.items())
    defaults = [
        [name, *_attribute(item, ChainMap(), 1)] for name, item in attributes if item.type.name != "UNDEFINED"
    ]
    open_ones = [name for name, item in function.attributes.items() if item.type.name == "UNDEFINED"]
    key = [function.domain, function.name, function.overload or ""]
    return [*key, open_ones, defaults, _inner(function, ChainMap(), 1)]


def _spec(spec: TensorSpec) -> list[Any]:
    sizes = ["" if dim.value is None else str(dim.value) for dim in spec.shape]
    return [spec.name, spec.dtype, sizes, "shape" in spec.model_fields_set]


def _tensor(tensor: Any, with_values: bool = True) -> list[Any]:
    form = [type_of(tensor), list(map(str, dims_of(tensor)))]
    return [*form, str(digest_of(tensor))] if with_values else form


def _value(values: Values, value: "ir.Value") -> str:
    return values.get(value) or _hash(["name", value.name])


def _hash(value: Any) -> str:
    return Digest.of(canonical.encode(value)).hex


def with_kv_caches(draft: Draft) -> Draft:
    """Return the draft with the field `kv_cache` for each decoder whose sizes are known (`manifest.KvCache`)."""
    return replace(draft, artifacts=tuple(_with_kv_cache(draft, artifact) for artifact in draft.artifacts))


def _with_kv_cache(draft: Draft, artifact: DraftArtifact) -> DraftArtifact:
    specs = artifact.fields.get("metadata", {}).get("inputs", ())
    past = [spec for spec in specs if PAST_INPUT.fullmatch(spec["name"])]
    files = {file.path for file in (*artifact.sidecars, *draft.companions)}
    folder = PurePosixPath(artifact.path).parent
    names = [*((folder / name).as_posix() for name in (GENAI_CONFIG, CONFIG)), CONFIG]
    path = next((name for name in names if name in files), None)
    if not past or path is None:
        return artifact
    settings = read_json(draft.root / path)
    longest = _number(settings, "model", "context_length") or _number(settings, "max_position_embeddings")
    head_size = _number(settings, "model", "decoder", "head_size") or 0
    widths, bits = {element.name: element.bits for element in ELEMENTS.values()}, []
    for spec in past:
        sizes = [dim.get("value") for dim in spec.get("shape", ())]
        batch, heads, _tokens, size = sizes if len(sizes) == 4 else (0, 0, 0, 0)
        bits.append(prod((batch or 1, heads or 0, size or head_size, widths.get(spec["dtype"], 0))))
    if longest is None or not all(bits):
        return artifact
    cache = {"bytes_per_token": -(-sum(bits) // 8), "max_tokens": longest}
    return replace(artifact, fields={**artifact.fields, "kv_cache": cache})


def _number(value: Any, *keys: str) -> int | None:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if type(value) is int and value > 0 else None
