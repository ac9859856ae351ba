"""Verify for one user: a log must continue its known head, and meet the trust file and the policies."""

from collections.abc import Iterator

from onnxreg.registry.gates.enforce import audit_gates
from onnxreg.registry.gates.policy_log import read_policies
from onnxreg.registry.log import lookup
from onnxreg.registry.log.log import Log
from onnxreg.registry.maintain.verification import Audit, Damage, VerifyReport, no_audit, verify, verify_model
from onnxreg.registry.store.archive_reader import POLICIES, TRUST, ArchiveRegistry
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore
from onnxreg.registry.trust.checked_reader import CheckedReader, load_trust
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.requirements import audit_head, audit_signatures, enforce_policies
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.inputs.trust_file import Trust


def verify_watched(
    store: RegistryStore, known_heads: KnownHeads, ref: Ref | None = None, progress: Progress = SILENT
) -> VerifyReport:
    """Verify a registry, a model or a version, also against the user's known heads and trust file.

    NotFoundError if the registry is gone, IntegrityError if another took its place.
    """
    _ = store.is_mirror
    trust = load_trust()

    def audit(log: Log, index: IndexFile) -> Iterator[tuple[str, str]]:
        yield from audit_head(store, known_heads, log.name, index)
        yield from _audit(store, trust, log)

    if ref is not None:
        if store.read_index(ref.name) is None:
            raise lookup.unknown_model(ref.name, store)
        carried = store.carried
        versions = None if carried is None else carried.get(ref.name, frozenset())
        if not ref.is_bare:
            versions = frozenset({lookup.find(store, ref, yanked=True).version})
        report = verify_model(store, ref.name, versions, progress, audit)
    elif isinstance(store, ArchiveRegistry):
        report = verify_archive(store, progress, audit)
    else:
        report = verify(store, progress, audit)
    _audit_policies(CheckedReader(store, known_heads), trust, report)
    return report


def verify_trusted(archive: ArchiveRegistry, trust: Trust, progress: Progress = SILENT) -> VerifyReport:
    """Verify the versions that an archive carries. Only `trust` counts: the trust file in the archive is not read.

    Damages are also signatures that are wrong, or required and missing, and governed channels with a version that
    the archive's policy bars.
    """
    report = verify_archive(archive, progress, lambda log, _: _audit(archive, trust, log))
    _audit_policies(archive, trust, report)
    return report


def _audit(reader: RegistryReader, trust: Trust, log: Log) -> Iterator[tuple[str, str]]:
    yield from audit_signatures(trust, log)
    yield from audit_gates(reader, log, trust)


def _audit_policies(reader: RegistryReader, trust: Trust, report: VerifyReport) -> None:
    """Add faults of the log of policies: broken, not signed as required, or missing although the trust file demands it."""
    try:
        log, index = read_policies(reader), reader.read_index(POLICY_LOG)
        if index is not None and log.lines:
            _ = log.policy
            enforce_policies(trust, reader.registry_id, index)
        elif trust.governs(reader.registry_id):
            report.damages.append(Damage("policy", POLICIES, "it has no policy, and must have one"))
    except RegError as error:
        report.add("policy", POLICIES, error)


def verify_archive(
    archive: ArchiveRegistry, progress: Progress = SILENT, audit: Audit = no_audit
) -> VerifyReport:
    """Verify the versions that the archive carries, without any other source; `archive.json` and the logs must agree."""
    report = verify(archive, progress, audit, archive.carried)
    damages = report.damages
    try:
        archive.store.get(TRUST)
    except RegError as error:
        damages.append(Damage("archive", TRUST, error.message))
    if not any(archive.carried.values()):
        damages.append(Damage("archive", archive.url, "it carries no version"))
    for name, versions in archive.carried.items():
        try:
            entries = lookup.read_log(archive, name).versions
        except RegError as error:
            damages.append(Damage("archive", name, f"it says that it carries {name}: {error.message}"))
            continue
        for version in sorted(versions):
            if version not in entries or entries[version].gone is not None:
                detail = "it says that it carries what its log does not have"
                damages.append(Damage("archive", f"{name}:{version}", detail))
    if report.unreferenced:
        detail = f"{report.unreferenced} blobs that no carried version and no log refers to"
        damages.append(Damage("stray", archive.url, detail))
    return report
