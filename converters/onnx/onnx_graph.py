"""Read ONNX files within limits, run ONNX's checker, and read external data (tensors in files beside a model)."""

import mmap
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.converters.onnx.tensors import MAX_AXES, map_tensor, tensor_bytes, without_weights
from onnxreg.converters.onnx.wire import parse_light
from onnxreg.converters.runtime.sessions import quiet
from onnxreg.converters.source.source_files import digest_file, scrub
from onnxreg.schema.core.errors import InputError, RegError, about, listing, missing_extra, unreadable, why
from onnxreg.schema.core.files import HEAD_BYTES, check_content
from onnxreg.schema.core.ref import check_path

if TYPE_CHECKING:
    import onnx_ir as ir

MAX_NODES = 250_000
MAX_SUBGRAPHS = 10_000  # the maximum number of subgraphs of `If`, `Loop` and `Scan` in a file
MAX_INLINED_BYTES = 512 * 2**20
MAX_CALL_DEPTH = 200  # the greatest depth of calls between local functions, since onnx's inliner is recursive
MAX_DIGITS = 18
DEFAULT_DOMAIN = "ai.onnx"
CONTRIB_DOMAIN = "com.microsoft"
RUNTIME_OPERATORS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""The operators that ONNX Runtime adds to `ai.onnx`, at opsets where ONNX lacks them."""
SOURCE_KEYS = re.compile(r"namespace|pkg\..*")
"""The metadata keys under which PyTorch's exporter records source code."""
Key = tuple[str, str, str]
_HINT = "export the model again, with fewer nested functions and subgraphs"
_listener: ContextVar[Callable[[Path], None] | None] = ContextVar("listener", default=None)


class InvalidGraphError(InputError):
    """A file can be parsed, but its graph is not valid."""


class MissingDataError(InputError):
    """Files of a model's external data (`files`) are missing."""

    def __init__(self, message: str, hint: str, files: Sequence[str]) -> None:
        super().__init__(message, hint)
        self.files = tuple(files)


