"""Diagnose a registry and its surroundings, with the command that fixes each fault. `verify` reads the bytes.

Leftovers of interrupted work are found, and deleted if a person names them: only files that do not belong to the
registry.
"""

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from shlex import join, quote

from onnxreg.registry.log.lookup import read_log
from onnxreg.registry.maintain.verification import LEFTOVER, is_registry_file, stray_files
from onnxreg.registry.read.remotes import Remotes, remotes_file
from onnxreg.registry.store import promises
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.directory.scratch import PROBE, is_held, staging
from onnxreg.registry.store.layout import LAYOUT_VERSION, Kind, check_writer, note_path, read_identity
from onnxreg.registry.store.object_store import ObjectRegistry, ReadOnlyStore
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.promises import CasGuardedStore, Swapper
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.disk import READ_ONLY, Disk, host_errors
from onnxreg.registry.transfer.merge import missing_lines
from onnxreg.registry.trust.trust_file import load_trust
from onnxreg.schema.core.errors import ConflictError, InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.core.units import counted

GIB = 2**30
MAX_LISTED_PATHS = 5
"""Paths that one diagnosis names."""


@dataclass(frozen=True)
class Diagnosis:
    """Result of one check. `fix` is the command to type if it is not ok; `family` is the error family of the fault."""

    check: str
    ok: bool
    detail: str
    fix: str = ""
    family: str = "environment"


def examine(remote: RegistryStore, display_name: str | None = None) -> list[Diagnosis]:
    """Run every check of one registry; `display_name` is its name in the fixes.

    Only the scratch of the probes changes, and scratch that interrupted probes left.
    """
    url = display_name or remote.url
    checks: list[Callable[[], Iterable[Diagnosis]]]
    shared = [partial(check, remote, url) for check in (_stray, _notes, _channels)]
    if isinstance(remote, DirectoryRegistry):
        own = DirectoryRegistry(remote.root, remote.disk)
        first, last = (_identity, _links, _permissions, _space), (_scratch, _local_probes, _remotes)
        checks = [
            *(partial(check, own) for check in first),
            *shared,
            *(partial(check, own) for check in last),
        ]
    else:
        checks = [lambda: [Diagnosis("registry.json", True, f"registry {remote.registry_id[:12]}...")]]
        if not isinstance(remote, ObjectRegistry):
            checks += shared
        elif not isinstance(remote.store, ReadOnlyStore):
            checks += [*shared, partial(_object_probes, remote, url)]
    findings: list[Diagnosis] = []
    for check in checks:
        try:
            findings += check()
        except RegError as error:
            name = "registry.json" if check is checks[0] else "access"
            findings.append(Diagnosis(name, False, error.message, error.hint, error.family))
            if check is checks[0]:
                break
    return findings


def _summary(check: str, faults: list[str], healthy: str, fix: str, family: str = "environment") -> Diagnosis:
    """One diagnosis for one check: `healthy`, or all its faults."""
    if not faults:
        return Diagnosis(check, True, healthy)
    more = f" and {len(faults) - MAX_LISTED_PATHS} more" if len(faults) > MAX_LISTED_PATHS else ""
    return Diagnosis(check, False, "; ".join(faults[:MAX_LISTED_PATHS]) + more, fix, family)


