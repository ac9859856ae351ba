"""The checkpoints of a family on disk: one head for each class of the backbone, and no other."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from onnxreg.converters.families.head_checkpoints import SUFFIXES, HeadCheckpoint, read_head
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.inputs.family_file import BackboneSpec, HeadsSpec


def member_of(class_id: str) -> str:
    """Name the head of a class."""
    return f"head:{plain(class_id)}"


def plain(class_id: str) -> str:
    """Write a class id as part of a member's name and of paths: `corn (maize)` is `corn-maize`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"[^A-Za-z0-9._-]+$", "", class_id))


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


def _check_named(spec: HeadsSpec, classes: Collection[str]) -> None:
    for key, class_ids in (("none", spec.none), ("classes", spec.classes)):
        if unknown := sorted(set(class_ids) - set(classes)):
            raise InputError(f"heads.{key} names {unknown[0]}, which is not a class of the backbone")


def _files(paths: Sequence[Path], class_ids: Collection[str]) -> dict[str, Path]:
    """Map class ids to checkpoints."""
    files: dict[str, Path] = {}
    for path in paths:
        if path.stem in files:
            raise InputError(
                f"{member_of(path.stem)} has two checkpoints: {files[path.stem].name} and {path.name}"
            )
        if path.stem not in class_ids:
            raise InputError(
                f"{path.name} is the head of no class: {member_of(path.stem)} would be an orphan",
                "take it away, or let the backbone have its class",
            )
        files[path.stem] = path
    return files
