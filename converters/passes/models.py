"""ONNX models for passes: load and save models of any size, and small edits that several passes share.

In memory, a model is an `onnx.ModelProto` with every weight inside. On disk, weights that are too large for protobuf
are in `FILE.data`. Equal models give equal bytes.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, count
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.onnx_graph import (
    attributes,
    containers,
    external_files,
    graph_inputs,
    load_onnx,
    tensors,
    within,
)
from onnxreg.converters.onnx.tensors import (
    MAX_SMALL_ELEMENTS,
    copy_but,
    replace_but_weights,
    tensor_bytes,
    without_weights,
)
from onnxreg.converters.runtime.sessions import load_session, quiet, silent_runtime
from onnxreg.converters.source.source_files import scrub
from onnxreg.converters.source.toolchain import refuse_missing
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, why

MAX_INLINE_WEIGHT_BYTES = 2**31 - 2**26
"""The most bytes of weights in the model's own file. Protobuf's limit for a file is 2**31 - 1 bytes."""
ALIGNMENT_BYTES = 4096
FIRST_IR_WITH_CONSTANTS = 4
"""The first IR version in which an initializer need not be an input."""
FLOATS = frozenset({1, 10})
SOURCE_KEYS = re.compile(r"namespace|pkg\..*")
"""The keys of metadata that PyTorch's exporter writes about source code."""
STANDARD = ("", "ai.onnx")
_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


def load(path: Path) -> Any:
    """Read an ONNX file with its external data (`onnx.ModelProto`). Initializers are removed from the inputs.

    Raises InputError if the file or its external data is invalid.
    """
    import onnx

    model = load_onnx(path)
    external_files(model, path)
    for tensor in tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            info = onnx.external_data_helper.ExternalDataInfo(tensor)
            with (path.parent / info.location).open("rb") as data:  # onnx itself refuses hard links
                data.seek(info.offset or 0)
                tensor.raw_data = data.read(tensor_bytes(tensor))
            del tensor.external_data[:]
            tensor.ClearField("data_location")
    inputs = graph_inputs(model.graph)
    if len(inputs) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(inputs)
        model.ir_version = max(FIRST_IR_WITH_CONSTANTS, model.ir_version)
    return model


def save(model: Any, path: Path, limit: int = MAX_INLINE_WEIGHT_BYTES) -> tuple[str, ...]:
    """Write a model and return the names of its files. After an error, no file is left."""
    data = path.with_name(f"{path.name}.data")
    try:
        if weight_bytes(model) <= limit:
            path.write_bytes(model.SerializeToString())  # a message without maps has one encoding
            return (path.name,)
        path.write_bytes(_move_out(model, data).SerializeToString(deterministic=True))
        return path.name, data.name
    except BaseException:
        for file in (path, data):
            file.unlink(missing_ok=True)
        raise


def _move_out(model: Any, data: Path) -> Any:
    """Write the large initializers to the file `data`. Return the model with references to them."""
    import onnx
    import onnx_ir as ir

    light = onnx.ModelProto()
    copy_but(model, light, "graph")
    copy_but(model.graph, light.graph, "initializer")
    large = [one for one in model.graph.initializer if len(one.raw_data) > MAX_SMALL_ELEMENTS]
    weights: list[Any] = list(map(ir.from_proto, large))
    stored = ir.external_data.convert_tensors_to_external(
        weights, data.parent, data.name, alignment=ALIGNMENT_BYTES, align_threshold=0
    )
    for tensor, one in zip(weights, stored, strict=True):
        one.doc_string = tensor.doc_string
        one.metadata_props.update(tensor.metadata_props)
    references = {tensor.name: ir.to_proto(tensor) for tensor in stored}
    light.graph.initializer.extend(references.get(one.name, one) for one in model.graph.initializer)
    return light


def weight_bytes(model: Any) -> int:
    return sum(map(tensor_bytes, tensors(model)))


def session(model: Any, label: str = "the model") -> Any:
    """Load a model or a file in ONNX Runtime. Raise ConversionError about `label` if loading fails."""
    if isinstance(model, Path):
        return load_session(model, name=label)
    if weight_bytes(model) <= MAX_INLINE_WEIGHT_BYTES:
        return load_session(model.SerializeToString(), name=label)
    with scratch() as directory:
        save(model, directory / "model.onnx")
        return load_session(directory / "model.onnx", name=label)


