"""The files of a repository on the Hugging Face Hub that `reg import` takes."""

import re
import shutil
from collections.abc import Collection
from dataclasses import replace
from glob import escape
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from onnxreg.converters.importers import confine
from onnxreg.converters.onnx.external_data import MissingDataError
from onnxreg.converters.source.location import Location, check_inside, fetch, is_snapshot
from onnxreg.converters.source.source_files import below
from onnxreg.schema.core.errors import InputError, hub_library

if TYPE_CHECKING:
    from onnxreg.converters.importers.survey import Adopted

SCHEME = "hf://"
URL = re.compile(r"hf://(?P<id>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?/?")
# fmt: off
PATTERNS = (
    "*.onnx", "*.ort", "*.onnx_data*", "*.onnx.data*", "*.json", "*.jinja", "*.txt", "*.model", "*.spm",
    "[0-9]*_*/model.safetensors", "*.tiktoken", "*.config", "README.md",
)
# fmt: on
"""Graphs with their external data, and all that may be a companion."""


def adopt_source(
    source: str, links: Path, workspace: Path, *, name: str, progress: bool = False
) -> "Adopted":
    """Adopt a directory, or a repository on the Hub, in a process of its own; for errors see `confine.Child.add`.

    External data of unusual names is downloaded once a graph names it.

    Args:
        source: a directory, or a URL as `fetch_repository` takes it.
        links: an empty directory, for hard links into the Hub's cache.
        workspace: an empty directory, as of `adopt_directory`.
    """
    is_url, further = source.startswith(SCHEME), set[str]()
    location = fetch_repository(source, progress) if is_url else Location(Path(source))
    while True:
        directory = location.directory
        with confine.Child() as child:
            if is_snapshot(directory):
                directory = resolve_links(directory, links / str(len(further)))
            try:
                draft, differences = child.take(directory, workspace, name=name)
                break
            except MissingDataError as error:
                missing = {PurePath(file).relative_to(directory).as_posix() for file in error.files} - further
                if location.hub_id is None or not missing:
                    raise
        further |= missing
        location = fetch_repository(f"{SCHEME}{location.hub_id}@{location.revision}", progress, further)
    if location.hub_id is not None and draft.document is None:
        origin = {"id": location.hub_id, "revision": location.revision}
        draft = replace(draft, fields={**draft.fields, "source": origin})
    return draft, differences


def fetch_repository(url: str, progress: bool = False, further: Collection[str] = ()) -> Location:
    """Download a repository, or its newer files; for errors see also `location.fetch`.

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
    directory = fetch(match["id"], match["revision"], [*PATTERNS, *map(escape, further)])
    if (directory / "registry.json").is_file():
        raise InputError(
            f"{url} is a registry, not a model's repository", f"pull from it: reg pull NAME {url}"
        )
    return Location(directory, match["id"], directory.name)


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
