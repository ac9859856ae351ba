"""The checkpoints of a family on disk: its backbone, and one head for each class and no other. Never a pickle.

A head has its weights, and the classes that its training recorded.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from onnxreg.converters.runtime.npz import check_finite, read_arrays
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.inputs.family_file import BackboneSpec, HeadsSpec

SUFFIXES = (".safetensors", ".npz", ".pth", ".pt")
MAX_NAME = 64
"""Characters of a part of a member's name."""
T = TypeVar("T")
HEAD_FORMAT_HINT = "save the head as safetensors, with its classes and their training rows in the metadata"


@dataclass(frozen=True)
class Layer:
    """`y = x W^T + b`: `weight` is float32 `[out, in]`, `bias` float32 `[out]`."""

    weight: Any
    bias: Any


@dataclass(frozen=True)
class HeadCheckpoint:
    """Linear layers with an activation between them; the last one's `classes`.

    `rows` are the training rows of each class, none if the checkpoint does not record them.
    """

    name: str
    layers: tuple[Layer, ...]
    classes: tuple[str, ...]
    rows: tuple[int, ...]

    @property
    def width(self) -> int:
        """The width of the embedding that it reads."""
        return int(self.layers[0].weight.shape[1])

    def logits(self, rows: Any, activation: str) -> Any:
        """Compute the logits of embeddings `[n, width]` in float64: the reference of its graphs."""
        import numpy as np

        value = rows.astype(np.float64)
        for index, layer in enumerate(self.layers):
            if index:
                value = np.tanh(value) if activation == "Tanh" else np.maximum(value, 0.0)
            value = value @ layer.weight.T.astype(np.float64) + layer.bias
        return value


def read_heads(
    spec: HeadsSpec, directory: Path, classes: Sequence[str], width: int
) -> dict[str, HeadCheckpoint]:
    """Read the heads by class id, in the order of the backbone's classes.

    Args:
        directory: base of the folder's path.
        width: the width of the backbone's embedding.

    Raises NotFoundError if the folder or a head is missing, InputError if a checkpoint belongs to no class,
    the document names an unknown class, a class has two heads or a head reads another width, and what
    `read_head` raises. Each error names the head.
    """
    paths = head_files(spec, directory)
    _check_named(spec, classes)
    files = _files(paths, set(classes) - set(spec.none))
    heads = {}
    for class_id in classes:
        if class_id in spec.none:
            continue
        path = files.get(class_id, directory / spec.folder / f"{class_id}{SUFFIXES[0]}")
        head = read_head(path, member_of(class_id), spec.classes.get(class_id))
        if head.width != width:
            raise InputError(
                f"{head.name} reads embeddings of width {head.width}, the backbone gives {width}"
            )
        heads[class_id] = head
    return heads


def read_head(path: Path, name: str, classes: Sequence[str] | None = None) -> HeadCheckpoint:
    """Read `.safetensors`, `.npz`, or `.pth` with plain weights. Errors call it `name`.

    `classes` and `rows` (training rows of each class) are recorded in the metadata of safetensors as JSON
    lists, in an `.npz` as arrays, in a `.pth` beside `state_dict`.

    Args:
        classes: the classes of the document, in order; they must be the recorded ones, if any are recorded.

    Raises NotFoundError for a missing file, InputError if it has Python objects, its layers do not fit each
    other, a weight is NaN or infinite, or its classes are not known, differ, or have no training rows.
    """
    if not path.is_file():
        raise NotFoundError(
            f"{name}: there is no checkpoint {path.name}", "name its class under heads.none if that is meant"
        )
    tensors, notes = _read(path, name)
    layers = _layers(tensors, name)
    columns = len(layers[-1].bias)
    if not {"classes", "rows"} & notes.keys():
        if classes is None or len(set(classes)) != columns:
            example = ", ".join(f"CLASS_{number}" for number in range(1, min(columns, 2) + 1))
            raise InputError(
                f"{name}: its checkpoint does not record its {columns} classes"
                + ("" if classes is None else f", and heads.classes names {len(set(classes))}"),
                f"write all {columns} in the order of training into the family file: "
                f"heads: {{classes: {{{json.dumps(path.stem, ensure_ascii=False)}: [{example}, ...]}}}}",
            )
        return HeadCheckpoint(name, layers, tuple(classes), ())
    recorded = _recorded(notes, name, columns)
    if classes is not None and tuple(classes) != recorded[0]:
        raise InputError(
            f"{name}: the classes asked for are not in the order of training",
            f"it was trained on {', '.join(recorded[0])[:300]}",
        )
    return HeadCheckpoint(name, layers, *recorded)