@contextmanager
def scratch() -> Iterator[Path]:
    """A context with a temporary directory. Inside `scratch_in`, it is in the workspace."""
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=_scratch.get()) as directory:
        yield Path(directory)


@contextmanager
def scratch_in(workspace: Path) -> Iterator[None]:
    token = _scratch.set(workspace)
    try:
        yield
    finally:
        _scratch.reset(token)


def scrub_metadata(model: Any, *directories: Path) -> list[str]:
    """Remove metadata about source code, and shorten absolute paths in other metadata, in place.

    Return the keys of the changed metadata, and `doc_string` for each changed doc string.
    """
    keys, notes = list[str](), list[tuple[Any, str, str]]()
    for message in _described(model):
        entries = getattr(message, "metadata_props", [])
        for index in reversed(range(len(entries))):
            if SOURCE_KEYS.fullmatch(str(entries[index].key)):
                keys.append(entries.pop(index).key)
        notes += [(entry, "value", entry.key) for entry in entries]
        notes += [(message, "doc_string", "doc_string")] if getattr(message, "doc_string", "") else []
    values = (getattr(message, field) for message, field, _ in notes)  # it is bytes if it is not UTF-8
    read = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
    texts, places = scrub(read, "", *directories)
    for number in map(int, places):
        message, field, key = notes[number]
        setattr(message, field, texts[number])
        keys.append(key)
    return keys


def clear_metadata(model: Any) -> None:
    for message in _described(model):
        for field in ("doc_string", "metadata_props"):
            if field in message.DESCRIPTOR.fields_by_name:
                message.ClearField(field)


def _described(model: Any) -> Iterator[Any]:
    for body in containers(model):
        yield from (*body.node, *attributes(body), body, *body.value_info)
        if hasattr(body, "initializer"):
            yield from (*body.input, *body.output)
    yield from (model, *tensors(model))


@contextmanager
def tool(label: str, failure: str, hint: str = "") -> Iterator[None]:
    """A context in which a library prints nothing, and errors become a ConversionError that begins with `failure`.

    If a package is missing, the error becomes a HostError about `label`.
    """
    try:
        with quiet(), silent_runtime():
            yield
    except RegError:
        raise
    except Exception as error:
        raise ConversionError(f"{failure}: {why(refuse_missing(error, label), 300)}", hint) from error


def count_operators(model: Any) -> dict[str, int]:
    """Count the nodes of each operator, also in subgraphs and functions, as `Add` or `com.microsoft:Gelu`."""
    nodes = (node for body in containers(model) for node in body.node)
    names = (node.op_type if node.domain in STANDARD else f"{node.domain}:{node.op_type}" for node in nodes)
    return dict(sorted(Counter(names).items()))


def node_names(model: Any) -> set[str]:
    return {node.name for body in containers(model) for node in body.node if node.name}


def refuse_unknown(kind: str, names: Collection[str] | None, present: Collection[str]) -> None:
    if unknown := sorted(set(names or ()) - set(present)):
        raise InputError(f"the graph has no {kind} called {', '.join(unknown)[:200]}")


def default_opset(model: Any) -> int | None:
    return next((entry.version for entry in model.opset_import if entry.domain in STANDARD), None)


def has_size(dim: Any) -> bool:
    """Return True if an axis is fixed. A size of -1 means a dynamic axis, as many tools write it."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def infer_types(model: Any) -> None:
    """Infer the types of the intermediate values of the main graph, in place."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(without_weights(model), data_prop=True).graph
    clear_value_info(model)
    model.graph.value_info.extend(inferred.value_info)


def clear_value_info(model: Any) -> None:
    for container in containers(model):
        del container.value_info[:]


def inline_functions(model: Any) -> None:
    import onnx.inliner

    if model.functions:
        with tool("inlining", "the local functions cannot be inlined"):
            inlined = onnx.inliner.inline_local_functions(without_weights(model))
        replace_but_weights(model, inlined)
        drop_unused_imports(model)


def drop_unused_imports(model: Any) -> None:
    used = {*STANDARD, *(node.domain for body in containers(model) for node in body.node)}
    imports = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(imports)


def drop_unread_weights(model: Any) -> None:
    """Drop initializers that no node reads, and repeated initializers, in place."""
    bodies = list(within(model.graph))
    read = {name for body in bodies for node in body.node for name in node.input}
    read |= {value.name for body in bodies for value in body.output}
    for body in bodies:
        names = [*enumerate(tensor.name for tensor in body.initializer)]
        first = {name: index for index, name in reversed(names)}
        for index, name in reversed(names):
            if name not in read or first[name] != index:
                del body.initializer[index]


