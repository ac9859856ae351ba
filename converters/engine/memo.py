"""Which manifest an order gave the last time: where it is known, nothing needs to be run.

It is known by the order, with everything that shapes the draft; and, in ccache's "direct mode", by the request as it was
typed and the digests of the files that were read for it. The second is found without reading a recipe, and in a fraction
of the time that importing what an export needs would take.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.source.file_hash import digest_file
from onnxreg.converters.source.toolchain import package_versions, tools
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.core.file_state import FileState

if TYPE_CHECKING:
    from onnxreg.converters.engine.plan import ExportPlan

ORDERS, REQUESTS = "exports", "requests"


@dataclass(frozen=True)
class RememberedExport:
    """A manifest that was made before, and the model that it is of."""

    name: str
    manifest: Digest


@dataclass(frozen=True)
class RepeatableExport:
    """A request and the order that is made from it, which `place` makes once more.

    `documents` are further files that are read for the request, such as the recipe.
    """

    values: Mapping[str, Any]
    documents: Sequence[Path]
    place: "Callable[[], ExportPlan]"


def recall(cache: StepCache, order: "ExportPlan") -> Digest | None:
    """The manifest that this order gave."""
    known = _known(cache.recall(ORDERS, order.key()))
    return None if known is None else known.manifest


def remember(cache: StepCache, order: "ExportPlan", manifest: Digest) -> None:
    """Keep the manifest for `recall`."""
    cache.remember(ORDERS, order.key(), {"name": order.name, "manifest": str(manifest)})


def recall_request(cache: StepCache, request: Mapping[str, Any]) -> RememberedExport | None:
    """What the same request gave, where every file that was read for it is as it was.

    Args:
        request: JSON values that say all that was asked; paths in it are absolute.
    """
    if not cache.root.is_dir():
        return None
    value = cache.recall(REQUESTS, _request_key(request))
    known = _known(value)
    if known is None or value["read"] != _state_of(value["read"], value.get("settled", {})):
        return None
    return known


def remember_request(
    cache: StepCache, request: RepeatableExport, order: "ExportPlan", manifest: Digest
) -> None:
    """Keep the manifest for `recall_request`.

    Nothing is kept where a task does not say which files it read, nor where these gave another order than they do now.
    """
    read = order.reads()
    if read is not None:
        files = dict.fromkeys(str(path.absolute()) for path in (*read, *request.documents))
        settled = {path: state for path in files if (state := _settled(Path(path)))}
        state = _state_of({"files": files, "packages": order.packages()}, {})
        value = {"name": order.name, "manifest": str(manifest), "read": state, "settled": settled}
        with suppress(RegError, OSError):
            if request.place().key() == order.key():
                cache.remember(REQUESTS, _request_key(request.values), value)


def _request_key(request: Mapping[str, Any]) -> dict[str, Any]:
    return {"request": dict(request), "tools": tools()}


def _state_of(read: Any, settled: Mapping[str, Any]) -> Any:
    """Files by digest, directories by the names in them, packages by version; None for what is not there.

    A file that is still as it was when it was `settled` has the digest that is said, and is not read.
    """
    files = {
        path: said if path in settled and settled[path] == _settled(Path(path)) else _digest(Path(path))
        for path, said in read.get("files", {}).items()
    }
    return {"files": files, "packages": package_versions(read.get("packages", {}))}


def _settled(path: Path) -> list[str] | None:
    """The state by which a file is known again; None where there is no file, or it may change and keep it."""
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


def _known(value: Any) -> RememberedExport | None:
    """None for an entry that is not there, or holds something else."""
    try:
        return RememberedExport(value["name"], Digest.parse(value["manifest"]))
    except (KeyError, TypeError, InputError):
        return None
