"""Memory of exports: the manifest that an equal plan gave before, so that nothing needs to be run.

It is keyed by the plan, with everything that shapes the draft; and, as in ccache's "direct mode", by the
request as typed and the digests of the files that were read for it. The second lookup reads no recipe, and
takes a fraction of the time that the imports of an export would take.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.source.toolchain import package_versions, tools
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.file_state import FileState

if TYPE_CHECKING:
    from onnxreg.converters.engine.plan import ExportPlan

EXPORTS, REQUESTS = "exports", "requests"


@dataclass(frozen=True)
class EarlierExport:
    """A manifest of an earlier export, and its model name."""

    name: str
    manifest: Digest


def find_export(cache: StepCache, plan: "ExportPlan") -> Digest | None:
    """Return the manifest that an equal plan gave, or None."""
    export = _read_export(cache.find_value(EXPORTS, plan.key()))
    return None if export is None else export.manifest


def remember(cache: StepCache, plan: "ExportPlan", manifest: Digest) -> None:
    """Keep the manifest for `find_export`."""
    cache.remember(EXPORTS, plan.key(), {"name": plan.name, "manifest": str(manifest)})


def find_export_of_request(cache: StepCache, request: Mapping[str, Any]) -> EarlierExport | None:
    """Return the export of an equal request if every file that was read for it is unchanged.

    Args:
        request: the whole request as JSON values; paths in it are absolute.
    """
    if not cache.root.is_dir():
        return None
    value = cache.find_value(REQUESTS, _request_key(request))
    export = _read_export(value)
    if export is None or value["read"] != _state_of(value["read"], value.get("settled", {})):
        return None
    return export


def remember_request(
    cache: StepCache,
    request: Mapping[str, Any],
    documents: Mapping[Path, Digest | None],
    plan: "ExportPlan",
    manifest: Digest,
    replan: "Callable[[], ExportPlan]",
) -> None:
    """Keep the manifest for `find_export_of_request`.

    Nothing is kept if a task does not state which files it read, or if they give another plan now.

    Args:
        documents: further files that are read for the request; with the digest of those that `replan` does
            not read again, such as the recipe.
        replan: makes the plan once more.
    """
    read = plan.reads()
    if read is not None:
        files = dict.fromkeys(str(path.absolute()) for path in (*read, *documents))
        settled = {path: state for path in files if (state := _settled(Path(path)))}
        state = _state_of({"files": files, "packages": plan.packages()}, {})
        value = {"name": plan.name, "manifest": str(manifest), "read": state, "settled": settled}
        changed = any(
            digest is not None and state["files"][str(path.absolute())] != str(digest)
            for path, digest in documents.items()
        )
        with suppress(RegError, OSError):
            if not changed and replan().key() == plan.key():
                cache.remember(REQUESTS, _request_key(request), value)


def _request_key(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"request": dict(request), "tools": tools()}


def _state_of(read: Any, settled: Mapping[str, Any]) -> Any:
    """Map files to digests, directories to a digest of their names, packages to versions; None for missing
    ones.

    A file that is unchanged since it was `settled` keeps the recorded digest, and is not read.
    """
    files = {
        path: digest if path in settled and settled[path] == _settled(Path(path)) else _digest(Path(path))
        for path, digest in read.get("files", {}).items()
    }
    return {"files": files, "packages": package_versions(read.get("packages", {}))}


def _settled(path: Path) -> list[str] | None:
    """Return the state that identifies unchanged contents; None without a file, or if it may change and keep
    its state.
    """
    with suppress(OSError):
        status, now = path.stat(), time.time_ns()
        state = FileState.of(status)
        if S_ISREG(status.st_mode) and state.is_settled(now):
            return state.to_json()
    return None


def _digest(path: Path) -> str | None:
    try:
        if path.is_dir():
            names = "\n".join(sorted(child.name for child in path.iterdir()))
            return hashlib.sha256(names.encode("utf-8", "surrogateescape")).hexdigest()
        return str(digest_file(path))
    except OSError:
        return None


def _read_export(value: Any) -> EarlierExport | None:
    """Decode a remembered export; None for a missing or malformed entry."""
    try:
        return EarlierExport(value["name"], Digest.parse(value["manifest"]))
    except (KeyError, TypeError, InputError):
        return None
