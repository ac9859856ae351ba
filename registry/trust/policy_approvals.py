"""The keys that approved each line of a registry's log of policies, and the lines that lack some."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from onnxreg.registry.trust.signatures import SignatureJudge
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.gates.approval import approved_bytes, unapproved
from onnxreg.schema.gates.policy import Policy
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import PolicyEvent
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.signing.line_signature import read_sig


def missing_approvals(trust: Trust, registry: str, lines: Sequence[LogLine]) -> Iterator[tuple[int, str]]:
    """Yield each line that demands less than the one before without the signatures that this one demanded.

    With the line's number, what is missing, as gates word it. InputError if a line cannot be read.
    """
    digests = {line.seq: line.digest for line in lines}
    judge = SignatureJudge(trust, registry, POLICY_LOG, digests.get)
    trusted = frozenset(name for key in trust.keys.values() for name in (key.name, key.key.id))
    for before, line in pairwise(lines):
        old, new = _policy(before), _policy(line)
        for detail in unapproved(old, new, trust.signers(_approvers(judge, line, new)), trusted):
            yield line.seq, detail


def _policy(line: LogLine) -> Policy:
    assert isinstance(line.event, PolicyEvent), "the log of policies has no other events"
    return Policy.read(line.event.rules)


def _approvers(judge: SignatureJudge, line: LogLine, policy: Policy) -> list[str]:
    """The ids of the trusted keys that approved a line: by an approval, or by signing the line itself.

    A key counts whatever models it may sign.
    """
    data = approved_bytes(judge.registry, line.prev, policy)
    assert isinstance(line.event, PolicyEvent), "the log of policies has no other events"
    signatures = map(read_sig, line.event.approvals or ())
    verdicts = [judge.verdict(item.keyid, item.sig, data, line.seq) for item in signatures]
    verdicts.append(judge.line(line))
    return sorted({item.keyid or "" for item in verdicts if item.status in ("trusted", "foreign")})


def check_approvals(trust: Trust, registry: str, lines: Sequence[LogLine]) -> None:
    """Raise IntegrityError at the first policy that was loosened without the signatures that were demanded."""
    try:
        for seq, detail in missing_approvals(trust, registry, lines):
            raise IntegrityError(
                f"policy {seq} demands less than policy {seq - 1}, without its signatures: {detail}",
                "ask the registry's owner who loosened it",
            )
    except InputError as error:
        raise IntegrityError(f"the policy log cannot be read: {error.message}", error.advice) from error
