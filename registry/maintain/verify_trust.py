"""Verifying for a reader: beyond its own consistency a history must be what was seen of it, and signed and promoted as the
reader's trust file and the registry's policies demand."""

from collections.abc import Iterator

from onnxreg.registry.gates.enforce import audit_gates
from onnxreg.registry.gates.evaluations import audit_evaluations
from onnxreg.registry.gates.policy_log import read_policies
from onnxreg.registry.log import lookup
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.maintain.verification import Audit, Damage, VerifyReport, verify, verify_model
from onnxreg.registry.maintain.verify_archive import verify_archive
from onnxreg.registry.store.archive.archive_reader import POLICIES, ArchiveRegistry, carried_by
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore
from onnxreg.registry.transfer.copy import Progress
from onnxreg.registry.trust.checked_source import CheckedReader
from onnxreg.registry.trust.read_trust_file import load_trust
from onnxreg.registry.trust.requirements import audit_head, audit_signatures, enforce_policies
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.inputs.trust_file import Trust


def verify_watched(
    place: RegistryStore, heads: CheckpointStore, ref: Ref | None = None, progress: Progress | None = None
) -> VerifyReport:
    """As `verify`, or of one model or version; for the user, who saw `heads` before and has a trust file."""

    def audit(ledger: Ledger, index: IndexFile) -> Iterator[tuple[str, str]]:
        yield from audit_head(place, heads, ledger.name, index)
        yield from _audit(place, load_trust(), ledger)

    if ref is not None:
        return _verify_ref(place, ref, progress, audit)
    if isinstance(place, ArchiveRegistry):
        report = verify_archive(place, progress, audit)
    else:
        report = verify(place, progress, audit)
    report.damages += _damages(_seen_faults(place, heads))
    return report


def verify_trusted(archive: ArchiveRegistry, trust: Trust, progress: Progress | None = None) -> VerifyReport:
    """As `verify_archive`; and a signature that is wrong, or demanded and missing, is damage, as is a governed channel that
    holds what the archive's policy bars. Of trust only what is given counts: a copy in the archive is not read."""

    def audit(ledger: Ledger, index: IndexFile) -> Iterator[tuple[str, str]]:
        return _audit(archive, trust, ledger)

    report = verify_archive(archive, progress, audit)
    report.damages += _damages(_policy_faults(archive, trust))
    return report


def _verify_ref(place: RegistryStore, ref: Ref, progress: Progress | None, audit: Audit) -> VerifyReport:
    if place.read_index(ref.name) is None:
        raise lookup.unknown(ref.name, place)
    found = None if ref.is_bare else lookup.find(place, ref, yanked=True)
    carried = carried_by(place)
    rest = None if carried is None else carried.get(ref.name, ())
    return verify_model(place, ref.name, [found.version] if found else rest, progress, audit)


def _audit(place: RegistryReader, trust: Trust, ledger: Ledger) -> Iterator[tuple[str, str]]:
    yield from audit_signatures(trust, ledger)
    yield from audit_evaluations(ledger, trust)
    yield from audit_gates(place, ledger, trust)


def _damages(faults: Iterator[str]) -> list[Damage]:
    return [Damage("policy", POLICIES, what) for what in faults]


def _seen_faults(place: RegistryReader, heads: CheckpointStore) -> Iterator[str]:
    """What is wrong with the log of policies, read as the user reads it."""
    try:
        read_policies(CheckedReader(place, heads))
    except RegError as error:
        yield error.message


def _policy_faults(archive: ArchiveRegistry, trust: Trust) -> Iterator[str]:
    """What is wrong with the log of policies: broken, not signed as it must be, or gone where there must be one."""
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