def load_onnx(path: Path, places: dict[str, int] | None = None) -> Any:
    """Parse an ONNX file (`onnx.ModelProto`) without its external data.

    With `places`, the bytes of large weights are left out, and their offsets in the file are recorded in `places`.
    Raises InputError if the file is not ONNX or exceeds the limits of this module.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise missing_extra("onnx", "onnx", "reading an ONNX file") from error
    opening(path)
    message = f"{path.name} is not an ONNX file, or is cut short"
    unreadable_model = InputError(message, "check its size against the source and copy it again")
    model = onnx.ModelProto()
    try:
        with path.open("rb") as file:
            # A read raises an error if the disk fails; with a mapped file, a signal would end the process.
            check_content(file.read(HEAD_BYTES), path.name)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, memoryview(data) as view:
                if places is None:
                    model.ParseFromString(view)
                else:
                    model, starts = parse_light(view)
                    places.update(starts)
    except OSError as error:
        raise unreadable(path.name, error) from error
    except (
        DecodeError,
        LookupError,
        RuntimeError,
        ValueError,
    ) as error:  # ValueError: an empty file cannot be mapped
        raise unreadable_model from error
    if not (model.HasField("graph") and model.opset_import and model.ir_version and model.graph.output):
        raise unreadable_model
    for item in (item for owner in (model, *model.functions) for item in owner.opset_import):
        if not 0 <= item.version < 2**31:
            version = f"version {item.version} of {(item.domain or DEFAULT_DOMAIN)[:80]!r}"
            raise InputError(f"{path.name} imports {version}, which no operator set has")
    check_expansion(model, path)
    if any(len(tensor.dims) > MAX_AXES for tensor in tensors(model)):
        raise InputError(f"{path.name} has a tensor with more than {MAX_AXES} axes")
    return model


@contextmanager
def notify_listener(listener: Callable[[Path], None]) -> Iterator[None]:
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def opening(path: Path) -> None:
    if listener := _listener.get():
        listener(path)


def check_expansion(model: Any, path: Path) -> None:
    """Raise InputError if a model (`onnx.ModelProto`) exceeds the limits of this module after inlining.

    Time and memory are linear in the size of the file, not of the inlined model.
    """
    bodies: dict[Key | None, Any] = {_key(one.domain, one.name, one.overload): one for one in model.functions}
    if len(bodies) != len(model.functions):
        raise InputError(f"{path.name} is not a valid graph: two local functions have one name")
    bodies[None] = model.graph
    measured = {key: _measure(body, bodies) for key, body in bodies.items()}
    if sum(subgraphs for _, subgraphs, _ in measured.values()) > MAX_SUBGRAPHS:
        raise InputError(f"{path.name} has more than {MAX_SUBGRAPHS:,} subgraphs", _HINT)
    extents: dict[Key | None, tuple[int, int, int]] = {}
    calls_of = {key: calls for key, (_, _, calls) in measured.items()}
    try:
        order = list(TopologicalSorter(calls_of).static_order())
    except CycleError as error:
        raise InputError(f"{path.name} is not a valid graph: a local function calls itself") from error
    for key in order:
        nodes, _, calls = measured[key]
        size, depth = 0 if key is None else sum(node.ByteSize() for node in bodies[key].node), 0
        for called, times in calls.items():
            inner_nodes, inner_size, inner_depth = extents[called]
            nodes += times * inner_nodes
            size += times * inner_size
            depth = max(depth, inner_depth)
        extents[key] = nodes, size, depth + 1
        how = " once its local functions are inlined" if calls else ""
        if nodes > MAX_NODES:
            raise InputError(f"{path.name} has more than {MAX_NODES:,} nodes{how}", _HINT)
        if size > MAX_INLINED_BYTES:
            limit = MAX_INLINED_BYTES // 2**20
            raise InputError(f"{path.name} has more than {limit} MiB of nodes{how}", _HINT)
        if depth >= MAX_CALL_DEPTH:
            calling = f"local functions that call each other more than {MAX_CALL_DEPTH} deep"
            raise InputError(f"{path.name} has {calling}", _HINT)


def _measure(body: Any, functions: Collection[Key | None]) -> tuple[int, int, Counter[Key | None]]:
    """Count the nodes and subgraphs of a graph or function, and its calls of functions. Stop at the limits."""
    count, graphs, calls = 0, -1, Counter[Key | None]()
    for graph in within(body):
        graphs += 1
        count += len(graph.node)
        if count > MAX_NODES or graphs > MAX_SUBGRAPHS:
            break
        keys = (_key(node.domain, node.op_type, node.overload) for node in graph.node)
        calls.update(key for key in keys if key in functions)
    return count, graphs, calls


def _key(domain: str, name: str, overload: str) -> Key:
    return ("" if domain == DEFAULT_DOMAIN else domain, name, overload)


def external_files(model: Any, path: Path) -> tuple[str, ...]:
    """Return the paths of a model's external data, relative to the folder of `path`.

    Raises InputError if a file is outside the folder or too short, and MissingDataError if a file is missing.
    """
    ends: dict[str, int] = {}
    for tensor in tensors(model):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        if any(dim < 0 for dim in tensor.dims):
            raise InputError(f"tensor {tensor.name[:80]!r} of {path.name} has a negative dimension")
        keys = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        location, numbers = keys.get("location", ""), [keys.get(key) or "0" for key in ("offset", "length")]
        with about(
            f"{path.name} keeps tensors in {location[:80]!r}, which is not a file beside it",
            hint="save the model again with its external data in the same directory",
        ):
            location = check_path(location.removeprefix("./"))
        if not all(one.isascii() and one.isdecimal() and len(one) <= MAX_DIGITS for one in numbers):
            raise InputError(f"{path.name} has an external tensor whose offset or length is not a number")
        start, length = map(int, numbers)
        size = tensor_bytes(tensor)
        if size and length not in (0, size):
            raise InputError(
                f"tensor {tensor.name[:80]!r} of {path.name} needs {size} bytes of {location}, it names {length}"
            )
        ends[location] = max(ends.get(location, 0), start + max(length, size))
    homes = (path.parent.resolve(), path.resolve().parent)
    for location in ends:
        real = (path.parent / location).resolve()
        if not any(real.is_relative_to(home) for home in homes):
            message = f"{path.name} keeps tensors in {location}, a link that leads out of its folder"
            raise InputError(message, "put the external data file itself beside the model")
    if missing := sorted(location for location in ends if not (path.parent / location).is_file()):
        raise MissingDataError(
            f"{path.name} keeps tensors in {listing(missing, 1, None)}, which is missing",
            "put the external data back beside the model; it belongs to the same export",
            [str(path.parent / location) for location in missing],
        )
    for location, end in ends.items():
        file = path.parent / location
        if (size := file.stat().st_size) < end:
            with file.open("rb") as data:
                check_content(data.read(HEAD_BYTES), location)
            raise InputError(
                f"{location} is cut short: {path.name} reads up to byte {end}, it has {size}",
                "copy the external data file again; it must come from the same export as the model",
            )
        opening(file)
    return tuple(sorted(ends))


def external_digests(files: Iterable[Path]) -> dict[str, tuple[str, ...]]:
    """Map the digest of each ONNX file with external data to the digests of its data files, sorted by path."""
    names = {file: external_files(load_onnx(file), file) for file in files if file.suffix == ".onnx"}
    data = {file: tuple(str(digest_file(file.parent / name)) for name in names[file]) for file in names}
    return {str(digest_file(file)): digests for file, digests in data.items() if digests}


def check_model(model: Any, path: Path) -> None:
    """Raise InputError if ONNX's checker refuses a loaded file, or if its external data is not valid."""
    import onnx

    external_files(model, path)
    light = without_weights(model)
    for tensor in tensors(light):
        if tensor.data_location == tensor.EXTERNAL:
            tensor.raw_data = bytes(tensor_bytes(tensor))
            tensor.ClearField("data_location")
            del tensor.external_data[:]
    try:
        check_light(light)
    except onnx.checker.ValidationError as error:
        raise InputError(f"{path.name} is not valid ONNX: {why(error)}") from error


