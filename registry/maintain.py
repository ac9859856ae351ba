"""Verify, diagnose and repair a registry.

* Verify reads a whole registry, compares it with the user's known heads and trusted keys, and lists all damage.
* Diagnose checks a registry and its remotes, and says how to fix each fault. A leftover file, such as a note of a
  killed `reg gc`, can be deleted by name.
* Repair fetches blobs from any registry that has them, and logs from a copy of the same registry. It never invents
  bytes or events: a blob must have its digest, and a line must be in the damaged log or in its copy.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from shlex import join
from typing import Any, BinaryIO, NamedTuple

from msgspec import Struct

from onnxreg.registry import system
from onnxreg.registry.archive import POLICIES
from onnxreg.registry.log.commit import announced, read_condemned
from onnxreg.registry.log.contents import Reference, documents, files, present_versions
from onnxreg.registry.log.log import (
    Fetch,
    Log,
    StateError,
    find,
    log_of,
    open_log,
    read_blob,
    read_segment,
    unknown_model,
)
from onnxreg.registry.remotes import Remotes, check_distinct
from onnxreg.registry.store import streams
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import (
    CATALOG,
    NOTE,
    BlobKey,
    MissingBlobError,
    RegistryStore,
    StoredObject,
    TreeFile,
    UnlistedError,
    check_writer,
    is_system_path,
    model_of,
    usable_key,
)
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads, load_trust
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    fault,
)
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version
from onnxreg.schema.core.units import SILENT, Progress, count_cores
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import LogLine, genesis
from onnxreg.schema.log.state import State

WORKERS = max(system.WORKERS, count_cores())
MAX_LISTED_PATHS = 5


class Damage(NamedTuple):
    """One part of a registry that contradicts its digest or history, or that could not be read.

    Kinds for a log: `index` (its file is unreadable), `log` (broken chain), `state` (differs from a replay), `history`
    (differs from the known head), `signature` (wrong or missing), `gate` (a channel's policy refuses its version),
    `policy` (damaged log of policies), `statement` (an event contradicts its document). For a version: `manifest` (it
    is not a manifest), `archive` (an archive lists the version, but its log does not). For a blob: `missing`, `short`,
    `damaged`. For a file: `stray` (not of a registry), `unreadable` (disk or remote). `key` is the key of a bad or
    missing blob. `reference` names a use of the blob, or is None if no readable file uses it.
    """

    kind: str
    name: str
    detail: str
    digest: Digest | None = None
    key: BlobKey | None = None
    reference: Reference | None = None

    def to_json(self) -> dict[str, Any]:
        value = {"kind": self.kind, "name": self.name, "detail": self.detail}
        return value if self.digest is None else {**value, "digest": str(self.digest)}


class VerifyReport(Struct):
    """The result of `verify` and `repair`: what was read, and the damage that was found."""

    models: int = 0
    versions: int = 0
    blobs: int = 0
    size: int = 0  # in bytes, of all blobs
    unreferenced: int = 0  # blobs that no log needs, which are not damage
    damages: list[Damage] = []
    unpromoted: list[Damage] = []  # channels that do not resolve: their version was not promoted; not damage
    repaired: list[Damage] = []  # the damage that `repair` has repaired

    def to_json(self) -> dict[str, Any]:
        counts = {key: getattr(self, key) for key in ("models", "versions", "blobs", "unreferenced")}
        damages = [damage.to_json() for damage in self.damages]
        unpromoted = [{"name": item.name, "detail": item.detail} for item in self.unpromoted]
        lists = {"damages": damages, "unpromoted": unpromoted}
        return {"ok": not self.damages, **counts, "bytes": self.size, **lists}

    def add(self, default_kind: str, name: str, error: RegError, digest: Digest | None = None) -> None:
        """Add the damage in `error`. The kind is `unreadable` if a remote or disk failed, else `default_kind`."""
        kind, detail = fault(default_kind, error)
        self.damages.append(Damage(kind, name, detail, digest))


Audit = Callable[[Log, StoredObject], Iterable[tuple[str, str]]]
"""A function that checks a log against other documents, and yields the kind and description of each fault."""
Models = dict[str, Collection[Version] | None]
"""The models to verify, each with the versions whose files must be present (None: all versions)."""


def verify(
    store: RegistryStore,
    known_heads: KnownHeads | None = None,
    ref: Ref | None = None,
    progress: Progress = SILENT,
    trust: Trust | None = None,
) -> VerifyReport:
    """Read the logs and blobs of a registry, or of one model or version, and list all damage.

    A log must continue its known head, and meet the policies and `trust` (None: the user's trust file). An archive must
    have the files of the versions that it lists. Without `ref`, unreferenced blobs are read too, and stray files are
    damage. Raise NotFoundError if the registry is gone, and IntegrityError if another registry took its place.
    """
    from onnxreg.registry.trust.signatures import audit_signatures, audit_timings, enforce_policies

    _ = store.is_mirror
    rules = load_trust() if trust is None else trust
    reader = store if known_heads is None else CheckedReader(store, known_heads)
    is_governed = True
    with suppress(RegError):  # the audit of each channel reports the error
        is_governed = store.read_index(POLICY_LOG) is not None

    def audit(log: Log, index: StoredObject) -> Iterator[tuple[str, str]]:
        if known_heads is not None:
            try:  # the log must continue its known head
                known_heads.read_index(store, log.name, index, is_own=True)
            except RegError as error:
                yield fault("history", error)
        yield from audit_signatures(rules, log)
        yield from audit_timings(log)
        if is_governed:
            from onnxreg.registry.gates import audit_gates

            yield from audit_gates(store, log, rules)

    if ref is not None and store.read_index(ref.name) is None and reader.read_index(ref.name) is None:
        raise unknown_model(ref.name, store)
    carried = store.carried
    names = sorted({*store.names(), *(carried or ())}) if ref is None else [ref.name]
    models: Models = {name: None if carried is None else carried.get(name, ()) for name in names}
    if ref is not None and not ref.is_bare:
        models[ref.name] = {find(store, ref, yanked=True).version}
    report, needed = _check_models(store, models, audit)
    open_key = store.open_key
    try:
        tree = list(store.files())
    except UnlistedError:  # a web server lists nothing: ask it for each digest
        keys = {BlobKey(digest): needed[digest].size or 0 for digest in store.has(needed)}

        def open_key(key: BlobKey) -> BinaryIO:
            return store.open_blob(key.digest)

    else:
        sizes = {file.path: file.size for file in tree if file.size is not None}
        keys = {key: size for path, size in sizes.items() if (key := BlobKey.of_path(path)) is not None}
        if ref is None:
            report.unreferenced = sum(key.digest not in needed for key in keys)
            report.damages += stray_files(tree)
            if carried is not None and report.unreferenced:
                detail = f"{report.unreferenced} blobs that no carried version and no log refers to"
                report.damages.append(Damage("stray", store.url, detail))
        else:
            keys = {key: size for key, size in keys.items() if key.digest in needed}
    _check_blobs(open_key, needed, keys, report, progress)
    _settle(store, models, report)
    if ref is None and known_heads is not None:
        for model in sorted({*known_heads.models(store.registry_id)} - models.keys()):
            try:
                reader.read_index(model)  # raises if this place once had the model
            except RegError as error:
                report.add("history", model, error)
    try:
        policies = reader.read_index(POLICY_LOG)
        if policies is not None or rules.governs(store.registry_id):
            from onnxreg.registry.gates import policies_in

            policy_log = policies_in(policies, store.registry_id)
            _ = policy_log.policy
            enforce_policies(rules, policy_log)
    except RegError as error:
        report.add("policy", POLICIES, error)
    return report


def _check_models(
    remote: RegistryStore, models: Models, audit: Audit | None
) -> tuple[VerifyReport, dict[Digest, Reference]]:
    report = VerifyReport()
    needed: dict[Digest, Reference] = {}
    for name, only in models.items():
        report.models += 1
        try:
            if (index := remote.read_index(name)) is None:
                raise NotFoundError(f"the index of {name} is gone")
            log = log_of(remote, name, index)
        except RegError as error:
            report.add("state" if isinstance(error, StateError) else "index", name, error)
            continue
        damages = len(report.damages)
        log = _check_log(log, needed, report)
        if len(report.damages) == damages:  # a damaged history must not become a known head
            for kind, detail in audit(log, index) if audit else ():
                faults = report.unpromoted if kind == "unpromoted" else report.damages
                faults.append(Damage(kind, name, detail))
            for version in sorted({*(only or ())} - {version for version, _ in present_versions(log)}):
                detail = "it says that it carries what its log does not have"
                report.damages.append(Damage("archive", f"{name}:{version}", detail))
        for version, entry in present_versions(log):
            if only is None or version in only:
                report.versions += 1
                try:
                    needed |= {file.digest: file for file in files(log, version, entry)}
                except NotFoundError:
                    pass  # the check of documents reports the manifest as missing
                except RegError as error:
                    report.add("manifest", f"{name}:{version}", error, entry.manifest)
    return report, needed


def _check_log(log: Log, needed: dict[Digest, Reference], report: VerifyReport) -> Log:
    """Check the chain of a log, and compare its state with a replay of all lines. Return a log of the usable lines."""
    used = log
    try:
        used = Log.replay(log.lines(), log.registry, log.name, log.fetch)
        with suppress(StateError):
            log.check()
    except RegError as error:
        report.add("log", log.name, error)
    else:
        with suppress(RegError):  # a bad manifest, which the check of documents reports
            if used.state != log.state:
                detail = "the state line is not what a replay of the log gives"
                report.damages.append(Damage("state", log.name, detail))
    try:
        needed |= {document.digest: document for document in documents(used)}
    except RegError:
        return Log(log.registry, log.name, log.fetch)
    return used


def _check_blobs(
    open_key: Callable[[BlobKey], BinaryIO],
    needed: dict[Digest, Reference],
    keys: dict[BlobKey, int],
    report: VerifyReport,
    progress: Progress,
) -> None:
    """Read every blob, the largest first, and check its digest. Report needed blobs that are missing or too short."""
    progress.plan(len(keys), sum(keys.values()))

    def check(key: BlobKey) -> tuple[int, Damage | None]:
        digest, reference = key.digest, needed.get(key.digest)
        label = reference.label if reference else "nothing readable refers to it"
        size, count = reference.size if reference else None, 0
        try:
            file = progress.file(reference.label if reference else key.path, keys[key])
            with file as advance, open_key(key) as stream:
                actual, count = streams.pump(streams.metered(stream, advance, f"reading blob {digest}"), None)
        except MissingBlobError:  # an unreferenced blob was deleted after the listing
            kind, detail = "missing" if reference else "", f"blob {digest} is not there"
        except RegError as error:
            kind, detail = fault("damaged", error)
        else:
            if actual == digest and size in (None, count):
                kind = detail = ""
            elif size is not None and count < size:
                kind, detail = "short", f"blob {digest} has {count} of {size} bytes"
            else:
                kind, detail = "damaged", f"blob {digest} has other bytes than its name says"
        return count, Damage(kind, label, detail, digest, key, reference) if kind else None

    for count, damage in system.run_parallel(check, sorted(keys, key=lambda key: (-keys[key], key)), WORKERS):
        report.blobs += 1
        report.size += count
        if damage is not None:
            report.damages.append(damage)
    for digest in sorted(needed.keys() - {key.digest for key in keys}):
        reference = needed[digest]
        detail = f"blob {digest} is not there"
        report.damages.append(Damage("missing", reference.label, detail, digest, BlobKey(digest), reference))


def _settle(remote: RegistryStore, models: Models, report: VerifyReport) -> None:
    """Remove damage that is listed twice, as a manifest and as its blob, and missing blobs that no log needs any more.

    If blobs are missing, the logs are read again to see which blobs they need now.
    """
    blobs = {damage.digest for damage in report.damages if damage.key is not None}
    needed: Collection[Digest | None] = blobs
    if any(damage.kind == "missing" for damage in report.damages):
        again, references = _check_models(remote, models, None)
        if not any(damage.kind in ("index", "unreadable") for damage in again.damages):
            needed = references.keys()
    report.damages = [
        damage
        for damage in report.damages
        if (damage.kind != "missing" or damage.digest in needed)
        and (damage.kind != "manifest" or damage.digest not in blobs)
    ]


LEFTOVER = re.compile(
    rf"gc/(?:(intents|condemned)/({NOTE.pattern.replace('(', '(?:')})|probe-[0-9a-f]{{16}})"
)
"""Matches paths of leftover files: notes of commands (group 1: kind, group 2: name) and files of `bucket.prove`."""


def is_registry_file(file: TreeFile) -> bool:
    path = file.path
    return file.size is not None and (
        path in ("registry.json", "policy.jsonl", CATALOG)
        or BlobKey.of_path(path) is not None
        or LEFTOVER.fullmatch(path) is not None
        or model_of(path) is not None
    )


def stray_files(files: Collection[TreeFile]) -> list[Damage]:
    """Return the files that do not belong to a registry, such as links, as damage. Ignore files like `.DS_Store`."""
    strays = [file for file in files if not is_registry_file(file) and not is_system_path(file.path)]
    kinds = {file.path: "regular file" if file.size is None else "file of a registry" for file in strays}
    return [Damage("stray", path, f"{path} is not a {kind}") for path, kind in kinds.items()]


class Diagnosis(Struct, frozen=True):
    """The result of one check. If `ok` is False, `fix` says what to do, and `family` is the family of the error."""

    check: str
    ok: bool
    detail: str
    fix: str = ""
    family: str = "environment"


def examine(remote: RegistryStore, url: str) -> list[Diagnosis]:
    """Check a registry, its files and its remotes. Nothing is changed, and no blob is read. `url` is for messages."""
    checks = {"registry.json": _identity, "files": _files}
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
    again = RegistryStore(remote.store)
    check_writer(again.identity, url)
    yield Diagnosis("registry.json", True, f"registry {again.registry_id[:12]}...")


OWNERS = {"condemned": "collection", "intents": "mirroring", None: "first write"}


def _files(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    files = list(remote.files())
    strays = stray_files(files)
    faults = {damage.name: damage.detail for damage in strays}
    for file in files:
        note = LEFTOVER.fullmatch(file.path)
        if note is None or (note[1] == "intents" and not remote.is_mirror):
            continue  # `reg gc` clears the intents of a registry
        if note[2] is None or remote.is_alive(note[2]) is None:
            owner = OWNERS[note[1]]
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


def _remotes(remote: RegistryStore, url: str) -> Iterator[Diagnosis]:
    assert isinstance(remote, DirectoryRegistry)
    remotes = Remotes(remote)
    for name in sorted(remotes.urls):
        try:
            other = remotes.reach(name)
            yield Diagnosis(f"remote {name}", True, f"{other.url} answers")
        except RegError as error:
            yield Diagnosis(f"remote {name}", False, error.message, error.hint, error.family)


def clear_leftovers(remote: RegistryStore, paths: Collection[str]) -> None:
    """Delete files that `reg doctor` named. The caller asserts that the commands that wrote these files have ended.

    Raises NotFoundError if a file does not exist, InputError if a file belongs to the registry, and ConflictError if
    the command that wrote a file still runs. After such an error, all files are still there.
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


LOGS = frozenset({"index", "log", "state"})


def repair(
    remote: RegistryStore,
    source: RegistryStore | None,
    known_heads: KnownHeads,
    ref: Ref | None = None,
    progress: Progress = SILENT,
    backup: DirectoryRegistry | None = None,
) -> VerifyReport:
    """Verify a registry, or only `ref`, and repair the damage. Both steps are repeated as long as a repair succeeds.

    Return the last report. It has the repaired damage, and the reasons why other damage remains. Without `source`, only
    data of `remote` is used. Before an index file is repaired, the damaged one is copied to `backup`.
    """
    if source is not None:
        check_distinct(source, remote)
    work = _Repair(remote, source, progress, backup)
    while True:
        report = verify(remote, known_heads, ref, progress)
        if ref is None and source is not None and source.registry_id == remote.registry_id:
            for name in sorted({*source.names()} - {*remote.names()}):  # `verify` cannot notice this
                detail = f"the index of {name} is gone; {source.url} has one"
                report.damages.append(Damage("index", name, detail))
        before = len(work.repaired)
        work.repair_all(report.damages)
        if len(work.repaired) == before:
            report.damages = [work.explain(damage) for damage in report.damages]
            report.repaired = work.repaired
            return report


def good_copies(remotes: Remotes, name: str | None) -> RegistryStore | None:
    """Open the remote from which `repair` takes good copies.

    This is the remote `name`. If `name` is None, it is `origin` or, without an `origin`, the only remote. Returns None
    if `name` is None and there is no such remote.
    """
    has_default = "origin" in remotes.urls or len(remotes.urls) == 1
    return remotes.open(name) if name is not None or has_default else None


class _Repair(Struct):
    """The repairs of one run. Each repair is tried once. `failed` has the reasons why repairs failed."""

    remote: RegistryStore
    source: RegistryStore | None
    progress: Progress
    backup: DirectoryRegistry | None
    repaired: list[Damage] = []
    failed: dict[BlobKey | str, str] = {}
    tried: set[BlobKey | str] = set()

    def repair_all(self, damages: Sequence[Damage]) -> None:
        """Try each repair that was not tried before. If a blob has several damaged copies, repair one of them."""
        needed = {
            item.key.digest: (item.key, item)
            for item in damages
            if item.key is not None and item.reference is not None and item.key not in self.tried
        }
        self._fetch(dict(needed.values()))
        for name in sorted({item.name for item in damages if item.kind in LOGS} - self.tried):
            self.tried.add(name)
            try:
                self.repaired.append(Damage("log", name, self._rewrite(name)))
            except RegError as error:
                self.failed[name] = error.message

    def explain(self, damage: Damage) -> Damage:
        reason = "a repair leaves it alone" if damage.kind == "stray" else None
        if damage.key is not None and damage.reference is None:
            reason = "nothing readable refers to it: if all logs can be read, `reg gc` deletes it"
        reason = self.failed.get(damage.key or damage.name, reason)
        return damage if reason is None else damage._replace(detail=f"{damage.detail}; {reason}")

    def _fetch(self, damages: dict[BlobKey, Damage]) -> None:
        source = self.source
        self.tried |= damages.keys()
        if source is None:
            self.failed |= dict.fromkeys(damages, "no remote is named to fetch it from")
            return
        sizes = {key: item.reference.size if item.reference else None for key, item in damages.items()}
        keys = sorted(damages, key=lambda key: -(sizes[key] or 0))
        self.progress.plan(len(keys), sum(size or 0 for size in sizes.values()))

        def bring(key: BlobKey) -> None:
            try:
                file = self.progress.file(damages[key].name, sizes[key])
                with file as advance, source.open_blob(key.digest) as stream:
                    action = f"reading blob {key.digest} from {source.url}"
                    push.put(streams.metered(stream, advance, action, sizes[key]), key.digest)
            except RegError as error:
                self.failed[key] = f"{source.url} has no good copy: {error.message}"

        with self.remote.push() as push:
            push.avoid({BlobKey(key.digest, lower) for key in keys for lower in range(key.generation)})
            push.distrust(keys)
            system.run_parallel(bring, keys)
            push.flush()
        for key in keys:
            if key not in self.failed:
                detail = f"blob {key.digest} was fetched from {source.url}"
                self.repaired.append(damages[key]._replace(detail=detail))

    def _rewrite(self, name: str) -> str:
        """Rebuild an index file from its lines and, for missing lines, a copy of the log. Return what was done."""
        remote, source, index = self.remote, self.source, self.remote.read_index(name)

        def fetch(digest: Digest) -> bytes:
            with suppress(RegError):  # a blob that is damaged, missing or unreadable
                return read_blob(remote, digest)
            return read_blob(source or remote, digest)

        own, end = salvage(index.data if index else b"", remote.registry_id, name, fetch)
        lines = joined(remote.registry_id, name, own)
        is_complete = bool(lines) and end == (lines[-1].seq, lines[-1].digest)
        detail = "the index was rebuilt from the log"
        if not is_complete:
            if source is None or source.registry_id != remote.registry_id:
                raise IntegrityError("only a copy of this very registry can restore it")
            copy = list(open_log(source, name).lines())
            lines = joined(remote.registry_id, name, own, copy)
            detail = f"{len(copy)} lines were taken from {source.url}"
            detail += f", {len(lines) - len(copy)} were saved here" if len(lines) > len(copy) else ""
        first, last = len(lines) + 1, max(line.seq for line in (*own, *lines))
        last = max(last, end[0]) if end else last
        if last >= first:
            detail += f"; lines {first} to {last} could not be saved"
        if index is not None and self.backup is not None and not is_complete:
            prefix = "" if self.backup is remote else f"{remote.registry_id}/"
            path = f"local/damaged/{prefix}{name}.{Digest.of(index.data).short}.jsonl"
            self.backup.write_file(path, index.data)
            detail += f"; the damaged file is kept as {path}"
        log = Log.replay(lines, remote.registry_id, name, fetch)
        with remote.push() as push, announced(remote, push, name):
            condemned = read_condemned(remote)
            push.avoid(condemned)
            for blob in log.blobs:
                try:
                    read_blob(remote, digest := Digest.of(blob))
                except RegError:
                    push.distrust([usable_key(digest, condemned)])
                push.put(BytesIO(blob))
            push.publish(name, log.encode(), index.token if index else None)
        return detail


def salvage(
    data: bytes, registry: str, name: str, fetch: Fetch
) -> tuple[list[LogLine], tuple[int, Digest] | None]:
    """Return the usable lines of a damaged index file. Also return the number and digest of the last line, if known."""
    first, *raws = data.split(b"\n")
    lines: list[LogLine] = []
    end = None
    with suppress(InputError):
        state = State.decode(first)
        if (state.registry, state.name) == (registry, name):
            end = state.seq, state.head
            for segment in state.segments:
                with suppress(RegError):
                    lines += read_segment(fetch(segment), name)
    for raw in raws:
        with suppress(InputError):
            lines.append(LogLine.decode(raw))
    expected, intact = dict([end]) if end else {}, list[LogLine]()
    for line in reversed(lines):
        if line.event.name == name and expected.get(line.seq, line.digest) == line.digest:
            expected[line.seq - 1] = line.prev
            intact.append(line)
    return intact[::-1], end


def joined(registry: str, name: str, own: Sequence[LogLine], copy: Sequence[LogLine] = ()) -> list[LogLine]:
    """Join two copies of a log. Each copy may lack lines that the other copy has.

    If both copies lack a line, the result ends before this line. Raises IntegrityError if the copies disagree.
    """
    following = {line.prev: line for line in copy}
    for line in own:
        other = following.setdefault(line.prev, line)
        if other.raw != line.raw:
            raise IntegrityError(
                f"two copies of registry {registry} have different histories of {name}: "
                f"line {line.seq} is {line.digest.short}... here and {other.digest.short}... there",
                "one of them was rewritten; nothing was changed",
            )
    lines, prev = list[LogLine](), genesis(registry, name)
    while prev in following:
        lines.append(following[prev])
        prev = lines[-1].digest
    return lines
