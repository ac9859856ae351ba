"""The files of a repository on the Hugging Face Hub that `reg import` takes."""

import re
import shutil
from collections.abc import Collection
from glob import escape
from pathlib import Path, PurePath

from onnxreg.converters.onnx.external_data import MissingDataError
from onnxreg.converters.source import hub_files
from onnxreg.converters.source.location import Location, check_inside
from onnxreg.converters.source.source_files import below
from onnxreg.schema.core.errors import InputError, hub_library

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
    """Download a repository, or its newer files; for errors see also `hub_files.fetch`.

    Args:
        url: `hf://ORG/NAME[@REVISION]`.
        further: paths of files to download besides those that match `PATTERNS`.
        progress: show the client's own progress bars.

    Raises InputError for another URL, and for a repository that is a registry.
    """
    match = URL.fullmatch(url)
    if match is None:
        raise InputError(
            f"not a repository on the Hub: {url[:200]!r}", "write hf://ORG/NAME or hf://ORG/NAME@REVISION"
        )
    with hub_library("importing from the Hub"):
        from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]
    if not progress:
        disable_progress_bars()
    directory = hub_files.fetch(match["id"], match["revision"], [*PATTERNS, *map(escape, further)])
    if (directory / REGISTRY).is_file():
        raise InputError(
            f"{url} is a registry, not a model's repository", f"pull from it: reg pull NAME {url}"
        )
    return Location(directory, match["id"], directory.name)


def missing_data(error: InputError, root: Path) -> set[str]:
    """The external data that a graph below `root` lacks, if that is the error: paths from `root`."""
    files = error.files if isinstance(error, MissingDataError) else ()
    return {PurePath(file).relative_to(root).as_posix() for file in files}


def resolve_links(snapshot: Path, target: Path) -> Path:
    """Put the files of a snapshot into an empty directory: as hard links if possible, else as copies.

    ONNX Runtime refuses a graph whose external data is a link. InputError for a link that leads out of the cache.
    """
    for link in below(snapshot):
        if link.is_file():
            check_inside(snapshot, link)
            file = target / link.relative_to(snapshot)
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                file.hardlink_to(link.resolve())
            except OSError:
                shutil.copyfile(link, file)
    return target