def check_light(light: Any) -> None:
    """Run ONNX's checker on a model without large weights. The model is changed."""
    import onnx

    for node in (node for body in containers(light) for node in body.node):
        if node.domain in ("", DEFAULT_DOMAIN) and node.op_type in RUNTIME_OPERATORS:
            node.domain = CONTRIB_DOMAIN
    if all(entry.domain != CONTRIB_DOMAIN for entry in light.opset_import):
        light.opset_import.add(domain=CONTRIB_DOMAIN, version=1)
    onnx.checker.check_model(light)


def read_graph(model: Any, path: Path, places: Mapping[str, int] | None = None) -> "ir.Model":
    """Convert a loaded file to onnx_ir. External data is mapped, and the `version` of each node is its opset.

    `places` is from `load_onnx`. Raises InputError if the graph or its external data is invalid, or has sparse tensors.
    """
    import numpy as np
    import onnx_ir as ir

    external_files(model, path)
    maps = cache(partial(np.memmap, dtype=np.uint8, mode="r"))  # one for a file: each keeps it open

    def map_external(tensor: Any) -> Any:
        file = path.parent / tensor.location
        data = maps(file) if tensor.size else np.empty(0, np.uint8)
        return map_tensor(tensor, file, tensor.offset or 0, data)

    with valid_graph(path):
        for body in (model, *model.functions):
            if len({item.domain or DEFAULT_DOMAIN for item in body.opset_import}) < len(body.opset_import):
                raise ValueError("two versions of one operator set are imported")
        graph = _to_ir(model)
        bodies, functions = [*graph.graphs()], graph.functions.values()
        for function in functions:
            bodies += [function.graph, *function.subgraphs()]
        for value in (value for body in bodies for value in body.initializers.values()):
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value = map_external(value.const_value)
        holders: list[Any] = [*functions, *(node for body in bodies for node in body)]
        for holder, name, item in ((one, *pair) for one in holders for pair in one.attributes.items()):
            if isinstance(item.value, ir.ExternalTensor):
                holder.attributes[name] = ir.AttrTensor(name, map_external(item.value))
        for name, start in (places or {}).items():
            value = graph.graph.initializers[name]
            value.const_value = map_tensor(value.const_value, path, start, maps(path))
        return graph


@contextmanager
def valid_graph(path: Path) -> Iterator[None]:
    """A context that turns a library's error about a graph into an InvalidGraphError with the file's name."""
    try:
        yield
    except RegError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = str(cause)[:200]
        if reason.startswith("Map types"):
            reason = "it has values that are maps; export the classifier without them (zipmap: False)"
        raise InvalidGraphError(f"{path.name} is not a valid graph: {reason}") from error


