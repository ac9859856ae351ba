"""Reading a registry again from end to end, and naming every damage found."""

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, cast

from onnxreg.registry.log.collect import blob_keys
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.ledger import Ledger, replay
from onnxreg.registry.log.references import Reference, documents, files, present_versions
from onnxreg.registry.store import hash_stream
from onnxreg.registry.store.layout import NOTE, BlobKey, model_of
from onnxreg.registry.store.protocol import (
    IndexFile,
    MissingBlobError,
    RegistryStore,
    TreeFile,
    UnlistedError,
)
from onnxreg.registry.transfer import copy
from onnxreg.registry.transfer.copy import MeteredReader, Progress, run_parallel
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.version import Version

WORKERS = max(copy.WORKERS, os.cpu_count() or 1)

Open = Callable[[BlobKey], BinaryIO]
Audit = Callable[[Ledger, IndexFile], Iterable[tuple[str, str]]]
"""What is wrong with a model's history beyond its own consistency: `history` or `signature`, and what it is."""


@dataclass(frozen=True)
class Damage:
    """One thing that is not as its digest or history says.

    Kinds: `index` (unreadable), `log` (broken chain), `state` (differs from the replay), `history` (not what was seen
    before), `signature` (wrong or missing), `gate` (a governed channel that holds what its policy bars), `policy` (the log of
    policies), `manifest` (not one), and of blobs `missing`, `short`, `damaged`, `unreadable`; `stray` is a file that no registry has. `key` is where a bad blob
    lies, or should lie; `wanted` is what refers to it, None where nothing that could be read does.
    """

    kind: str
    name: str
    detail: str
    digest: Digest | None = None
    key: BlobKey | None = None
    wanted: Reference | None = None

    def to_json(self) -> dict[str, Any]:
        value = {"kind": self.kind, "name": self.name, "detail": self.detail}
        return value if self.digest is None else {**value, "digest": str(self.digest)}


@dataclass
class VerifyReport:
    """What was read, and what is damaged. `unreferenced` blobs are no damage: `reg gc` frees them.

    `sharing` is how many versions have each file.
    """

    models: int = 0
    versions: int = 0
    blobs: int = 0
    size: int = 0
    unreferenced: int = 0
    damages: list[Damage] = field(default_factory=list)
    sharing: Counter[Digest] = field(default_factory=Counter)

    def tell_sharing(self) -> None:
        """A damage names one version that has the file: say how many more of them do."""
        for place, damage in enumerate(self.damages):
            if (more := self.sharing[damage.digest] - 1 if damage.digest else 0) > 0:
                shared = f"; so it is in {more} more version{'s' if more > 1 else ''}"
                self.damages[place] = replace(damage, detail=damage.detail + shared)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": not self.damages,
            "models": self.models,
            "versions": self.versions,
            "blobs": self.blobs,
            "bytes": self.size,
            "unreferenced": self.unreferenced,
            "damages": [damage.to_json() for damage in self.damages],
        }


def unaudited(ledger: Ledger, index: IndexFile) -> Iterable[tuple[str, str]]:
    return ()


def verify(
    remote: RegistryStore,
    progress: Progress | None = None,
    audit: Audit = unaudited,
    only: Mapping[str, Collection[Version]] | None = None,
) -> VerifyReport:
    """Read every log and every blob of a registry, referred to or not, and look for files that do not belong there.

    Never stops at the first damage. Each blob is read once, however many versions share it. With `only` just the files of
    these versions, by model, must be there.
    """
    report = VerifyReport()
    wanted: dict[Digest, Reference] = {}
    for name in list(remote.names()):
        wanted |= _check_model(remote, name, None if only is None else only.get(name, ()), report, audit)
    found = list(remote.files())
    keys = {key: file.size or 0 for file in found if (key := _key_of(file)) is not None}
    report.unreferenced = sum(key.digest not in wanted for key in keys)
    report.damages += _strays(found)
    _check_blobs(remote.open_key, wanted, keys, report, progress or Progress())
    return report


def verify_model(
    remote: RegistryStore,
    name: str,
    only: Collection[Version] | None = None,
    progress: Progress | None = None,
    audit: Audit = unaudited,
) -> VerifyReport:
    """As `verify`, for what one model (or only these versions of it) refers to."""
    report = VerifyReport()
    wanted = _check_model(remote, name, only, report, audit)
    try:
        found = {key: size for key, size in blob_keys(remote).items() if key.digest in wanted}
    except UnlistedError:
        asked = {BlobKey(digest): wanted[digest].size or 0 for digest in remote.has(wanted)}
        _check_blobs(_by_digest(remote), wanted, asked, report, progress or Progress())
    else:
        _check_blobs(remote.open_key, wanted, found, report, progress or Progress())
    return report


def _by_digest(remote: RegistryStore) -> Open:
    """Reads whatever key a blob lies under, of a place that does not tell which keys there are."""
    return lambda key: remote.open_blob(key.digest)


