"""Verify a registry: read it from end to end and list every damage."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from onnxreg.registry.log.collect import blob_keys
from onnxreg.registry.log.contents import Reference, documents, files, present_versions
from onnxreg.registry.log.log import Log as Ledger
from onnxreg.registry.log.log import StateError
from onnxreg.registry.log.lookup import log_of
from onnxreg.registry.store import streams
from onnxreg.registry.store.layout import (
    CATALOG,
    NOTE,
    BlobKey,
    is_system_path,
    model_of,
)
from onnxreg.registry.store.protocol import (
    IndexFile,
    MissingBlobError,
    RegistryStore,
    TreeFile,
    UnlistedError,
)
from onnxreg.registry.store.streams import metered
from onnxreg.registry.support import notices, parallel
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.cores import count_cores
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError, RegError, fault
from onnxreg.schema.core.progress import SILENT, Advance, Progress
from onnxreg.schema.core.ref import Version

WORKERS = max(parallel.WORKERS, count_cores())
"""Threads that read blobs."""

Open = Callable[[BlobKey], BinaryIO]
Audit = Callable[[Ledger, IndexFile], Iterable[tuple[str, str]]]
"""Finds faults in a model's history beyond its own consistency: kind (`history`, `signature`) and detail."""


@dataclass(frozen=True)
class Damage:
    """One part of a registry that contradicts its digest or history, or that was not read.

    Kinds: `index` (unreadable), `log` (broken chain), `state` (differs from the replay), `history` (differs
    from the known head), `signature` (wrong or missing), `gate` (a governed channel with a version that its policy bars), `policy` (the
    log of policies), `manifest` (not a manifest), and of blobs `missing`, `short`, `damaged`;
    `stray` is a file that does not belong to a registry. `unreadable` is any part that the place or the disk did not
    give: nothing is known of its bytes. `key` is the place of a bad or missing
    blob; `reference` is the reference to it, None if nothing readable refers to it.
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


@dataclass
class VerifyReport:
    """Counts of a verification, and its damages. `unreferenced` blobs are not damage: `reg gc` frees them.

    `sharing` counts the versions that have each file. `unpromoted` are governed channels that no promotion set: they do
    not resolve, and nothing is damaged.
    """

    models: int = 0
    versions: int = 0
    blobs: int = 0
    size: int = 0
    unreferenced: int = 0
    damages: list[Damage] = field(default_factory=list)
    sharing: Counter[Digest] = field(default_factory=Counter)
    unpromoted: list[Damage] = field(default_factory=list)

    def add_sharing(self) -> None:
        """Add to each damage how many more versions have the file."""
        for index, damage in enumerate(self.damages):
            if (more := self.sharing[damage.digest] - 1 if damage.digest else 0) > 0:
                shared = f"; so it is in {more} more version{'s' if more > 1 else ''}"
                self.damages[index] = replace(damage, detail=damage.detail + shared)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": not self.damages,
            "models": self.models,
            "versions": self.versions,
            "blobs": self.blobs,
            "bytes": self.size,
            "unreferenced": self.unreferenced,
            "damages": [damage.to_json() for damage in self.damages],
            "unpromoted": [{"name": item.name, "detail": item.detail} for item in self.unpromoted],
        }


def no_audit(ledger: Ledger, index: IndexFile) -> Iterable[tuple[str, str]]:
    """An audit without faults."""
    return ()


def verify(
    remote: RegistryStore,
    progress: Progress = SILENT,
    audit: Audit = no_audit,
    only: Mapping[str, Collection[Version]] | None = None,
) -> VerifyReport:
    """Read every log and every blob of a registry, referred to or not, and look for stray files.

    Never stops at the first damage. Each blob is read once, even if many versions share it. With `only`, just
    the files of these versions, by model, must be present.
    """
    report = VerifyReport()
    needed: dict[Digest, Reference] = {}
    names = list(remote.names())
    for name in names:
        needed |= _check_model(remote, name, _versions_of(only, name), report, audit)
    tree = list(remote.files())
    keys = {key: file.size or 0 for file in tree if (key := _key_of(file)) is not None}
    report.unreferenced = sum(key.digest not in needed for key in keys)
    report.damages += _strays(tree)
    _check_blobs(remote.open_key, needed, keys, report, progress)
    _forgive_freed(remote, {name: _versions_of(only, name) for name in names}, report)
    return report


def _versions_of(only: Mapping[str, Collection[Version]] | None, name: str) -> Collection[Version] | None:
    return None if only is None else only.get(name, ())


def _forgive_freed(
    remote: RegistryStore, models: Mapping[str, Collection[Version] | None], report: VerifyReport
) -> None:
    """Read the logs again if a blob is missing; one that no log refers to any more was expired, not lost.

    If one of them cannot be read this time, nothing is forgiven.
    """
    if any(damage.kind == "missing" for damage in report.damages):
        again = VerifyReport()
        needed: set[Digest | None] = set()
        for name, versions in models.items():
            needed |= _check_model(remote, name, versions, again, no_audit).keys()
        if any(damage.kind in ("index", "unreadable") for damage in again.damages):
            return
        report.damages = [
            damage for damage in report.damages if damage.kind != "missing" or damage.digest in needed
        ]


def verify_model(
    remote: RegistryStore,
    name: str,
    only: Collection[Version] | None = None,
    progress: Progress = SILENT,
    audit: Audit = no_audit,
) -> VerifyReport:
    """Verify the files of one model, or only of these versions of it."""
    report = VerifyReport()
    needed = _check_model(remote, name, only, report, audit)
    try:
        keys = {key: size for key, size in blob_keys(remote).items() if key.digest in needed}
    except UnlistedError:
        named_keys = {BlobKey(digest): needed[digest].size or 0 for digest in remote.has(needed)}
        _check_blobs(_by_digest(remote), needed, named_keys, report, progress)
    else:
        _check_blobs(remote.open_key, needed, keys, report, progress)
    _forgive_freed(remote, {name: only}, report)
    return report


def _by_digest(remote: RegistryStore) -> Open:
    """Reader by digest, for a registry that cannot list its keys."""
    return lambda key: remote.open_blob(key.digest)


def _check_model(
    remote: RegistryStore, name: str, only: Collection[Version] | None, report: VerifyReport, audit: Audit
) -> dict[Digest, Reference]:
    """Check the log and manifests of a model; return the blobs that it refers to."""
    report.models += 1
    try:
        index = remote.read_index(name)
        if index is None:
            raise NotFoundError(f"the index of {name} is gone")
        ledger = log_of(remote, name, index)
    except RegError as error:
        kind, detail = fault("state" if isinstance(error, StateError) else "index", error)
        report.damages.append(Damage(kind, name, detail))
        return {}
    damages = len(report.damages)
    ledger, needed = _check_log(ledger, report)
    if len(report.damages) == damages:  # a damaged history must not become a known head
        for kind, detail in audit(ledger, index):
            faults = report.unpromoted if kind == "unpromoted" else report.damages
            faults.append(Damage(kind, name, detail))
    for version, entry in present_versions(ledger):
        if only is None or version in only:
            report.versions += 1
            try:
                by_digest = {file.digest: file for file in files(ledger, version, entry)}
                report.sharing.update(by_digest.keys())
                needed |= by_digest
            except NotFoundError:
                pass  # the check of documents reports the manifest as missing
            except RegError as error:
                kind, detail = fault("manifest", error)
                report.damages.append(Damage(kind, f"{name}:{version}", detail, entry.manifest))
    return needed


def _check_log(log: Ledger, report: VerifyReport) -> tuple[Ledger, dict[Digest, Reference]]:
    """Check the chain, and the state against a replay; return what can be used of it, and its documents."""
    needed: dict[Digest, Reference] = {}
    used = log
    try:
        used = Ledger.replay(log.lines(), log.registry, log.name, log.fetch)
        with suppress(StateError):
            log.check()
    except RegError as error:
        kind, detail = fault("log", error)
        report.damages.append(Damage(kind, log.name, detail))
    else:
        with suppress(RegError):  # a manifest in the state line: the check of documents reports it
            if used.state != log.state:
                detail = "the state line is not what a replay of the log gives"
                report.damages.append(Damage("state", log.name, detail))
    try:
        for document in documents(used):
            needed[document.digest] = document
    except RegError:
        return Ledger(log.registry, log.name, log.fetch), needed
    return used, needed


def _check_blobs(
    open_key: Open,
    needed: dict[Digest, Reference],
    keys: dict[BlobKey, int],
    report: VerifyReport,
    progress: Progress,
) -> None:
    """Read every blob, the large ones first; then every needed blob must be complete."""
    progress.plan(len(keys), sum(keys.values()))

    def check(key: BlobKey) -> tuple[int, Damage | None]:
        reference = needed.get(key.digest)
        with progress.file(reference.label if reference else key.path, keys[key]) as advance:
            return _check_blob(open_key, key, reference, advance)

    ordered = sorted(keys, key=lambda key: (-keys[key], key))
    for count, damage in run_parallel(check, ordered, WORKERS):
        report.blobs += 1
        report.size += count
        if damage is not None:
            report.damages.append(damage)
    for digest in sorted(needed.keys() - {key.digest for key in keys}):
        reference = needed[digest]
        detail = f"blob {digest} is not there"
        report.damages.append(Damage("missing", reference.label, detail, digest, BlobKey(digest), reference))
    report.add_sharing()


def _check_blob(
    open_key: Open,
    key: BlobKey,
    reference: Reference | None,
    advance: Advance,
) -> tuple[int, Damage | None]:
    digest, label = key.digest, reference.label if reference else "nothing readable refers to it"
    try:
        with open_key(key) as stream:
            source = metered(stream, advance, f"reading blob {digest}")
            actual, count = streams.pump(source, None)
    except MissingBlobError:
        if reference is None:
            return 0, None  # a collector freed it since it was listed
        return 0, Damage("missing", label, f"blob {digest} is not there", digest, key, reference)
    except RegError as error:
        kind, detail = fault("damaged", error)
        return 0, Damage(kind, label, detail, digest, key, reference)
    size = reference.size if reference else None
    if actual == digest and size in (None, count):
        return count, None
    if size is not None and count < size:
        detail = f"blob {digest} has {count} of {size} bytes"
        return count, Damage("short", label, detail, digest, key, reference)
    detail = f"blob {digest} has other bytes than its name says"
    return count, Damage("damaged", label, detail, digest, key, reference)


def _key_of(file: TreeFile) -> BlobKey | None:
    return BlobKey.of_path(file.path) if file.size is not None else None


_FIXED = frozenset({"registry.json", "policy.jsonl", CATALOG})
_NOTES = re.compile(rf"gc/((intents|condemned)/({NOTE.pattern})|probe-[0-9a-f]{{16}})")
"""Notes, and the scratch of the probes and trials of `reg doctor`."""


def is_registry_file(file: TreeFile) -> bool:
    """Check if the path is one of a registry, and the file a regular one."""
    path = file.path
    if file.size is None:
        return False
    if path in _FIXED or _key_of(file) is not None or _NOTES.fullmatch(path):
        return True
    return model_of(path) is not None


def stray_files(remote: RegistryStore) -> list[Damage]:
    """Files that do not belong to a registry, such as a link, or an index file without a valid name."""
    return _strays(list(remote.files()))


_MARKS = re.compile(r"[ .(-]")
"""The characters between a file's name and what a sync program adds to it."""


def _strays(files: Collection[TreeFile]) -> list[Damage]:
    """The stray files, without those that the system puts into every folder; copies of a sync program are only named."""
    own = {file.path.rpartition(".")[0] or file.path for file in files if is_registry_file(file)}
    damages = []
    for file in files:
        if is_registry_file(file) or is_system_path(file.path):
            continue
        if file.size is not None and any(
            file.path[: mark.start()] in own for mark in _MARKS.finditer(file.path)
        ):
            notices.tell(
                f"{file.path} looks like the conflict copy of a sync program: events may be lost in it; compare, "
                "then move it out of the registry"
            )
        else:
            damages.append(_stray(file))
    return damages


def _stray(file: TreeFile) -> Damage:
    problem = "is not a file of a registry" if file.size is not None else "is not a regular file"
    return Damage("stray", file.path, f"{file.path} {problem}")
