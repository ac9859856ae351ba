"""The files of a repository on the Hugging Face Hub that `reg import` takes, through the normal cache of huggingface_hub."""

import re
import shutil
from collections.abc import Collection
from glob import escape
from pathlib import Path, PurePath

from onnxreg.converters.source.source_files import Location, digest_file, hub_errors
from onnxreg.schema.core.errors import (
    Advice,
    InputError,
    IntegrityError,
    missing_extra,
)

SCHEME = "hf://"
URL = re.compile(r"hf://(?P<id>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?/?")
PATTERNS = (
    "*.onnx",
    "*.ort",
    "*.onnx_data*",
    "*.onnx.data*",
    "*.json",
    "*.jinja",
    "*.txt",
    "*.model",
    "*.spm",
    "[0-9]*_*/model.safetensors",
    "*.tiktoken",
    "*.config",
    "README.md",
)
"""Graphs with their external data, and all that may be a companion."""
REGISTRY = "registry.json"


def fetch_repository(url: str, progress: bool = False, further: Collection[str] = ()) -> Location:
    """Download a repository, or its newer files, and compare those in LFS with their digests.

    Args:
        url: `hf://ORG/NAME[@REVISION]`.
        further: paths of files to download besides those that match `PATTERNS`.
        progress: show the client's own progress bars.

    Raises:
        InputError: not such a URL; the repository is a registry.
        NotFoundError: the Hub has no such repository or revision.
        RemoteError: the Hub cannot be reached.
        IntegrityError: a file in the cache is damaged.
    """
    match = URL.fullmatch(url)
    if match is None:
        raise InputError(
            f"not a repository on the Hub: {url[:200]!r}", "write hf://ORG/NAME or hf://ORG/NAME@REVISION"
        )
    directory = _download(match["id"], match["revision"], progress, [*PATTERNS, *map(escape, further)])
    if (directory / REGISTRY).is_file():
        raise InputError(f"{url} is a registry, not a model's repository", Advice("pull-registry", url=url))
    for file in directory.rglob("*"):
        _check(file.resolve(), file.name)
    return Location(directory, match["id"], directory.name)


def missing_data(error: InputError, root: Path) -> set[str]:
    """The external data that a graph below `root` lacks, if that is the error: paths from `root`."""
    if error.code != "restore-external-data":
        return set()
    folder = PurePath(str(error.facts["folder"])).relative_to(root)
    files = error.facts["files"]
    return {(folder / str(file)).as_posix() for file in files} if isinstance(files, list) else set()


def is_snapshot(directory: Path) -> bool:
    """Return True for a commit in the cache of huggingface_hub: its files are links."""
    return directory.parent.name == "snapshots" and (directory.parent.parent / "blobs").is_dir()


def resolve_links(snapshot: Path, target: Path) -> Path:
    """Put the files of a snapshot into an empty directory: as hard links if possible, else as copies.

    ONNX Runtime refuses a graph whose external data is a link. InputError for a link that leads out of the cache.
    """
    blobs = (snapshot.parent.parent / "blobs").resolve()
    for link in snapshot.rglob("*"):
        if link.is_file():
            if not link.resolve().is_relative_to(blobs) and not link.resolve().is_relative_to(
                snapshot.resolve()
            ):
                raise InputError(
                    f"{link.name} is a link that leads out of the cache", "replace the link by the file"
                )
            file = target / link.relative_to(snapshot)
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                file.hardlink_to(link.resolve())
            except OSError:
                shutil.copyfile(link, file)
    return target


def _download(name: str, revision: str | None, progress: bool, patterns: list[str]) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]
    except ImportError as error:
        raise missing_extra("huggingface_hub", "hf", "importing from the Hub") from error
    if not progress:
        disable_progress_bars()
    with hub_errors(name, revision):
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))


def _check(file: Path, label: str) -> None:
    """IntegrityError if a file of the cache that is named by its SHA-256 has other bytes."""
    if re.fullmatch("[0-9a-f]{64}", file.name) and digest_file(file).hex != file.name:
        raise IntegrityError(
            f"{label} in the cache of the Hub is damaged",
            f"delete {file.name} there, then run the command again",
        )