def _check_model(
    remote: RegistryStore, name: str, only: Collection[Version] | None, report: VerifyReport, audit: Audit
) -> dict[Digest, Reference]:
    """The log and manifests of a model; returns the blobs that it refers to."""
    report.models += 1
    try:
        ledger, index = load(remote, name)
        if index is None:
            raise NotFoundError(f"the index of {name} is gone")
    except RegError as error:
        report.damages.append(Damage("index", name, error.message))
        return {}
    damages = len(report.damages)
    wanted = _check_log(ledger, index.data, report)
    if len(report.damages) == damages:  # what is damaged is no history to remember
        report.damages += [Damage(kind, name, detail) for kind, detail in audit(ledger, index)]
    for version, entry in present_versions(ledger):
        if only is None or version in only:
            report.versions += 1
            try:
                found = {file.digest: file for file in files(ledger, version, entry)}
                report.sharing.update(found.keys())
                wanted |= found
            except NotFoundError:
                pass  # the manifest is among the documents, and reported as missing there
            except RegError as error:
                report.damages.append(Damage("manifest", f"{name}:{version}", error.message, entry.manifest))
    return wanted


def _check_log(ledger: Ledger, index: bytes, report: VerifyReport) -> dict[Digest, Reference]:
    """The chain, and the index against a replay of it. Returns the documents that the log refers to, as far as it goes."""
    wanted: dict[Digest, Reference] = {}
    try:
        for document in documents(ledger):
            wanted[document.digest] = document
        replayed = replay(ledger.lines(), ledger.registry, ledger.name, ledger.fetch)
    except RegError as error:
        report.damages.append(Damage("log", ledger.name, error.message))
        return wanted
    try:
        if index != replayed.encode():
            detail = "the state line is not what a replay of the log gives"
            report.damages.append(Damage("state", ledger.name, detail))
    except (NotFoundError, IntegrityError):
        pass  # a manifest that the state line summarises: it is among the documents, and reported as such
    return wanted


def _check_blobs(
    open_key: Open,
    wanted: dict[Digest, Reference],
    keys: dict[BlobKey, int],
    report: VerifyReport,
    progress: Progress,
) -> None:
    """Every blob that lies there is read, the large ones first; then every wanted one must lie there whole."""
    progress.plan(len(keys), sum(keys.values()))
    stop = threading.Event()

    def check(key: BlobKey) -> tuple[int, Damage | None]:
        reference = wanted.get(key.digest)
        with progress.file(reference.what if reference else key.path, keys[key]) as moved:
            return _check_blob(open_key, key, reference, moved, stop)

    ordered = sorted(keys, key=lambda key: (-keys[key], key))
    whole = set()
    for key, (count, damage) in zip(ordered, run_parallel(check, ordered, stop, WORKERS), strict=True):
        report.blobs += 1
        report.size += count
        if damage is None:
            whole.add(key.digest)
        else:
            report.damages.append(damage)
    present = {key.digest for key in keys}
    for digest in sorted(wanted.keys() - whole - present):
        reference = wanted[digest]
        detail = f"blob {digest} is not there"
        report.damages.append(Damage("missing", reference.what, detail, digest, BlobKey(digest), reference))
    report.tell_sharing()


def _check_blob(
    open_key: Open,
    key: BlobKey,
    wanted: Reference | None,
    moved: Callable[[int], None],
    stop: threading.Event,
) -> tuple[int, Damage | None]:
    digest, what = key.digest, wanted.what if wanted else "nothing refers to it"
    try:
        with open_key(key) as stream:
            metered = MeteredReader(stream, moved, stop, f"reading blob {digest}")
            found, count = hash_stream.pump(cast(BinaryIO, metered), None)
    except MissingBlobError:
        if wanted is None:
            return 0, None  # a collector freed it since it was listed
        return 0, Damage("missing", what, f"blob {digest} is not there", digest, key, wanted)
    except RegError as error:
        return 0, Damage("unreadable", what, error.message, digest, key, wanted)
    size = wanted.size if wanted else None
    if found == digest and size in (None, count):
        return count, None
    if size is not None and count < size:
        detail = f"blob {digest} has {count} of {size} bytes"
        return count, Damage("short", what, detail, digest, key, wanted)
    detail = f"blob {digest} has other bytes than its name says"
    return count, Damage("damaged", what, detail, digest, key, wanted)


def _key_of(file: TreeFile) -> BlobKey | None:
    return BlobKey.of_path(file.path) if file.size is not None else None


_FIXED = frozenset({"registry.json", "policy.jsonl"})
_NOTES = re.compile(rf"gc/((intents|condemned)/({NOTE.pattern})|probe-[0-9a-f]{{16}}|live-[0-9a-f]{{16}}/.+)")
"""Notes, and the scratch of the probes and trials of `reg doctor`."""


def belongs(file: TreeFile) -> bool:
    """Whether a registry has a file of this name, and it is a regular one."""
    path = file.path
    if file.size is None:
        return False
    if path in _FIXED or _key_of(file) is not None or _NOTES.fullmatch(path):
        return True
    return model_of(path) is not None


def stray_files(remote: RegistryStore) -> list[Damage]:
    """The files that no registry has, such as a link or a model's index under a name that is none."""
    return _strays(remote.files())


def _strays(files: Iterable[TreeFile]) -> list[Damage]:
    return [_stray(file) for file in files if not belongs(file)]


def _stray(file: TreeFile) -> Damage:
    what = "is no file of a registry" if file.size is not None else "is not a regular file"
    return Damage("stray", file.path, f"{file.path} {what}")
