"""Verify for one user: a log must continue its known head, and meet the trust file and the policies."""

from collections.abc import Iterator

from onnxreg.registry.gates.enforce import audit_gates
from onnxreg.registry.gates.policy_log import read_policies
from onnxreg.registry.gates.statements import audit_evaluations
from onnxreg.registry.log import lookup
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.maintain.verification import Audit, Damage, VerifyReport, no_audit, verify, verify_model
from onnxreg.registry.store.archive_reader import POLICIES, TRUST, ArchiveRegistry
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore, carried_by
from onnxreg.registry.trust.checked_reader import CheckedReader, load_trust
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.requirements import audit_head, audit_signatures, enforce_policies
from onnxreg.schema.core.errors import RegError, fault
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.inputs.trust_file import Trust


def verify_watched(
    store: RegistryStore,
    known_heads: KnownHeads,
    ref: Ref | None = None,
    progress: Progress = SILENT,
) -> VerifyReport:
    """Verify a registry, a model or a version, also against the user's known heads and trust file."""

    def audit(ledger: Ledger, index: IndexFile) -> Iterator[tuple[str, str]]:
        yield from audit_head(store, known_heads, ledger.name, index)
        yield from _audit(store, load_trust(), ledger)

    if ref is not None:
        report = _verify_ref(store, ref, progress, audit)
    elif isinstance(store, ArchiveRegistry):
        report = verify_archive(store, progress, audit)
    else:
        report = verify(store, progress, audit)
    report.damages += _policy_log_damage(store, known_heads)
    return report


def verify_trusted(archive: ArchiveRegistry, trust: Trust, progress: Progress = SILENT) -> VerifyReport:
    """Verify an archive. Only `trust` counts: the trust file in the archive is not read.

    Damages are also signatures that are wrong, or required and missing, and governed channels with a version that
    the archive's policy bars.
    """

    def audit(ledger: Ledger, index: IndexFile) -> Iterator[tuple[str, str]]:
        return _audit(archive, trust, ledger)

    report = verify_archive(archive, progress, audit)
    report.damages += _damages(_policy_faults(archive, trust))
    return report


def _verify_ref(store: RegistryStore, ref: Ref, progress: Progress, audit: Audit) -> VerifyReport:
    if store.read_index(ref.name) is None:
        raise lookup.unknown_model(ref.name, store)
    located = None if ref.is_bare else lookup.find(store, ref, yanked=True)
    carried = carried_by(store)
    versions = None if carried is None else carried.get(ref.name, ())
    return verify_model(store, ref.name, [located.version] if located else versions, progress, audit)


def _audit(reader: RegistryReader, trust: Trust, ledger: Ledger) -> Iterator[tuple[str, str]]:
    yield from audit_signatures(trust, ledger)
    yield from audit_evaluations(ledger, trust)
    yield from audit_gates(reader, ledger, trust)


def _damages(faults: Iterator[str]) -> list[Damage]:
    return [Damage("policy", POLICIES, detail) for detail in faults]


def _policy_log_damage(reader: RegistryReader, known_heads: KnownHeads) -> Iterator[Damage]:
    """Faults of the log of policies, read with the user's known heads, or missing although the trust file demands it."""
    try:
        log = read_policies(CheckedReader(reader, known_heads))
        if not log.lines and load_trust().governs(reader.registry_id):
            yield Damage("policy", POLICIES, "it has no policy, and must have one")
    except RegError as error:
        kind, detail = fault("policy", error)
        yield Damage(kind, POLICIES, detail)


def _policy_faults(archive: ArchiveRegistry, trust: Trust) -> Iterator[str]:
    """Faults of the log of policies: broken, not signed as required, or missing although required."""
    index = archive.read_index(POLICY_LOG)
    if index is None:
        if trust.governs(archive.registry_id):
            yield "it has no policy, and must have one"
        return
    try:
        _ = read_policies(archive).policy
        enforce_policies(trust, archive.registry_id, index)
    except RegError as error:
        yield error.message


def verify_archive(
    archive: ArchiveRegistry, progress: Progress = SILENT, audit: Audit = no_audit
) -> VerifyReport:
    """Verify the versions that the archive carries, without any other source."""
    report = verify(archive, progress, audit, archive.carried)
    report.damages += _contradictions(archive)
    if report.unreferenced:
        detail = f"{report.unreferenced} blobs that no carried version and no log refers to"
        report.damages.append(Damage("stray", archive.url, detail))
    return report


def _contradictions(archive: ArchiveRegistry) -> Iterator[Damage]:
    """Contradictions of `archive.json` and the logs, and damage of parts that no digest covers."""
    try:
        archive.store.get(TRUST)
    except RegError as error:
        yield Damage("archive", TRUST, error.message)
    if not any(archive.carried.values()):
        yield Damage("archive", archive.url, "it carries no version")
    for name, versions in archive.carried.items():
        try:
            _, entries = lookup.read_versions(archive, name)
        except RegError as error:
            yield Damage("archive", name, f"it says that it carries {name}: {error.message}")
            continue
        for version in sorted(versions):
            if version not in entries or entries[version].gone is not None:
                yield Damage(
                    "archive", f"{name}:{version}", "it says that it carries what its log does not have"
                )