def _identity(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Layout and versions. HostError if only a newer build may read or write it, NotFoundError if there is no registry."""
    remote.check_exists()
    check_writer(read_identity((remote.root / "registry.json").read_bytes(), remote.url), remote.url)
    detail = f"registry {remote.registry_id[:12]}..., layout {LAYOUT_VERSION}"
    yield Diagnosis("registry.json", True, detail)


def _links(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """The directories of `local/`, which no listing shows. Links elsewhere are among the stray files."""
    parts = [part for part in ("local", "local/tmp", "local/locks") if (remote.root / part).is_symlink()]
    faults = [f"{part} is a link, which leads writes elsewhere" for part in parts]
    fix = join(["rm", *(str(remote.root / part) for part in parts)])
    yield _summary("links", faults, "local/ is a directory of its own", fix, "integrity")


def _permissions(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Directories that can be written, files that can be read, here and by the registry's owner."""
    root = quote(str(remote.root))
    denied: list[str] = []
    foreign: list[str] = []
    with host_errors(f"listing {remote.url}"):
        if hasattr(os, "statvfs") and os.statvfs(remote.root).f_flag & os.ST_RDONLY:
            yield Diagnosis("permissions", False, "nothing can be written", READ_ONLY)
            return
        owner = remote.root.stat().st_uid
        for path in (remote.root, *remote.root.rglob("*")):
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # it vanished meanwhile
            folder = stat.S_ISDIR(status.st_mode)
            if not folder and not stat.S_ISREG(status.st_mode):
                continue
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK if folder else os.R_OK):
                denied.append(f"{path} cannot be {'written' if folder else 'read'}")
            elif status.st_uid != owner and not status.st_mode & (stat.S_IWGRP if folder else stat.S_IRGRP):
                foreign.append(f"{path} belongs to another user than the registry")
    fix = f"sudo chown -R --reference={root} {root}" if foreign else f"chmod -R u+rwX {root}"
    yield _summary("permissions", foreign + denied, "everything can be read and written", fix)


