"""Diagnose a registry and its surroundings, with what to do about each fault. `verify` reads the bytes.

A file that no command needs any more, such as the note of a dead collection, is deleted if a person names it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from shlex import join

from onnxreg.registry.maintain.verification import LEFTOVER, is_registry_file, stray_files
from onnxreg.registry.remotes import Remotes
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import check_writer, read_identity
from onnxreg.registry.store.protocol import RegistryStore, TreeFile, UnlistedError
from onnxreg.schema.core.errors import ConflictError, InputError, NotFoundError, RegError

MAX_LISTED_PATHS = 5
"""Paths that one diagnosis names."""


@dataclass(frozen=True)
class Diagnosis:
    """Result of one check. `fix` says what to do if it is not ok; `family` is the error family of the fault."""

    check: str
    ok: bool
    detail: str
    fix: str = ""
    family: str = "environment"


def examine(remote: RegistryStore, url: str) -> list[Diagnosis]:
    """Run every check of the registry at a URL or path. Nothing is changed."""
    checks: dict[str, Callable[[RegistryStore, str], Iterable[Diagnosis]]] = {
        "registry.json": _identity,
        "files": _files,
    }
    if isinstance(remote, DirectoryRegistry):
        checks["remotes"] = _remotes
    findings: list[Diagnosis] = []
    for name, check in checks.items():
        try:
            findings += check(remote, url)
        except UnlistedError:
            continue
        except RegError as error:
            findings.append(Diagnosis(name, False, error.message, error.hint, error.family))
            if check is _identity:
                break
    return findings


def _identity(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """HostError if only a newer build may read or write it; NotFoundError if there is no registry."""
    if isinstance(remote, DirectoryRegistry):
        remote = DirectoryRegistry(remote.root, remote.disk)  # which reads the file again
        remote.check_exists()
        check_writer(read_identity((remote.root / "registry.json").read_bytes(), url), url)
    yield Diagnosis("registry.json", True, f"registry {remote.registry_id[:12]}...")


def _files(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """Files that are not a part of a registry, and notes of which only a person can know that they are needless."""
    files = list(remote.files())
    strays = stray_files(files)
    faults = {damage.name: damage.detail for damage in strays}
    for file in files:
        if (owner := _unknown_owner(remote, file)) is not None:
            detail = f"{file.path} is of a {owner} that runs, or never ended"
            faults[file.path] = f"{detail}: if no {owner} is under way on any machine, clear it"
    if not faults:
        yield Diagnosis("files", True, "each file belongs to the registry")
        return
    paths = list(faults)[:MAX_LISTED_PATHS]
    if not isinstance(remote, DirectoryRegistry):
        fix = join(["reg", "doctor", url, *(word for path in paths for word in ("--clear", path))])
    elif any(path.startswith("index/") for path in paths):
        fix = "put the real index file in its place: without it, reg gc may free that model's blobs"
    else:
        fix = join(["mv", *(str(remote.root / path) for path in paths)]) + " ~"
    more = [f"and {len(faults) - len(paths)} more"] if len(faults) > len(paths) else []
    detail = "; ".join([*(faults[path] for path in paths), *more])
    yield Diagnosis("files", False, detail, fix, "integrity" if strays else "environment")


OWNERS = {"condemned": "collection", "intents": "mirroring", None: "first write"}


def _unknown_owner(remote: RegistryStore, file: TreeFile) -> str | None:
    """The kind of command that left a file which only a person may clear; None for any other file.

    `reg gc` makes an unknown push start over; but to a mirror no event can be added, and so none that does that.
    """
    match = LEFTOVER.fullmatch(file.path)
    if match is None or (match[1] == "intents" and not remote.is_mirror):
        return None
    return OWNERS[match[1]] if match[2] is None or remote.is_alive(match[2]) is None else None


def _remotes(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """The configured remotes: reachable, and the same registries as before."""
    assert isinstance(remote, DirectoryRegistry)
    remotes = Remotes.load(remote)
    for name in sorted(remotes.urls):
        try:
            other = remotes.reach(name)
            yield Diagnosis(f"remote {name}", True, f"{other.url} answers")
        except RegError as error:
            yield Diagnosis(f"remote {name}", False, error.message, error.hint, error.family)


def clear_leftovers(remote: RegistryStore, paths: Collection[str]) -> None:
    """Delete files that the doctor named. The caller asserts that no owner of a note still runs.

    Nothing is deleted if one path is refused: NotFoundError if it does not exist, InputError if it belongs to the
    registry, ConflictError if the command that left it runs.
    """
    files = {file.path: file for file in remote.files()}
    for path in paths:
        if path not in files:
            raise NotFoundError(f"there is no {path}", "`reg doctor` names what may be cleared")
        left = LEFTOVER.fullmatch(path)
        if left is not None and left[2] is not None and remote.is_alive(left[2]):
            raise ConflictError(f"the command that left {path} runs", "wait for it, or stop it")
        is_leftover = left is not None and (left[1] != "intents" or remote.is_mirror)
        if is_registry_file(files[path]) and not is_leftover:
            raise InputError(f"{path} is a part of the registry", "`reg gc` frees what is not needed")
    remote.delete(paths)