def name_nodes(model: Any) -> None:
    """Name every node that has no name, by its operator and a number."""
    taken, numbers = node_names(model), count()
    for node in (node for body in containers(model) for node in body.node):
        while not node.name:
            name = f"{node.op_type}_{next(numbers)}"
            node.name = "" if name in taken else name


@contextmanager
def edited(model: Any) -> Iterator[Any]:
    """A context with an `onnx_ir.Model` to edit. At its end, the nodes are sorted and written to `model`.

    No weight of the main graph is copied. Types of intermediate values are dropped.
    """
    import onnx_ir as ir

    with tool("onnx_ir", "the graph cannot be edited"):
        view = ir.from_proto(model)
    yield view
    view.graph.sort()
    places = {tensor.name: index for index, tensor in enumerate(model.graph.initializer)}
    weights = view.graph.initializers
    same = {name for name, value in weights.items() if isinstance(value.const_value, ir.TensorProtoTensor)}
    for name in same:
        del weights[name]
    result = ir.to_proto(view)
    del result.opset_import[:]
    result.opset_import.extend(model.opset_import)
    replace_but_weights(model, result, same)
    model.graph.initializer.sort(key=lambda tensor: places.get(tensor.name, len(places)))
    clear_value_info(model)


def factors(view: Any, operators: Collection[str], excluded: Collection[str] = ()) -> list[Any]:
    """Return the floating-point initializers of rank 2 or more that nodes of `operators` multiply.

    A Transpose or Identity may be between the initializer and the node. `excluded` are names of nodes.
    """
    weights: dict[Any, None] = {}
    for node in view.graph.all_nodes():
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
    """Store an array in a graph as `name`, and return its value."""
    import numpy as np
    import onnx_ir as ir

    value = body.initializers.get(name) or ir.Value(name=name)
    value.const_value = ir.tensor(np.asarray(array, order="C"), name=name)
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


def fresh_names(view: Any) -> Callable[[str], str]:
    """Return a function that makes an unused name from a base."""
    taken = {value.name for body in view.graphs() for value in (*body.inputs, *body.initializers.values())}
    taken |= {value.name for node in view.graph.all_nodes() for value in node.outputs}

    def fresh(base: str) -> str:
        numbered = (f"{base}_{number}" for number in count(1))
        name = next(name for name in chain([base], numbered) if name not in taken)
        taken.add(name)
        return name

    return fresh


def drop_second_names(view: Any) -> None:
    """Drop each Identity that only renames a stored tensor, in place."""
    for node in [node for node in view.graph if node.op_type == "Identity"]:
        source, second = node.inputs[0], node.outputs[0]
        if source is not None and source.is_initializer() and not second.is_graph_output():
            second.replace_all_uses_with(source)
            view.graph.remove(node, safe=True)


def fold_transposes(view: Any) -> None:
    """Replace each Transpose of a stored matrix before a MatMul by the transposed matrix, in place."""
    for node in [node for node in view.graph if node.op_type == "Transpose" and not node.domain]:
        matrix, across = node.inputs[0], node.outputs[0]
        is_factor = any(use.node.op_type == "MatMul" and use.idx == 1 for use in across.uses())
        if is_factor and rank_of(matrix) == 2:
            array = matrix.const_value.numpy().transpose(node.attributes.get_ints("perm", (1, 0)))
            folded = store(view.graph, across.name or "", array)
            across.replace_all_uses_with(folded, replace_graph_outputs=True)
            view.graph.remove(node, safe=True)


def unfold_gemms(view: Any, excluded: Collection[str] = (), only_shared: bool = False) -> None:
    """Replace each Gemm with a stored matrix by MatMul and Add, in place. A Gemm with factors other than 1 stays.

    Nodes with names in `excluded` stay. With `only_shared`, a Gemm also stays if no other node reads its matrix.
    """
    gemms = [node for node in view.graph.all_nodes() if node.op_type == "Gemm" and not node.domain]
    readers = {node.inputs[1]: len(node.inputs[1].uses()) for node in gemms if node.inputs[1]}
    fresh, transposed = fresh_names(view), dict[Any, Any]()
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
