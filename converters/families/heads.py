"""Heads: linear layers that classify the backbone's embedding. They are read from safetensors and written as graphs."""

import json
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime.golden import check_finite
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.inputs.family_file import HeadsSpec

SUFFIX = ".safetensors"
MAX_NAME = 64
FORMAT_HINT = "save the head as safetensors, with its classes as a JSON list in the metadata"
BATCH = "batch"


@dataclass(frozen=True)
class Head:
    """The linear layers of a head, with an activation between them. Each layer is `x @ weight.T + bias`.

    `layers` are pairs of `weight` (float32 `[out, in]`) and `bias`. `classes` are in the order of the logits.
    """

    name: str
    layers: tuple[tuple[Any, Any], ...]
    classes: tuple[str, ...]

    @property
    def width(self) -> int:
        return int(self.layers[0][0].shape[1])

    def logits(self, rows: Any, activation: str) -> Any:
        """Compute the logits of embeddings `[n, width]` in float64."""
        import numpy as np

        value = rows.astype(np.float64)
        for index, (weight, bias) in enumerate(self.layers):
            if index:
                value = np.tanh(value) if activation == "Tanh" else np.maximum(value, 0.0)
            value = value @ weight.T.astype(np.float64) + bias
        return value


def plain(class_id: str) -> str:
    """Convert a class id to a name: `corn (maïs)` to `corn-mais`. If the name is empty or too long, return a digest."""
    letters = unicodedata.normalize("NFKD", class_id).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", letters).strip("-._")
    return name if 0 < len(name) <= MAX_NAME else Digest.of(class_id.encode()).hex[:12]


def member_of(class_id: str) -> str:
    """Return the name of a class's head among the members, such as `head:apple`."""
    return f"head:{plain(class_id)}"


def head_files(spec: HeadsSpec, directory: Path) -> list[Path]:
    """Return the visible files in the folder of heads, sorted. Raise NotFoundError if the folder is missing."""
    folder = directory / spec.folder
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder of heads at {spec.folder}")
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def read_heads(spec: HeadsSpec, directory: Path, classes: Collection[str], width: int) -> dict[str, Head]:
    """Read all heads. Return them by class id, in the order of the backbone's `classes`.

    Raises NotFoundError if the folder or a head is missing, and the errors of `read_head`. Raises InputError if a class
    is unknown, or if a head does not take embeddings of this `width`.
    """
    for key, class_ids in (("none", spec.none), ("classes", spec.classes)):
        if unknown := sorted(set(class_ids) - set(classes)):
            raise InputError(f"heads.{key} names {unknown[0]}, which is not a class of the backbone")
    files = {unicodedata.normalize("NFC", path.name): path for path in head_files(spec, directory)}
    heads = {}
    for class_id in classes:
        if class_id in spec.none:
            continue
        name = member_of(class_id)
        file = files.pop(unicodedata.normalize("NFC", f"{class_id}{SUFFIX}"), None)
        if file is None:
            hint = f"{FORMAT_HINT}; or name its class under heads.none"
            raise NotFoundError(f"{name}: there is no checkpoint {class_id}{SUFFIX}", hint)
        heads[class_id] = head = read_head(file, name, spec.classes.get(class_id))
        if head.width != width:
            raise InputError(f"{name} reads embeddings of width {head.width}, the backbone gives {width}")
    if orphan := next(iter(files), None):
        hint = f"heads are called CLASS{SUFFIX}, a class of the backbone each"
        raise InputError(f"{orphan} is the head of no class", hint)
    return heads


