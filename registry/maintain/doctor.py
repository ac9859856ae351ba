"""What may be wrong with a registry and its surroundings, and what to type against it. `verify` reads the bytes."""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from onnxreg.registry.log.commit import load
from onnxreg.registry.log.lookup import read_state
from onnxreg.registry.log.transfer_rules import missing_lines
from onnxreg.registry.maintain import leftovers
from onnxreg.registry.maintain.directory_probes import PROBE, LocalSwapper, probe_disk, probe_lock
from onnxreg.registry.maintain.verification import stray_files
from onnxreg.registry.read.remotes import Remotes
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.directory.scratch import is_held, staging
from onnxreg.registry.store.identity import read_identity
from onnxreg.registry.store.layout import LAYOUT_VERSION, Kind, note_path
from onnxreg.registry.store.object_store import ObjectRegistry
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.probes import probe_swap
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.store.read_only import ReadOnlyStore
from onnxreg.registry.store.require_cas import CasGuardedStore
from onnxreg.registry.support.disk import READ_ONLY, host_errors
from onnxreg.schema.core.errors import IntegrityError, RegError
from onnxreg.schema.core.numbers import counted

GIB = 2**30
SHOWN = 5
"""So many paths are named where there are more."""


@dataclass(frozen=True)
class Diagnosis:
    """One look at one thing. `fix` is what to type where it is not ok; `family` is that of the error it leads to."""

    check: str
    ok: bool
    detail: str
    fix: str = ""
    family: str = "environment"

    def to_json(self) -> dict[str, Any]:
        return {"check": self.check, "ok": self.ok, "detail": self.detail, "fix": self.fix}


def examine(remote: RegistryStore, called: str | None = None) -> list[Diagnosis]:
    """Everything that can be looked at in one registry, which is `called` so in the fixes.

    Nothing is changed but for the probes' scratch, and that which interrupted ones left.
    """
    url = called or remote.url
    if isinstance(remote, DirectoryRegistry):
        checks: list[Callable[[], Iterable[Diagnosis]]] = [
            lambda: _identity(remote),
            lambda: _links(remote),
            lambda: _permissions(remote),
            lambda: _space(remote),
            lambda: _stray(remote, url),
            lambda: _notes(remote, url),
            lambda: _scratch(remote),
            lambda: _local_probes(remote),
            lambda: _remotes(remote),
        ]
    else:
        checks = [lambda: _opened(remote)]
        if not (isinstance(remote, ObjectRegistry) and isinstance(remote.store, ReadOnlyStore)):
            checks += [lambda: _stray(remote, url), lambda: _notes(remote, url), lambda: _trials(remote, url)]
            if isinstance(remote, ObjectRegistry):
                checks.append(lambda: _object_probes(remote, url))
    found: list[Diagnosis] = []
    for check in checks:
        try:
            found += check()
        except RegError as error:
            found.append(Diagnosis("access", False, error.message, error.hint, error.family))
        if check is checks[0] and not all(finding.ok for finding in found):
            break
    return found


def _summary(check: str, faults: list[str], fine: str, fix: str, family: str = "environment") -> Diagnosis:
    """One finding for one check: what is fine, or all its faults."""
    if not faults:
        return Diagnosis(check, True, fine)
    more = f" and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return Diagnosis(check, False, "; ".join(faults[:SHOWN]) + more, fix, family)


def _opened(remote: RegistryStore) -> Iterator[Diagnosis]:
    yield Diagnosis("registry.json", True, f"registry {remote.registry_id[:12]}...")


def _identity(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Layout and versions. NotFoundError where there is no registry at all."""
    path = remote.root / "registry.json"
    try:
        _ = remote.registry_id
    except IntegrityError as error:
        fix = f'sed \'s/"mirror": true/"mirror": false/\' MIRROR/registry.json > {quote(str(path))}'
        yield Diagnosis("registry.json", False, error.message, fix, "integrity")
        return
    writer = read_identity(path.read_bytes(), remote.url).get("min_writer", LAYOUT_VERSION)
    faults = [f"only a newer onnxreg may write it (layout {writer})"] if writer > LAYOUT_VERSION else []
    fine = f"registry {remote.registry_id[:12]}..., layout {LAYOUT_VERSION}"
    yield _summary("registry.json", faults, fine, "pip install --upgrade onnxreg")


def _links(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """The directories of `local/`, which no listing shows. Links elsewhere are among the stray files."""
    parts = [part for part in ("local", "local/tmp", "local/locks") if (remote.root / part).is_symlink()]
    fix = f"rm {' '.join(quote(str(remote.root / part)) for part in parts)}"
    faults = [f"{part} is a link, which leads writes elsewhere" for part in parts]
    yield _summary("links", faults, "local/ is a directory of its own", fix, "integrity")


def _permissions(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Directories that can be written, files that can be read, here and by the registry's owner."""
    with host_errors(f"listing {remote.url}"):
        if _is_read_only(remote.root):
            yield Diagnosis("permissions", False, "nothing can be written", READ_ONLY)
            return
        owner = remote.root.stat().st_uid
        denied: list[str] = []
        foreign: list[str] = []
        for path in (remote.root, *_below(remote.root)):
            status = path.lstat()
            folder = stat.S_ISDIR(status.st_mode)
            if not folder and not stat.S_ISREG(status.st_mode):
                continue
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK if folder else os.R_OK):
                denied.append(f"{path} cannot be {'written' if folder else 'read'}")
            elif status.st_uid != owner and not status.st_mode & (stat.S_IWGRP if folder else stat.S_IRGRP):
                foreign.append(f"{path} belongs to another user than the registry")
    root = quote(str(remote.root))
    fix = f"sudo chown -R --reference={root} {root}" if foreign else f"chmod -R u+rwX {root}"
    yield _summary("permissions", foreign + denied, "everything can be read and written", fix)


