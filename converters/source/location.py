"""The directory of a checkpoint: one of the user's, or the snapshot of a commit on the Hugging Face Hub."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from onnxreg.converters.source import hub_files
from onnxreg.converters.source.source_files import CARD, CONFIG, TOKENIZER, weight_files
from onnxreg.schema.core.errors import InputError, NotFoundError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?(?:@[\w./-]+)?")


@dataclass(frozen=True)
class Location:
    """A checkpoint on this machine. `hub_id` and `revision` (a commit) are None for a directory of the user's."""

    directory: Path
    hub_id: str | None = None
    revision: str | None = None


def hub_id(source: str) -> str | None:
    """The hub id that a source names, without its revision; None if it names a directory.

    Raises NotFoundError for a text that is neither a directory nor can be a hub id.
    """
    if Path(source).is_dir():
        return None
    if Path(source).suffix in (".onnx", ".ort") and Path(source).is_file():
        raise NotFoundError(
            f"{source} is a file, not the directory of a checkpoint",
            f"an ONNX file needs no task: reg export {quote(str(source))} --quantize --name NAME",
        )
    if not HUB_ID.fullmatch(source) or Path(source).exists():
        raise NotFoundError(
            f"no such checkpoint directory: {source}", "give a directory or a hub id such as ORG/NAME"
        )
    return source.partition("@")[0]


def locate(source: str, code: bool = False, more: Sequence[str] = ()) -> Location:
    """Find the directory of a checkpoint: a directory as it is, a hub id downloaded.

    Args:
        source: a directory, or `id[@revision]` of a model on the Hugging Face hub.
        code: fetch the repository's Python files too.
        more: patterns of further files to fetch, which may be in directories.

    Raises NotFoundError if there is no such directory or model, RemoteError if the hub cannot be reached, InputError for
    a file that is a link out of the directory.
    """
    name = hub_id(source)
    if name is None:
        directory = Path(source)
        for pattern in ("*", *more):
            for file in directory.glob(pattern):
                check_inside(directory, file)
        return Location(directory)
    revision = source.partition("@")[2] or None
    patterns = [CONFIG, *TOKENIZER, CARD, *(["*.py"] if code else [])]

    def fetch(weights: str) -> Path:
        root_only = [*patterns, weights, f"{weights}.index.json"]
        return hub_files.fetch(name, revision, root_only, ["*/*"], or_directory=True)

    directory = fetch("model*.safetensors")
    if more:
        hub_files.fetch(name, directory.name, more)
    if not weight_files(directory):
        directory = fetch("pytorch_model*.bin")
    return Location(directory, name, directory.name)


def is_snapshot(directory: Path) -> bool:
    """Return True for a commit in a cache of huggingface_hub: its files may be links to `blobs` of that cache."""
    root = directory.resolve().parent.parent
    return directory.resolve().parent.name == "snapshots" and (root / "blobs").is_dir()


def check_inside(directory: Path, file: Path) -> None:
    """InputError if a file is a link out of its directory, but for the form of a cache of huggingface_hub: see `is_snapshot`.

    A cloned directory may link to any file of the user, which would be published.
    """
    real, root = file.resolve(), directory.resolve()
    snapshots = (folder for folder in (root, *root.parents) if is_snapshot(folder))
    is_blob = any(real.parent == snapshot.parent.parent / "blobs" for snapshot in snapshots)
    if file.is_file() and not real.is_relative_to(root) and not is_blob:
        raise InputError(
            f"{file.relative_to(directory).as_posix()} is a link that leads out of {directory.name}",
            "replace the link by the file, or by a hard link",
        )
