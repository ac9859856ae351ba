"""Reading a registry again from end to end, and naming every damage found."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from onnxreg.registry import hashing
from onnxreg.registry.blobs import read_blob
from onnxreg.registry.commit import load
from onnxreg.registry.copying import Metered, Progress, refers_to, run_parallel
from onnxreg.registry.ledger import Ledger, replay
from onnxreg.registry.manifests import read_manifest
from onnxreg.registry.storage import Remote
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import NotFoundError, RegError
from onnxreg.schema.events import Attest
from onnxreg.schema.version import Version


@dataclass(frozen=True)
class Damage:
    """One thing that is not as its digest or history says. Kinds: index, log, state, manifest, missing, damaged."""

    kind: str
    name: str
    detail: str
    digest: Digest | None = None

    def to_json(self) -> dict[str, Any]:
        value = {"kind": self.kind, "name": self.name, "detail": self.detail}
        return value if self.digest is None else {**value, "digest": str(self.digest)}


@dataclass
class Report:
    """What was read, and what is damaged."""

    models: int = 0
    versions: int = 0
    blobs: int = 0
    size: int = 0
    damages: list[Damage] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": not self.damages,
            "models": self.models,
            "versions": self.versions,
            "blobs": self.blobs,
            "bytes": self.size,
            "damages": [damage.to_json() for damage in self.damages],
        }


def verify(
    remote: Remote, names: Iterable[str], only: Version | None = None, progress: Progress | None = None
) -> Report:
    """Read the logs of these models, and every blob that their versions (or only one of them) refer to.

    Never stops at the first damage. Each blob is read once, however many versions share it.
    """
    report = Report()
    wanted: dict[Digest, tuple[str, int | None]] = {}
    for name in names:
        report.models += 1
        try:
            ledger, index = load(remote, name)
            if index is None:
                raise NotFoundError(f"the index of {name} is gone")
            wanted |= _check_log(ledger, index.data, report)
        except RegError as error:
            report.damages.append(Damage("index", name, error.message))
            continue
        for version, entry in ledger.entries.items():
            if only in (None, version):
                report.versions += 1
                wanted |= _check_manifest(remote, name, version, entry.manifest, report)
    _check_blobs(remote, wanted, report, progress or Progress())
    return report


def _check_log(ledger: Ledger, index: bytes, report: Report) -> dict[Digest, tuple[str, int | None]]:
    """The chain, and the index against a replay of it. Returns the blobs that attestations refer to."""
    try:
        lines = list(ledger.lines())
        again = replay(lines, ledger.registry, ledger.name, ledger.fetch).encode()
    except RegError as error:
        report.damages.append(Damage("log", ledger.name, error.message))
        return {}
    if index != again:
        detail = "the state line is not what a replay of the log gives"
        report.damages.append(Damage("state", ledger.name, detail))
    statements = [line.event.statement for line in lines if isinstance(line.event, Attest)]
    return dict.fromkeys(statements, (ledger.name, None))


def _check_manifest(
    remote: Remote, name: str, version: Version, digest: Digest, report: Report
) -> dict[Digest, tuple[str, int | None]]:
    ref = f"{name}:{version}"
    try:
        data = read_blob(remote, digest)
        manifest = read_manifest(data, digest, name)
    except RegError as error:
        kind = "missing" if isinstance(error, NotFoundError) else "manifest"
        report.damages.append(Damage(kind, ref, error.message, digest))
        return {}
    report.blobs += 1
    report.size += len(data)
    named = {entry.digest: entry.path for entry in manifest.all_files()}
    wanted = refers_to(manifest)
    return {digest: (f"{ref} {named.get(digest, 'operators')}", size) for digest, size in wanted.items()}


def _check_blobs(
    remote: Remote, wanted: dict[Digest, tuple[str, int | None]], report: Report, progress: Progress
) -> None:
    progress.plan(len(wanted), sum(size or 0 for _, size in wanted.values()))
    stop = threading.Event()

    def check(digest: Digest) -> tuple[int, Damage | None]:
        what, size = wanted[digest]
        try:
            with remote.open_blob(digest) as stream:
                metered = Metered(stream, progress, stop, f"reading blob {digest}")
                found, count = hashing.pump(cast(BinaryIO, metered), None)
        except RegError as error:
            kind = "missing" if isinstance(error, NotFoundError) else "damaged"
            return 0, Damage(kind, what, error.message, digest)
        if size not in (None, count):
            return count, Damage(
                "damaged", what, f"blob {digest} has {count} bytes instead of {size}", digest
            )
        if found != digest:
            return count, Damage("damaged", what, f"blob {digest} has changed bytes", digest)
        return count, None

    for count, damage in run_parallel(check, sorted(wanted), stop):
        report.blobs += 1
        report.size += count
        if damage is not None:
            report.damages.append(damage)
