"""ONNX models for passes: load and save models of any size, and small edits that several passes share.

In memory, a model is an `onnx_ir.Model`. Tools that take protobuf get `to_proto`, or `light` if they need no weights. On
disk, weights that are too large for protobuf are in `FILE.data`. Equal models give equal bytes.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, count
from math import prod
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx import onnx_graph
from onnxreg.converters.onnx.onnx_graph import containers, load_onnx, read_graph, scrub_metadata
from onnxreg.converters.onnx.tensors import MAX_SMALL_ELEMENTS, copy_bytes, tensor_bytes, without_weights
from onnxreg.converters.onnx.wire import encode
from onnxreg.converters.runtime.sessions import load_session, quiet, silent_runtime
from onnxreg.converters.source.toolchain import refuse_missing
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, why

MAX_INLINE_WEIGHT_BYTES = 2**31 - 2**26
"""The maximum size of the weights in the model's own file, in bytes. Protobuf's limit for a file is 2**31 - 1 bytes."""
ALIGNMENT_BYTES = 4096
FIRST_IR_WITH_CONSTANTS = 4  # the first IR version in which an initializer need not be an input
FLOATS = frozenset({1, 10})
STANDARD = ("", "ai.onnx")
_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


def load(path: Path, scrubbed: bool = False) -> Any:
    """Read an ONNX file (`onnx_ir.Model`) and map its large weights. Initializers are removed from the inputs.

    With `scrubbed`, `scrub_metadata` cleans the metadata. Raises InputError if the file or its external data is invalid.
    """
    places: dict[str, int] = {}
    proto = load_onnx(path, places)
    for tensor in onnx_graph.tensors(proto):
        if tensor.HasField("raw_data") and len(tensor.raw_data) != tensor_bytes(tensor):
            raise InputError(f"{path.name}: the bytes of the weight {tensor.name} do not fit its shape")
    if scrubbed:
        scrub_metadata(proto, path.parent)
    model = read_graph(proto, path, places)
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    if len(inputs) < len(model.graph.inputs):
        model.graph.inputs[:] = inputs
        model.ir_version = max(FIRST_IR_WITH_CONSTANTS, model.ir_version)
    return model


def save(model: Any, path: Path, limit: int = MAX_INLINE_WEIGHT_BYTES) -> tuple[str, ...]:
    """Write a model and return the names of its files. After an error, no file is left."""
    data = path.with_name(f"{path.name}.data")
    written = {
        file: file.with_name(f"{file.name}.new") for file in (path, data)
    }  # a weight may be mapped from `path`
    proto, weights = _split(model)
    try:
        if weight_bytes(model) <= limit:
            del written[data]
            with written[path].open("wb") as file:
                encode(proto, weights, file.write)
        else:
            with written[data].open("wb") as file:
                for tensor in (one for one in proto.graph.initializer if one.name in weights):
                    file.write(bytes(-file.tell() % ALIGNMENT_BYTES))
                    values = {"location": data.name, "offset": file.tell(), "length": tensor_bytes(tensor)}
                    for key, value in values.items():
                        tensor.external_data.add(key=key, value=str(value))
                    tensor.data_location = tensor.EXTERNAL
                    copy_bytes(weights[tensor.name], file.write)
            written[path].write_bytes(proto.SerializeToString(deterministic=True))
        return tuple(new.replace(target).name for target, new in written.items())
    finally:
        for new in written.values():
            new.unlink(missing_ok=True)


def to_proto(model: Any) -> Any:
    """Copy a model to an `onnx.ModelProto` with all weights inside."""
    proto, weights = _split(model)
    for tensor in (one for one in proto.graph.initializer if one.name in weights):
        blocks: list[bytes] = []
        copy_bytes(weights[tensor.name], blocks.append)
        tensor.raw_data = b"".join(blocks)
    return proto


def light(model: Any) -> Any:
    """Copy a model to an `onnx.ModelProto`, in which graph inputs replace large initializers.

    In the main graph, outputs of nodes of other domains keep their types, because ONNX cannot infer those.
    """
    import onnx_ir as ir

    proto = without_weights(_split(model)[0])
    values = (value for node in model.graph if node.domain not in STANDARD for value in node.outputs)
    inner = (value for value in values if value.name and value.type and not value.is_graph_output())
    proto.graph.value_info.extend(map(ir.to_proto, inner))
    return proto


def replace(model: Any, proto: Any) -> None:
    """Replace a model's graph by that of `proto`, which a tool made from `light(model)`. Keep the large weights."""
    import onnx_ir as ir

    new, weights = ir.from_proto(proto), model.graph.initializers
    for value in [value for value in new.graph.inputs if value.name in weights]:
        new.graph.inputs.remove(value)
        value.const_value = weights[value.name].const_value
        new.graph.initializers.add(value)
    model.graph, model.ir_version = new.graph, new.ir_version
    model.functions.clear()
    model.functions.update(new.functions)