def read_head(path: Path, name: str, classes: Sequence[str] | None = None) -> Head:
    """Read a head from safetensors: layers with `weight` and `bias`, and the classes in the metadata.

    `classes` are those of the family's document, in order. If the file has classes too, they must be the same. Raises
    InputError if the file, its layers, its weights or its classes are invalid. `name` is for messages.
    """
    import numpy as np
    from safetensors import safe_open

    try:
        with safe_open(path, "numpy") as file:
            notes = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            recorded = json.loads(notes["classes"]) if "classes" in notes else None
    except Exception as error:
        raise InputError(f"{name}: {path.name} is not a safetensors file of floats", FORMAT_HINT) from error
    for key, array in tensors.items():
        if array.dtype.kind != "f":
            raise InputError(f"{name}: {key} is {array.dtype}, no float", FORMAT_HINT)
        check_finite(array, f"{name}: {key}")
    stems = sorted((key.removesuffix("weight") for key in tensors if key.endswith("weight")), key=_natural)
    if not stems or {f"{stem}{part}" for stem in stems for part in ("weight", "bias")} != set(tensors):
        raise InputError(
            f"{name}: not a stack of linear layers, each with weight and bias: {', '.join(sorted(tensors))[:200]}"
        )
    layers: list[tuple[Any, Any]] = []
    for stem in stems:
        weight, bias = (np.ascontiguousarray(tensors[stem + part], np.float32) for part in ("weight", "bias"))
        follows = not layers or weight.shape[1:] == layers[-1][1].shape
        if weight.ndim != 2 or bias.shape != weight.shape[:1] or not follows:
            raise InputError(f"{name}: the shapes of {stem}weight and {stem}bias do not fit the layer before")
        layers.append((weight, bias))
    return Head(name, tuple(layers), _classes(recorded, classes, name, len(layers[-1][1]), path.stem))


def _classes(
    recorded: Any, stated: Sequence[str] | None, name: str, columns: int, class_id: str
) -> tuple[str, ...]:
    """Return the classes of the file, or else of the document. Raise InputError if their names or number are wrong."""
    ids = stated if recorded is None else recorded
    usable = isinstance(ids, list | tuple) and all(
        isinstance(text, str) and text.isprintable() and 0 < len(text) <= 200 for text in ids
    )
    if ids is None or not usable or len(set(ids)) != columns or len(ids) != columns:
        example = ", ".join(f"CLASS_{number}" for number in range(1, min(columns, 2) + 1))
        raise InputError(
            f"{name} has {columns} outputs, and its classes are not as many names",
            f"write all {columns} in the order of training into the family file: "
            f"heads: {{classes: {{{json.dumps(class_id, ensure_ascii=False)}: [{example}, ...]}}}}",
        )
    if stated is not None and tuple(stated) != tuple(ids):
        hint = f"it was trained on {', '.join(ids)[:300]}"
        raise InputError(f"{name}: the classes asked for are not in the order of training", hint)
    return tuple(ids)


def _natural(text: str) -> list[tuple[int, str]]:  # `2.` before `10.`
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", text)]


def make_graph(
    name: str,
    nodes: Sequence[Any],
    weights: Mapping[str, Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    opset: int,
) -> Any:
    """Make an `onnx_ir.Model` with the oldest IR version that has the opset."""
    import onnx_ir as ir
    from onnx import helper, numpy_helper

    initializers = [numpy_helper.from_array(array, key) for key, array in weights.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, initializer=initializers)
    opsets = [helper.make_opsetid("", opset)]
    return ir.from_proto(helper.make_model_gen_version(graph, producer_name="onnxreg", opset_imports=opsets))


def head_graph(head: Head, activation: str, input_name: str, output_name: str, opset: int) -> Any:
    """Make the graph from an embedding `[batch, width]` to logits `[batch, classes]`."""
    from onnx import TensorProto
    from onnx.helper import make_node, make_tensor_value_info

    weights: dict[str, Any] = {}
    nodes, value = [], input_name
    for index, (weight, bias) in enumerate(head.layers):
        at = f"layers.{index}"
        if index:
            nodes.append(make_node(activation, [value], [f"{at}.in"], f"{at}.activation"))
            value = f"{at}.in"
        weights |= {f"{at}.weight": weight, f"{at}.bias": bias}
        output = output_name if index == len(head.layers) - 1 else f"{at}.sum"
        nodes.append(make_node("Gemm", [value, f"{at}.weight", f"{at}.bias"], [output], at, transB=1))
        value = output
    embedding = make_tensor_value_info(input_name, TensorProto.FLOAT, [BATCH, head.width])
    logits = make_tensor_value_info(output_name, TensorProto.FLOAT, [BATCH, len(head.classes)])
    return make_graph("head", nodes, weights, [embedding], [logits], opset)
