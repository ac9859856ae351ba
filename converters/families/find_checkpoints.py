"""The checkpoints of a family, found: one head for each class of the backbone, and none beside."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from onnxreg.converters.families.head_checkpoints import SUFFIXES, HeadCheckpoint, read_head
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.inputs.family_file import BackboneSpec, HeadsSpec


def member_of(class_id: str) -> str:
    """The name of the head of a class."""
    return f"head:{plain(class_id)}"


def plain(class_id: str) -> str:
    """A class id as part of a member's name and of paths: `corn (maize)` is `corn-maize`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", re.sub(r"[^A-Za-z0-9._-]+$", "", class_id))


def checkpoint_of(asked: BackboneSpec, directory: Path) -> Path:
    """The directory of the backbone's checkpoint, or the file that goes with its factory; NotFoundError if there is none."""
    found = directory / asked.checkpoint
    if asked.factory is not None and not found.is_file():
        raise NotFoundError(f"backbone: there is no checkpoint file {asked.checkpoint}")
    if asked.factory is None and not found.is_dir():
        raise NotFoundError(f"backbone: there is no checkpoint directory {asked.checkpoint}")
    return found


def head_files(asked: HeadsSpec, directory: Path) -> list[Path]:
    """What lies in the folder of heads, hidden files aside, sorted; NotFoundError where there is no folder."""
    folder = directory / asked.folder
    if not folder.is_dir():
        raise NotFoundError(f"there is no folder of heads at {asked.folder}")
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def read_heads(
    asked: HeadsSpec, directory: Path, classes: Sequence[str], width: int
) -> dict[str, HeadCheckpoint]:
    """The head of each class of the backbone that has one, by class id, in the backbone's order.

    Args:
        directory: what the folder is relative to.
        width: of the backbone's embedding.

    Raises NotFoundError where the folder or a head is missing, InputError where a checkpoint belongs to no class, a class is
    named that there is not, a class has two heads, a head reads another width, and as `read_head` does; each names the head.
    """
    found = head_files(asked, directory)
    _check_named(asked, classes)
    files = _files(found, set(classes) - set(asked.none))
    heads = {}
    for class_id in classes:
        if class_id in asked.none:
            continue
        path = files.get(class_id, directory / asked.folder / f"{class_id}{SUFFIXES[0]}")
        head = read_head(path, member_of(class_id), asked.classes.get(class_id))
        if head.width != width:
            raise InputError(
                f"{head.name} reads embeddings of width {head.width}, the backbone gives {width}"
            )
        heads[class_id] = head
    return heads


def _check_named(asked: HeadsSpec, classes: Collection[str]) -> None:
    for key, named in (("none", asked.none), ("classes", asked.classes)):
        if strange := sorted(set(named) - set(classes)):
            raise InputError(f"heads.{key} names {strange[0]}, which is no class of the backbone")


def _files(found: Sequence[Path], wanted: Collection[str]) -> dict[str, Path]:
    """The checkpoints in a folder by class id."""
    files: dict[str, Path] = {}
    for path in found:
        if path.stem in files:
            raise InputError(
                f"{member_of(path.stem)} has two checkpoints: {files[path.stem].name} and {path.name}"
            )
        if path.stem not in wanted:
            raise InputError(
                f"{path.name} is the head of no class: {member_of(path.stem)} would be an orphan",
                "take it away, or let the backbone have its class",
            )
        files[path.stem] = path
    return files