def _split(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return a `ModelProto` and the large weights by name. The proto lacks these weights and types of inner values."""
    import onnx_ir as ir

    values = model.graph.initializers
    stored = {name: value.const_value for name, value in values.items()}
    sizes = {name: prod(one.shape) for name, one in stored.items() if one.dtype != ir.DataType.STRING}
    weights = {name: stored[name] for name, size in sizes.items() if size > MAX_SMALL_ELEMENTS}
    try:
        for name, one in weights.items():
            notes = {"doc_string": one.doc_string, "metadata_props": dict(one.metadata_props)}
            external = ir.ExternalTensor("", None, None, one.dtype, shape=one.shape, name=name, **notes)
            values[name].const_value = external
        proto = ir.to_proto(model)
    finally:
        for name, one in weights.items():
            values[name].const_value = one
    for tensor in (one for one in proto.graph.initializer if one.name in weights):
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    for body in containers(proto):
        del body.value_info[:]
    for entry in (one for one in proto.opset_import if not one.domain):
        entry.ClearField("domain")  # exporters leave it out
    return proto, weights


def tensors(model: Any) -> Iterator[Any]:
    """Yield every tensor that a model stores: initializers, attributes, and defaults of functions' attributes."""
    parts = [*bodies(model)]
    for body in parts:
        yield from (value.const_value for value in body.initializers.values())
    holders = chain(model.functions.values(), chain.from_iterable(parts))
    for item in (item for holder in holders for item in holder.attributes.values()):
        if item.type.name in ("TENSOR", "TENSORS") and not item.is_ref():
            yield from (item.value,) if item.type.name == "TENSOR" else item.value


def bodies(model: Any) -> Iterator[Any]:
    """Yield the main graph, the functions' graphs, and their subgraphs."""
    for body in (model.graph, *(function.graph for function in model.functions.values())):
        yield from (body, *body.subgraphs())


def weight_bytes(model: Any) -> int:
    return sum(tensor.nbytes for tensor in tensors(model) if tensor.dtype.name != "STRING")


def session(model: Any, label: str = "the model") -> Any:
    """Load a model or a file in ONNX Runtime. Raise ConversionError about `label` if loading fails."""
    if isinstance(model, Path):
        return load_session(model, name=label)
    with scratch() as directory:
        save(model, directory / "model.onnx")
        return load_session(directory / "model.onnx", name=label)


@contextmanager
def scratch() -> Iterator[Path]:
    """A context with a temporary directory. Inside a context of `scratch_in`, the directory is in the workspace."""
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=_scratch.get()) as directory:
        yield Path(directory)


@contextmanager
def scratch_in(workspace: Path) -> Iterator[None]:
    token = _scratch.set(workspace)
    try:
        yield
    finally:
        _scratch.reset(token)


def clear_metadata(model: Any) -> None:
    """Remove doc strings and metadata from the model and its parts, in place. Stored tensors keep theirs."""
    parts: list[Any] = [model, *model.functions.values()]
    for body in bodies(model):
        parts += [body, *body.inputs, *body.initializers.values()]
        parts += [part for node in body for part in (node, *node.outputs)]
        for item in (item for node in body for item in node.attributes.values()):
            item.doc_string = None
    for part in parts:
        part.doc_string = None
        part.metadata_props.clear()


@contextmanager
def tool(label: str, failure: str, hint: str = "") -> Iterator[None]:
    """A context in which libraries print nothing. Their errors become a ConversionError that begins with `failure`.

    If a package is missing, the error becomes a HostError about `label`. Errors of the disk stay unchanged.
    """
    try:
        with quiet(), silent_runtime():
            yield
    except Exception as error:
        if isinstance(error, RegError) or getattr(error, "errno", None):
            raise
        raise ConversionError(f"{failure}: {why(refuse_missing(error, label), 300)}", hint) from error


def count_operators(model: Any) -> dict[str, int]:
    """Count the nodes of each operator (`Add`, `com.microsoft:Gelu`), including those in subgraphs and functions."""
    nodes = (node for body in bodies(model) for node in body)
    names = (node.op_type if node.domain in STANDARD else f"{node.domain}:{node.op_type}" for node in nodes)
    return dict(sorted(Counter(names).items()))