def _is_read_only(path: Path) -> bool:
    """Whether the file system that a path lies on is mounted so; False where nobody can say."""
    return hasattr(os, "statvfs") and bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _below(root: Path) -> Iterator[Path]:
    """Everything in the tree; what vanishes meanwhile is left out."""
    for directory, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(directory, name)
            if os.path.lexists(path):
                yield path


def _space(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Warns below 1 GiB, and below 5 % of a disk that is not so large that these are many."""
    with host_errors(f"looking at the disk of {remote.url}"):
        disk = shutil.disk_usage(remote.root)
    least = max(GIB, min(disk.total // 20, 16 * GIB))
    detail = f"{disk.free / 10**9:.1f} GB of {disk.total / 10**9:.1f} GB are free"
    faults = [detail] if disk.free < least else []
    yield _summary("space", faults, detail, _gc(remote, remote.url))


def _gc(remote: RegistryStore, url: str) -> str:
    """The command that collects there."""
    local = isinstance(remote, DirectoryRegistry)
    return f"reg --registry {quote(url)} gc" if local else f"reg gc --remote {quote(url)}"


def _clear(url: str, paths: Iterable[str]) -> str:
    """The command that deletes what is no part of the registry there."""
    return f"reg doctor {quote(url)} {' '.join(f'--clear {quote(path)}' for path in paths)}"


IN_PLACE = (
    "put the real file in its place (cp --dereference), or reg verify --repair --from MIRROR; "
    "while it is not there, reg gc may free that model's blobs"
)


def _stray(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """Files that no registry has; those below `index/` are models that nobody can name."""
    strays = stray_files(remote)
    for check, fine, named in (
        ("stray files", "no file that does not belong here", False),
        ("index and blobs", "every file there has the name and kind of one", True),
    ):
        found = [damage for damage in strays if damage.name.startswith(("index", "blobs/")) == named]
        paths = [damage.name for damage in found][:SHOWN]
        if isinstance(remote, DirectoryRegistry):
            places = " ".join(quote(str(remote.root / path)) for path in paths)
            fix = IN_PLACE if named else f"mv {places} ~"
        else:
            repair = f"reg verify --remote {quote(url)} --repair --from MIRROR; then " if named else ""
            fix = repair + _clear(url, paths)
        yield _summary(check, [damage.detail for damage in found], fine, fix, "integrity")


def _notes(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """What pushes and collectors left. Whose owner is dead, a collection clears; whose cannot be asked, only people."""
    kinds: tuple[tuple[Kind, str], ...] = (("intents", "push"), ("condemned", "collection"))
    for kind, what in kinds:
        alive = {note: remote.is_alive(note) for note in remote.notes(kind)}
        dead = [note for note, known in alive.items() if known is False]
        unknown = [note for note, known in alive.items() if known is None]
        faults = [f"a {what} that died left gc/{kind}/{note}" for note in dead]
        fix = _gc(remote, url)
        if kind == "condemned" and unknown:
            faults += [
                f"gc/{kind}/{note} is of a collection that runs, or never ended: where no reg gc is under way "
                "on any machine, clear it"
                for note in unknown
            ]
            fix = _clear(url, [note_path(kind, note) for note in unknown[:SHOWN]])
        running = len(alive) - len(dead) if kind == "intents" else len(alive) - len(dead) - len(unknown)
        yield _summary(kind, faults, f"{running} under way" if running else "none", fix)


def _trials(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    """The scratch of `reg doctor --live`, which takes it away itself, but for one that was killed."""
    found = leftovers.trials(remote.files())
    faults = [f"{path} is of a reg doctor --live that runs, or was killed" for path in found]
    yield _summary("scratch", faults, "nothing that a trial left", _clear(url, found[:SHOWN]))


def _scratch(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """What killed commands left in `local/tmp`; those that run hold their lock."""
    with host_errors(f"looking at {remote.scratch}"):
        paths = sorted(remote.scratch.iterdir()) if remote.scratch.is_dir() else []
        found = [path for path in paths if not path.name.startswith(PROBE)]
        markers = [path for path in found if path.suffix == ".lock" and not path.is_symlink()]
        dead = [path for path in markers if not is_held(path)]
        owned = {path.with_suffix("") for path in markers}
        lost = [path for path in found if path not in markers and path not in owned and os.path.lexists(path)]
    swept = _gc(remote, remote.url)
    faults = [f"{path.name.removesuffix('.lock')} was left by a command that died" for path in dead]
    faults += [f"{path.name} is of no command" for path in lost]
    fix = f"rm -r {' '.join(quote(str(path)) for path in lost[:SHOWN])}" if lost else swept
    yield _summary("scratch", faults, "nothing that a command left", fix)


def _local_probes(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """Locks, compare-and-swap and renames, tried in the registry's own scratch space."""
    with host_errors(f"writing to {remote.url}"):
        remote.make_scratch()
        with staging(remote.scratch, remote.disk, PROBE) as directory:
            devices = {
                part: (remote.root / part).stat().st_dev
                for part in ("local/tmp", "blobs", "index")
                if (remote.root / part).is_dir()
            }
            faults = list(probe_disk(directory, remote.disk))
            if len(set(devices.values())) > 1:
                faults.append(f"{', '.join(devices)} lie on different file systems")
            move = f"cp -a {quote(remote.url)} /another/disk"
            yield _summary("disk", faults, "files are synced and renamed", move)
            yield _summary("locks", list(probe_lock(directory)), "a lock keeps others out", move)
            swapper = LocalSwapper(directory / "registry", remote.disk)
            faults = list(probe_swap(swapper, "probe"))
            yield _summary("compare-and-swap", faults, "one of many writers wins", move)


def _object_probes(remote: ObjectRegistry, url: str) -> Iterator[Diagnosis]:
    """Compare-and-swap, tried on the store itself: `CasGuardedStore` around it would refuse where this has a finding.

    Scratch of other probes that did not change while ours ran is of none that runs, and taken away.
    """
    store = remote.store.store if isinstance(remote.store, CasGuardedStore) else remote.store
    before = {path: store.get(path) for path in leftovers.probes(remote.files())}
    faults = list(probe_swap(store, f"gc/{PROBE}{os.urandom(8).hex()}"))
    fix = f"keep to one writer at a time, or move: reg mirror {quote(url)} DST"
    yield _summary("compare-and-swap", faults, "one of many writers wins", fix, "remote")
    dead = [path for path, found in before.items() if found is not None and store.get(path) == found]
    store.delete(dead)
    yield Diagnosis(
        "probes", True, f"took away {len(dead)} that were interrupted" if dead else "none was interrupted"
    )


def _remotes(remote: DirectoryRegistry) -> Iterator[Diagnosis]:
    """The configured remotes: there, the same as before, and of one history with us where they have our id."""
    try:
        known = Remotes.load(remote)
    except IntegrityError as error:
        fix = f"rm {quote(str(remote.root / 'local' / 'remotes.json'))}"
        yield Diagnosis("remotes.json", False, error.message, fix, "integrity")
        return
    yield Diagnosis("remotes.json", True, counted(len(known.urls), "remote"))
    for name, url in sorted(known.urls.items()):
        yield from _remote(remote, known, name, url)


def _remote(ours: DirectoryRegistry, known: Remotes, name: str, url: str) -> Iterator[Diagnosis]:
    check, forget = f"remote {name}", f"reg --registry {quote(ours.url)} remote remove {name}"
    try:
        theirs = open_url(url)
        found, pinned = theirs.registry_id, known.pins.get(url)
        if pinned not in (None, found):
            detail = f"{url} holds registry {found[:12]}..., it held {pinned[:12] if pinned else ''}..."
            fix = f"sed -i 's/{pinned}/{found}/' {quote(str(ours.root / 'local' / 'remotes.json'))}"
            yield Diagnosis(check, False, f"{detail}; if that is meant, accept it", fix, "integrity")
            return
        forks = list(_forks(ours, theirs)) if found == ours.registry_id else []
    except RegError as error:
        yield Diagnosis(check, False, f"{url}: {error.message}", forget, error.family)
        return
    fix = f"reg --registry {quote(ours.url)} mirror {quote(url)} ./theirs --new-id"
    yield _summary(check, forks, f"{url} answers", fix, "integrity")


def _forks(ours: RegistryStore, theirs: RegistryStore) -> Iterator[str]:
    """The models of which two copies of one registry have different histories."""
    there = set(theirs.names())
    for name in (name for name in ours.names() if name in there):
        try:
            if read_state(ours, name).head != read_state(theirs, name).head:
                missing_lines(load(theirs, name)[0], load(ours, name)[0], ())
        except IntegrityError as error:
            yield error.message