def member_of(class_id: str) -> str:
    """Name the head of a class."""
    return f"head:{plain(class_id)}"


def plain(class_id: str) -> str:
    """Write a class id as part of a member's name and of paths: `corn (maize)` is `corn-maize`, `maïs` is `mais`.

    A letter without a form in ASCII is its code point, in hexadecimal; what is too long for a name ends in a digest.
    """
    letters = "".join(
        f"{ord(letter):x}" if letter.isalnum() and not letter.isascii() else letter
        for letter in unicodedata.normalize("NFKD", class_id)
        if not unicodedata.combining(letter)
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"[^A-Za-z0-9._-]+$", "", letters))
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 13]}-{Digest.of(class_id.encode()).hex[:12]}"


def checkpoint_of(spec: BackboneSpec, directory: Path) -> Path:
    """Locate the checkpoint: a directory, or a file with a factory. NotFoundError if it is missing."""
    path = directory / spec.checkpoint
    if spec.factory is not None and not path.is_file():
        raise NotFoundError(f"backbone: there is no checkpoint file {spec.checkpoint}")
    if spec.factory is None and not path.is_dir():
        raise NotFoundError(f"backbone: there is no checkpoint directory {spec.checkpoint}")
    return path


def head_files(spec: HeadsSpec, directory: Path) -> list[Path]:
    """List the folder of heads without hidden files, sorted; NotFoundError if it is missing."""
    folder = directory / spec.folder
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder of heads at {spec.folder}")
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _read(path: Path, name: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    if path.suffix == ".safetensors":
        return _read_safetensors(path, name)
    if path.suffix == ".npz":
        arrays = read_arrays(path, f"{name}: {path.name}")
        notes: dict[str, Any] = {
            key: arrays.pop(key).tolist() for key in ("classes", "rows") if key in arrays
        }
        return arrays, notes
    if path.suffix in (".pth", ".pt"):
        return _read_torch(path, name)
    raise InputError(
        f"{name}: {path.name} must end in one of {', '.join(SUFFIXES)}; a pickle is never read",
        HEAD_FORMAT_HINT,
    )


def _read_safetensors(path: Path, name: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    from safetensors import safe_open

    try:
        with safe_open(path, "numpy") as file:
            notes = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return tensors, {key: json.loads(notes[key]) for key in ("classes", "rows") if key in notes}
    except Exception as error:
        raise InputError(
            f"{name}: {path.name} is not a safetensors file of plain floats", HEAD_FORMAT_HINT
        ) from error


def _read_torch(path: Path, name: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    import torch

    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise InputError(
            f"{name}: {path.name} holds more than tensors and was not loaded", HEAD_FORMAT_HINT
        ) from error
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    others = content if state is not None and state is not content else {}
    for key, value in others.items():
        if isinstance(value, torch.Tensor):
            raise InputError(
                f"{name}: {path.name} has a tensor beside its state_dict: {key}", HEAD_FORMAT_HINT
            )
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in state.items()
    ):
        raise InputError(f"{name}: {path.name} is not a state dict", HEAD_FORMAT_HINT)
    for key, value in state.items():
        if not value.is_floating_point() or value.layout != torch.strided or value.is_meta:
            raise InputError(
                f"{name}: {key} is not a plain tensor of floats: {value.dtype}", HEAD_FORMAT_HINT
            )
    return {key: value.detach().float().numpy() for key, value in state.items()}, content


def _layers(tensors: Mapping[str, Any], name: str) -> tuple[Layer, ...]:
    """Pair `*weight` and `*bias`, in natural order: `0.weight`, `2.weight`, `10.weight`."""
    import numpy as np

    for key, array in tensors.items():
        if not np.issubdtype(array.dtype, np.floating):
            raise InputError(f"{name}: {key} is {array.dtype}, no float", HEAD_FORMAT_HINT)
        check_finite(array, f"{name}: {key}")
    stems = sorted((key.removesuffix("weight") for key in tensors if key.endswith("weight")), key=_natural)
    if not stems or {f"{stem}{part}" for stem in stems for part in ("weight", "bias")} != set(tensors):
        raise InputError(
            f"{name}: not a stack of linear layers, each with weight and bias: "
            f"{', '.join(sorted(tensors))[:200]}"
        )
    layers = [
        Layer(*(np.ascontiguousarray(tensors[f"{stem}{part}"], np.float32) for part in ("weight", "bias")))
        for stem in stems
    ]
    inputs = None
    for stem, layer in zip(stems, layers, strict=True):
        if (
            layer.weight.ndim != 2
            or layer.bias.shape != layer.weight.shape[:1]
            or inputs not in (None, layer.weight.shape[1])
        ):
            raise InputError(
                f"{name}: the shapes of {stem}weight and {stem}bias do not fit what comes before"
            )
        inputs = layer.weight.shape[0]
    return tuple(layers)


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", text)]


def _recorded(notes: Mapping[str, Any], name: str, columns: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    classes, rows = notes.get("classes"), notes.get("rows")
    if not _is_list(classes, str) or not _is_list(rows, int):
        raise InputError(
            f"{name}: its checkpoint does not record its classes and their training rows", HEAD_FORMAT_HINT
        )
    if len(set(classes)) != len(classes) or len(classes) != columns or len(rows) != columns:
        raise InputError(
            f"{name} has {columns} outputs, and {len(set(classes))} classes with {len(rows)} counts of rows "
            "recorded"
        )
    if unusable := [class_id for class_id in classes if not _is_class_id(class_id)]:
        raise InputError(
            f"{name}: {ascii(unusable[0])[:80]} cannot be the id of a class", "1 to 200 characters"
        )
    if empty := [class_id for class_id, count in zip(classes, rows, strict=True) if count < 1]:
        raise InputError(
            f"{name}: the class {empty[0]} has no training rows",
            "leave the class out and train the head again",
        )
    return tuple(classes), tuple(rows)


def _is_class_id(text: str) -> bool:
    """Tell if a manifest can have it as a `ClassId`."""
    return 1 <= len(text) <= 200 and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _is_list(value: Any, kind: type[T]) -> TypeGuard[list[T]]:
    return isinstance(value, list) and all(
        isinstance(item, kind) and not isinstance(item, bool) for item in value
    )


def _check_named(spec: HeadsSpec, classes: Collection[str]) -> None:
    for key, class_ids in (("none", spec.none), ("classes", spec.classes)):
        if unknown := sorted(set(class_ids) - set(classes)):
            raise InputError(f"heads.{key} names {unknown[0]}, which is not a class of the backbone")


def _files(paths: Sequence[Path], class_ids: Collection[str]) -> dict[str, Path]:
    """Map class ids to checkpoints."""
    files: dict[str, Path] = {}
    ids = {unicodedata.normalize("NFC", class_id): class_id for class_id in class_ids}
    for path in paths:
        class_id = ids.get(unicodedata.normalize("NFC", path.stem))
        if class_id in files:
            raise InputError(
                f"{member_of(class_id)} has two checkpoints: {files[class_id].name} and {path.name}"
            )
        if class_id is None:
            raise InputError(
                f"{path.name} is the head of no class: {member_of(path.stem)} would be an orphan",
                "take it away, or let the backbone have its class",
            )
        files[class_id] = path
    return files