def node_names(model: Any) -> set[str]:
    return {node.name for body in bodies(model) for node in body if node.name}


def refuse_unknown(kind: str, names: Collection[str] | None, present: Collection[str]) -> None:
    if unknown := sorted(set(names or ()) - set(present)):
        raise InputError(f"the graph has no {kind} called {', '.join(unknown)[:200]}")


def default_opset(model: Any) -> int | None:
    return next((version for domain, version in model.opset_imports.items() if domain in STANDARD), None)


def oldest_ir(model: Any) -> int:
    """Return the oldest IR version that has the operator sets of a model."""
    from onnx import helper

    imports = [helper.make_opsetid(*pair) for pair in model.opset_imports.items()]
    return int(helper.find_min_ir_version_for(imports, ignore_unknown=True))


def is_tensor(value: Any) -> bool:
    import onnx_ir as ir

    return isinstance(value.type, ir.TensorType)


def sizes_of(value: Any) -> list[int | str]:
    """Return the size of each axis, or the name if the axis is dynamic. No name and the size -1 become ""."""
    names = (dim if isinstance(dim, int) else dim.value or "" for dim in value.shape or ())
    return ["" if name == -1 else name for name in names]


def set_size(value: Any, axis: int, size: Any) -> None:
    """Set the size of an axis: a number, a name, or None."""
    import onnx_ir as ir

    value.shape = ir.Shape([*value.shape[:axis], size, *value.shape[axis + 1 :]])


def infer_types(model: Any) -> Any:
    """Set the inferred types of the main graph's intermediate values. Return the inferred graph (`onnx.GraphProto`)."""
    import onnx
    import onnx_ir as ir

    inferred = onnx.shape_inference.infer_shapes(light(model), data_prop=True).graph
    types = {value.name: value for value in inferred.value_info}
    for value in (value for node in model.graph for value in node.outputs if not value.is_graph_output()):
        value.type = value.shape = None
        if value.name in types:
            ir.serde.deserialize_value_info_proto(types[value.name], value)
    return inferred


def inline_functions(model: Any) -> None:
    import onnx.inliner

    if model.functions:
        with tool("inlining", "the local functions cannot be inlined"):
            replace(model, onnx.inliner.inline_local_functions(light(model)))
        drop_unused_imports(model)


def drop_unused_imports(model: Any) -> None:
    used = {*STANDARD, *(node.domain for body in bodies(model) for node in body)}
    for domain in model.opset_imports.keys() - used:
        del model.opset_imports[domain]


def from_tool(proto: Any) -> Any:
    """Convert a tool's `onnx.ModelProto` to `onnx_ir.Model`. Drop unused opset imports and unused weights."""
    import onnx_ir as ir

    with tool("onnx_ir", "the graph cannot be edited"):
        model = ir.from_proto(proto)
    drop_unused_imports(model)
    drop_unread_weights(model)
    return model