def _to_ir(model: Any) -> "ir.Model":
    import onnx_ir as ir

    for graph in containers(model):
        if not all(isinstance(name, str) for node in graph.node for name in (node.op_type, node.domain)):
            raise ValueError("the name of an operator is not UTF-8")
        if any(item.type == item.UNDEFINED and not item.ref_attr_name for item in attributes(graph)):
            raise ValueError("an attribute has no type")
        if any(one.data_location == one.EXTERNAL for item in attributes(graph) for one in item.tensors):
            raise ValueError("a list of tensors is in another file")
        if not hasattr(graph, "initializer"):
            continue
        if graph.sparse_initializer:
            raise ValueError("it has sparse tensors; save it with dense ones")
        names = Counter(item.name for item in graph.initializer)
        if twice := [name for name, times in names.items() if times > 1]:
            raise ValueError(f"two stored tensors have the name {twice[0][:80]!r}")
        names.update(item.name for item in graph.input)
        names.update(name for node in graph.node for name in node.output)
        if graph is not model.graph and any(item.name not in names for item in graph.output):
            raise ValueError("a subgraph returns a value that it does not make: add an Identity")
    with quiet():  # warnings without the file's name
        result = ir.serde.deserialize_model(model)
    bodies: list[Any] = [result.graph, *result.functions.values()]
    for body in bodies:
        versions = {domain or DEFAULT_DOMAIN: version for domain, version in body.opset_imports.items()}
        for node in ir.traversal.RecursiveGraphIterator(body):
            node.version = versions.get(node.domain or DEFAULT_DOMAIN, 1)
    return result


def operator_nodes(model: Any, path: Path) -> list["ir.Node"]:
    """Return every node that runs, in order, with inferred types. Calls of local functions are inlined.

    Large weights become inputs. Raises InputError if types contradict each other.
    """
    import onnx.inliner
    import onnx.shape_inference

    with valid_graph(path):
        light = without_weights(model)
        del light.graph.value_info[:]
        if light.functions:
            light = onnx.inliner.inline_local_functions(light)
        light = onnx.shape_inference.infer_shapes(light)
        names = {value.name for value in light.graph.value_info}
        light.graph.value_info.extend(value for value in model.graph.value_info if value.name not in names)
        typed = _to_ir(light)
        return list(_running(typed.graph, typed.functions))


def _running(body: Any, functions: Mapping[Key, Any]) -> Iterator["ir.Node"]:
    """Yield the nodes of a graph or function, with subgraphs. The nodes of a called function replace the call."""
    for node in body.all_nodes():
        function = functions.get(node.op_identifier())
        if function is None:
            yield node
        else:
            yield from _running(function, functions)


@lru_cache(maxsize=4096)
def find_schema(domain: str, name: str, opset: int) -> Any | None:
    """Return the definition of an operator at an opset (`onnx.defs.OpSchema`); None if onnx lacks it."""
    import onnx.defs

    try:
        return onnx.defs.get_schema(name, opset, "" if domain == DEFAULT_DOMAIN else domain)
    except onnx.defs.SchemaError:
        return None


def is_variadic(parameter: Any) -> bool:
    return bool(parameter.option == type(parameter.option).Variadic)


def tensors(model: Any) -> Iterator[Any]:
    """Yield every dense tensor in a model: initializers and attributes, also in subgraphs and functions."""
    for body in containers(model):
        yield from getattr(body, "initializer", ())
        for attribute in attributes(body):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def containers(model: Any) -> Iterator[Any]:
    """Yield the graph, the functions and all subgraphs of a model."""
    for body in (model.graph, *model.functions):
        yield from within(body)


def within(body: Any) -> Iterator[Any]:
    """Yield a graph or function and every subgraph in it."""
    waiting = [body]
    while waiting:
        container = waiting.pop()
        yield container
        for item in attributes(container):
            waiting += [item.g, *item.graphs] if item.HasField("g") else item.graphs


def attributes(body: Any) -> Iterator[Any]:
    """Yield the attributes of all nodes of a graph or function, and a function's default values."""
    for node in body.node:
        yield from node.attribute
    yield from getattr(body, "attribute_proto", ())


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


def _described(model: Any) -> Iterator[Any]:
    for body in containers(model):
        yield from (*body.node, *attributes(body), body, *body.value_info)
        if hasattr(body, "initializer"):
            yield from (*body.input, *body.output)
    yield from (model, *tensors(model))
