"""Verifying an archive by a trust file of the reader's: the signatures, and what the policy in it demands."""

from collections.abc import Iterator

from onnxreg.registry.backends.archive import POLICIES, ArchiveRemote
from onnxreg.registry.gates.evaluations import audit_evaluations
from onnxreg.registry.gates.holding import audit_gates
from onnxreg.registry.gates.policies import read_policies
from onnxreg.registry.health.archived import verify_archive
from onnxreg.registry.health.verify import Damage, Report
from onnxreg.registry.history.ledger import Ledger
from onnxreg.registry.moving.copying import Progress
from onnxreg.registry.storage import IndexFile
from onnxreg.registry.trust.policy import audit_signatures, enforce_policies
from onnxreg.schema.errors import RegError
from onnxreg.schema.ref import POLICY_LOG
from onnxreg.schema.trustfile import Trust


def verify_trusted(archive: ArchiveRemote, trust: Trust, progress: Progress | None = None) -> Report:
    """As `verify_archive`; and a signature that is wrong, or demanded and missing, is damage, as is a governed channel that
    holds what the archive's policy bars. Of trust only what is given counts: a copy in the archive is not read."""

    def audit(ledger: Ledger, index: IndexFile) -> Iterator[tuple[str, str]]:
        yield from audit_signatures(trust, ledger)
        yield from audit_evaluations(ledger, trust)
        yield from audit_gates(archive, ledger, index, trust)

    report = verify_archive(archive, progress, audit)
    report.damages += [Damage("policy", POLICIES, what) for what in _policy_faults(archive, trust)]
    return report


def _policy_faults(archive: ArchiveRemote, trust: Trust) -> Iterator[str]:
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