def drop_unread_weights(model: Any) -> None:
    for body in model.graphs():
        for name, value in list(body.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del body.initializers[name]


def name_nodes(model: Any) -> None:
    """Name every node that has no name, by its operator and a number."""
    taken, numbers = node_names(model), count()
    for node in (node for body in bodies(model) for node in body):
        while not node.name:
            name = f"{node.op_type}_{next(numbers)}"
            node.name = "" if name in taken else name


def factors(model: Any, operators: Collection[str], excluded: Collection[str] = ()) -> list[Any]:
    """Return the floating-point initializers of rank 2 or more that nodes with these `operators` read as factors.

    A Transpose or Identity may be between the initializer and the node. `excluded` are names of nodes.
    """
    weights: dict[Any, None] = {}
    for node in model.graph.all_nodes():
        if node.domain or node.op_type not in operators or (node.name and node.name in excluded):
            continue
        for value in node.inputs[:2]:
            while value is not None and (maker := value.producer()) is not None:
                is_view = maker.op_type in ("Identity", "Transpose") and not maker.domain
                value = maker.inputs[0] if is_view else None
            if rank_of(value) >= 2:
                weights[value] = None
    return list(weights)


def rank_of(value: Any, elements: Collection[int] = FLOATS) -> int:
    tensor = value.const_value if value is not None and value.is_initializer() else None
    return len(tensor.shape) if tensor is not None and tensor.dtype in elements else -1


def store(body: Any, name: str, array: Any) -> Any:
    """Store an array in a graph as the initializer `name`. Return the initializer (`onnx_ir.Value`)."""
    import numpy as np
    import onnx_ir as ir

    value = body.initializers.get(name) or ir.Value(name=name)
    value.const_value = tensor = ir.tensor(np.asarray(array, order="C"), name=name)
    value.type, value.shape = ir.TensorType(tensor.dtype), tensor.shape
    body.initializers.add(value)
    return value


@contextmanager
def replaced(node: Any) -> Iterator[Callable[..., Any]]:
    """A context with a function that adds a node and returns its value. At the end, the added nodes replace `node`."""
    import onnx_ir as ir

    tape = ir.tape.Tape()

    def add(operator: str, inputs: Sequence[Any], value: str = "", name: str = "", **attributes: Any) -> Any:
        return tape.op(operator, inputs, attributes, name=name, output=ir.Value(name=value))

    yield add
    body, results = node.graph, tape.nodes[-1].outputs
    ir.convenience.replace_nodes_and_values(body, node, [node], tape.nodes, node.outputs, results)


def fresh_names(model: Any) -> Callable[[str], str]:
    """Return a function that makes an unused name from a base."""
    taken = {value.name for body in model.graphs() for value in (*body.inputs, *body.initializers.values())}
    taken |= {value.name for node in model.graph.all_nodes() for value in node.outputs}

    def fresh(base: str) -> str:
        numbered = (f"{base}_{number}" for number in count(1))
        name = next(name for name in chain([base], numbered) if name not in taken)
        taken.add(name)
        return name

    return fresh


def drop_second_names(model: Any) -> None:
    """Drop each Identity that only renames a stored tensor, in place."""
    for node in [node for node in model.graph if node.op_type == "Identity"]:
        source, second = node.inputs[0], node.outputs[0]
        if source is not None and source.is_initializer() and not second.is_graph_output():
            second.replace_all_uses_with(source)
            model.graph.remove(node, safe=True)


def fold_transposes(model: Any, only_own: bool = False) -> None:
    """Store a matrix transposed, in place, if a MatMul reads it through a Transpose. Remove that Transpose.

    With `only_own`, a Transpose stays if other nodes read the matrix.
    """
    for node in [node for node in model.graph if node.op_type == "Transpose" and not node.domain]:
        matrix, across = node.inputs[0], node.outputs[0]
        is_factor = any(use.node.op_type == "MatMul" and use.idx == 1 for use in across.uses())
        if is_factor and rank_of(matrix) == 2 and not (only_own and len(matrix.uses()) > 1):
            array = matrix.const_value.numpy().transpose(node.attributes.get_ints("perm", (1, 0)))
            folded = store(model.graph, across.name or "", array)
            across.replace_all_uses_with(folded, replace_graph_outputs=True)
            model.graph.remove(node, safe=True)


def unfold_gemms(model: Any, excluded: Collection[str] = (), only_shared: bool = False) -> None:
    """Replace each Gemm with a stored matrix by MatMul and Add, in place. A Gemm with factors other than 1 stays.

    Nodes with names in `excluded` stay. With `only_shared`, a Gemm also stays if no other node reads its matrix.
    """
    gemms = [node for node in model.graph.all_nodes() if node.op_type == "Gemm" and not node.domain]
    readers = {node.inputs[1]: len(node.inputs[1].uses()) for node in gemms if node.inputs[1]}
    fresh, transposed = fresh_names(model), dict[Any, Any]()
    for node in gemms:
        source, matrix, *bias = filter(None, node.inputs)
        options = node.attributes
        is_product = options.get_float("alpha", 1.0) == options.get_float("beta", 1.0) == 1.0
        if not (is_product and matrix.is_initializer()) or options.get_int("transA", 0):
            continue
        if (node.name and node.name in excluded) or (only_shared and readers[matrix] == 1):
            continue
        if options.get_int("transB", 0):
            if matrix not in transposed:
                name = fresh(f"{matrix.name}_transposed") if readers[matrix] > 1 else matrix.name
                transposed[matrix] = store(matrix.graph, name, matrix.const_value.numpy().T)
            matrix = transposed[matrix]
        name = f"{node.name}_MatMul" if node.name else ""
        product = fresh(f"{node.outputs[0].name}_MatMul") if bias else ""
        with replaced(node) as add:
            value = add("MatMul", [source, matrix], product, name)
            if bias:
                add("Add", [value, *bias], name=f"{node.name}_Add" if node.name else "")
