"""Reading a registry again from end to end, and naming every damage found."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from onnxreg.registry import hashing
from onnxreg.registry.blobs import read_blob
from onnxreg.registry.commit import load
from onnxreg.registry.copying import Progress, run_parallel
from onnxreg.registry.ledger import Ledger, replay
from onnxreg.registry.storage import Remote
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.events import Attest
from onnxreg.schema.manifest import Manifest
from onnxreg.schema.summary import operator_set
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
    wanted: dict[Digest, tuple[str, int]] = {}
    for name in names:
        report.models += 1
        try:
            ledger, token = load(remote, name)
            if token is None:
                raise NotFoundError(
                    f"there is no model {name} in {remote.url}", "`reg ls` shows what is there"
                )
            attested = _check_log(ledger, remote, report)
        except (IntegrityError, InputError) as error:
            report.damages.append(Damage("index", name, error.message))
            continue
        wanted |= attested
        for version, entry in ledger.entries.items():
            if only in (None, version):
                report.versions += 1
                wanted |= _check_manifest(remote, name, version, entry.manifest, report)
    _check_blobs(remote, wanted, report, progress or Progress())
    return report


def _check_log(ledger: Ledger, remote: Remote, report: Report) -> dict[Digest, tuple[str, int]]:
    """The chain, and the state against a replay of it. Returns the blobs that attestations refer to."""
    attested: dict[Digest, tuple[str, int]] = {}
    try:
        lines = list(ledger.lines())
        again = replay(lines, ledger.registry, ledger.name, ledger.fetch)
    except RegError as error:
        report.damages.append(Damage("log", ledger.name, error.message))
        return attested
    for line in lines:
        if isinstance(line.event, Attest):
            attested[line.event.statement] = (ledger.name, -1)
    try:
        index = remote.read_index(ledger.name)
        if index is not None and index.data != again.encode():
            report.damages.append(
                Damage("state", ledger.name, "the state line is not what a replay of the log gives")
            )
    except RegError as error:
        report.damages.append(Damage("state", ledger.name, error.message))
    return attested


def _check_manifest(
    remote: Remote, name: str, version: Version, digest: Digest, report: Report
) -> dict[Digest, tuple[str, int]]:
    ref = f"{name}:{version}"
    try:
        data = read_blob(remote, digest)
        manifest = Manifest.decode(data, "manifest")
        if manifest.name != name:
            raise IntegrityError(f"it is the manifest of {manifest.name}")
    except NotFoundError:
        report.damages.append(Damage("missing", ref, "the manifest is missing", digest))
        return {}
    except RegError as error:
        report.damages.append(Damage("manifest", ref, error.message, digest))
        return {}
    report.blobs += 1
    report.size += len(data)
    wanted = {entry.digest: (f"{ref} {entry.path}", entry.size) for entry in manifest.all_files()}
    for artifact in manifest.artifacts:
        operators = operator_set(artifact)
        if operators is not None:
            wanted[Digest.of(operators)] = (f"{ref} operators of {artifact.path}", len(operators))
    return wanted


def _check_blobs(
    remote: Remote, wanted: dict[Digest, tuple[str, int]], report: Report, progress: Progress
) -> None:
    progress.plan(len(wanted), sum(max(size, 0) for _, size in wanted.values()))

    def check(digest: Digest) -> tuple[int, Damage | None]:
        what, size = wanted[digest]
        try:
            with remote.open_blob(digest) as stream:
                found, count = hashing.pump(stream, None, progress.moved)
        except RegError as error:
            kind = "missing" if isinstance(error, NotFoundError) else "damaged"
            return 0, Damage(kind, what, f"{error.message}", digest)
        if found != digest:
            words = f"has {count} bytes instead of {size}" if size not in (-1, count) else "has changed bytes"
            return count, Damage("damaged", what, f"blob {digest} {words}", digest)
        return count, None

    for count, damage in run_parallel(check, sorted(wanted), threading.Event()):
        report.blobs += 1
        report.size += cast(int, count)
        if damage is not None:
            report.damages.append(damage)