def _space(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Warn below 1 GiB, and below 5 % of the disk, but at most 16 GiB."""
    with host_errors(f"looking at the disk of {remote.url}"):
        disk = shutil.disk_usage(remote.root)
    required = max(GIB, min(disk.total // 20, 16 * GIB))
    detail = f"{disk.free / 10**9:.1f} GB of {disk.total / 10**9:.1f} GB are free"
    yield _summary("space", [detail] if disk.free < required else [], detail, _gc(remote, remote.url))


def _gc(remote: RegistryStore, url: str) -> str:
    """The collection of garbage in this registry."""
    where = ["--registry", url, "gc"] if isinstance(remote, DirectoryRegistry) else ["gc", "--remote", url]
    return join(["reg", *where])


def _clear(url: str, paths: Iterable[str]) -> str:
    """The deletion of files that do not belong to this registry."""
    return join(["reg", "doctor", url, *(word for path in paths for word in ("--clear", path))])


def _stray(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """Files that do not belong to a registry; those below `index/` are models without a valid name."""
    strays = stray_files(list(remote.files()))
    for check, healthy, in_tree in (
        ("stray files", "no file that does not belong here", False),
        ("index and blobs", "every file there has the name and kind of one", True),
    ):
        damages = [damage for damage in strays if damage.name.startswith(("index", "blobs/")) == in_tree]
        paths = [damage.name for damage in damages][:MAX_LISTED_PATHS]
        if not isinstance(remote, DirectoryRegistry):
            repair = f"reg verify --remote {quote(url)} --repair --from MIRROR; then " if in_tree else ""
            fix = repair + _clear(url, paths)
        elif in_tree:
            fix = (
                "put the real file in its place (cp --dereference), or reg verify --repair --from MIRROR; "
                "while it is not there, reg gc may free that model's blobs"
            )
        else:
            fix = join(["mv", *(str(remote.root / path) for path in paths)]) + " ~"
        yield _summary(check, [damage.detail for damage in damages], healthy, fix, "integrity")


def _notes(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """Notes of pushes and collections. A collection clears those of a dead owner, and makes an unknown push start over.

    Only people can clear the others: notes of unknown collections, and in a mirror those of unknown pushes.
    """
    kinds: dict[Kind, str] = {
        "intents": "mirroring" if remote.is_mirror else "push",
        "condemned": "collection",
    }
    for kind, owner in kinds.items():
        alive = {note: remote.is_alive(note) for note in remote.notes(kind)}
        dead = [note for note, answer in alive.items() if answer is False]
        unknown = [note for note, answer in alive.items() if answer is None and _is_for_people(remote, kind)]
        faults = [f"a {owner} that died left gc/{kind}/{note}" for note in dead]
        faults += [
            f"gc/{kind}/{note} is of a {owner} that runs, or never ended: if no {owner} is under way "
            "on any machine, clear it"
            for note in unknown
        ]
        paths = [note_path(kind, note) for note in unknown[:MAX_LISTED_PATHS]]
        running = len(alive) - len(dead) - len(unknown)
        fix = _clear(url, paths) if paths else _gc(remote, url)
        yield _summary(kind, faults, f"{running} under way" if running else "none", fix)


def _is_for_people(remote: RegistryStore, kind: str) -> bool:
    """True if only a person may clear a note of this kind whose owner is unknown. No event can be added to a mirror's
    logs, so nothing makes a push to it start over.
    """
    return kind == "condemned" or remote.is_mirror


def _channels(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """Governed channels, if the registry has a policy: each must hold a version that the policy lets in."""
    if remote.read_index(POLICY_LOG) is None:
        return
    from onnxreg.registry.gates.enforce import audit_gates

    trust = load_trust()
    faults = [
        fault for name in remote.names() for _, fault in audit_gates(remote, read_log(remote, name), trust)
    ]
    fix = "promote a version that meets the policy: reg promote NAME:VERSION CHANNEL"
    fix += "" if isinstance(remote, DirectoryRegistry) else f" --remote {quote(url)}"
    yield _summary("channels", faults, "each governed channel meets its policy", fix, "gate")


def _scratch(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Leftovers of killed commands in `local/tmp`; running commands hold their lock."""
    with host_errors(f"looking at {remote.scratch}"):
        paths = sorted(remote.scratch.iterdir()) if remote.scratch.is_dir() else []
        entries = [path for path in paths if not path.name.startswith(PROBE)]
        markers = [path for path in entries if path.suffix == ".lock" and not path.is_symlink()]
        dead = [path for path in markers if is_held(path) is False]
        owned = {*markers, *(path.with_suffix("") for path in markers)}
        lost = [path for path in entries if path not in owned and os.path.lexists(path)]
    faults = [f"{path.stem} was left by a command that died" for path in dead]
    faults += [f"{path.name} is of no command" for path in lost]
    remove = join(["rm", "-r", *map(str, lost[:MAX_LISTED_PATHS])])
    fix = remove if lost else _gc(remote, remote.url)
    yield _summary("scratch", faults, "nothing that a command left", fix)


def _local_probes(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Locks, compare-and-swap and renames, tried in the registry's own scratch space."""
    move = f"cp -a {quote(remote.url)} /another/disk"
    with host_errors(f"writing to {remote.url}"):
        remote.make_scratch()
        with staging(remote.scratch, remote.disk, PROBE) as directory:
            paths = {part: remote.root / part for part in ("local/tmp", "blobs", "index")}
            devices = {part: path.stat().st_dev for part, path in paths.items() if path.is_dir()}
            faults = list(promises.disk_faults(directory, remote.disk))
            if len(set(devices.values())) > 1:
                faults.append(f"{', '.join(devices)} are on different file systems")
            is_synced = Disk().sync_directory(directory)
            less = "" if is_synced else "; a power cut may undo the last command: no fsync"
            yield _summary("disk", faults, f"files are synced, and renamed over others{less}", move)
            locks = list(promises.lock_faults(directory))
            yield _summary("locks", locks, "a lock keeps other processes out", move)
            scratch = DirectoryRegistry.create(directory / "registry", remote.disk)
            swapper = Swapper(scratch.read_file, scratch.swap_file, scratch.discard)
            faults = promises.cas_faults(swapper, "probe", raced=True)
            yield _summary("compare-and-swap", faults, "one of many writers wins", move)


def _object_probes(remote: ObjectRegistry, url: str) -> Iterator[Diagnosis]:
    """Compare-and-swap, tried on the store itself: a `CasGuardedStore` around it would refuse after a failure.

    Scratch of other probes that did not change while this one ran is abandoned, and removed.
    """
    store = remote.store.store if isinstance(remote.store, CasGuardedStore) else remote.store
    leftovers = filter(None, (LEFTOVER.fullmatch(file.path) for file in remote.files()))
    before = {match[0]: store.get(match[0]) for match in leftovers if match[1] is None}
    faults = promises.cas_faults(Swapper.of(store), promises.probe_path(), raced=True)
    fix = f"keep to one writer at a time, or move: {join(['reg', 'mirror', url])} DST"
    yield _summary("compare-and-swap", faults, "one of many writers wins", fix, "remote")
    dead = [path for path, data in before.items() if data is not None and store.get(path) == data]
    store.delete(dead)
    taken = f"took away {len(dead)} that were interrupted" if dead else "none was interrupted"
    yield Diagnosis("probes", True, taken)


def _remotes(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """The configured remotes: reachable, the same as before, and with the same history if they have the same id."""
    try:
        remotes = Remotes.load(remote)
    except IntegrityError as error:
        yield Diagnosis("remotes.json", False, error.message, join(["rm", str(remotes_file())]), "integrity")
        return
    yield Diagnosis("remotes.json", True, counted(len(remotes.urls), "remote"))
    reg = join(["reg", "--registry", remote.url])
    for name, url in sorted(remotes.urls.items()):
        check = f"remote {name}"
        try:
            other = open_url(url)
            registry_id, pinned = other.registry_id, remotes.pins.get(url)
            forks = list(_forks(remote, other)) if registry_id == remote.registry_id else []
        except RegError as error:
            fix = f"{reg} remote remove {name}"
            yield Diagnosis(check, False, f"{url}: {error.message}", fix, error.family)
            continue
        if pinned is not None and pinned != registry_id:
            detail = f"{url} holds registry {registry_id[:12]}..., it held {pinned[:12]}..."
            detail += "; if that is meant, accept it"
            yield Diagnosis(check, False, detail, f"{reg} trust reset {pinned}", "integrity")
        else:
            fix = f"{reg} mirror {quote(url)} ./theirs --new-id"
            yield _summary(check, forks, f"{url} answers", fix, "integrity")


def _forks(registry: RegistryStore, remote: RegistryStore) -> Iterator[str]:
    """The models whose histories differ in two copies of one registry."""
    for name in sorted({*registry.names()} & {*remote.names()}):
        try:
            own, other = read_log(registry, name), read_log(remote, name)
            if own.head != other.head:
                missing_lines(other, own, ())
        except IntegrityError as error:
            yield error.message


def clear_leftovers(remote: RegistryStore, paths: Collection[str]) -> list[str]:
    """Delete files that the doctor named; a path that ends with a slash means all below it. Returns the deleted paths.

    The caller asserts that no collection of these files still runs. Nothing is deleted if one path is
    refused: NotFoundError if it does not exist, InputError if it belongs to the registry, ConflictError if
    its collection runs.
    """
    files, chosen = list(remote.files()), []
    for path in paths:
        matches = [
            file for file in files if file.path == path or (path[-1:] == "/" and file.path.startswith(path))
        ]
        if not matches:
            raise NotFoundError(f"there is no {path}", "`reg doctor` names what may be cleared")
        chosen += matches
    for file in chosen:
        match = LEFTOVER.fullmatch(file.path)
        kind, note = match.groups() if match else ("", None)
        if note is not None and remote.is_alive(note):
            raise ConflictError(f"the command that left {file.path} runs", "wait for it, or stop it")
        is_leftover = match is not None and (note is None or _is_for_people(remote, kind))
        if is_registry_file(file) and not is_leftover:
            raise InputError(
                f"{file.path} is a part of the registry", "`reg gc` frees what is not needed any more"
            )
    remote.discard([file.path for file in chosen])
    return [file.path for file in chosen]
