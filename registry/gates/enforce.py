"""Whether what a governed channel holds was promoted, and still meets the policy in force. Everything is found anew."""

from collections.abc import Iterator, Sequence

from onnxreg.registry.gates.evaluate import judge_version
from onnxreg.registry.gates.gate_history import compared_with, moves
from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.gates.promotion_evidence import PromotionEvidence
from onnxreg.registry.log.commit import read_ledger
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import LocatedVersion, state_of
from onnxreg.registry.store.blobs import steady
from onnxreg.registry.store.manifests import check_summary
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.errors import EXTENT, GateError, InputError, IntegrityError, RegError
from onnxreg.schema.gates.policy import Rule
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Tag
from onnxreg.schema.log.state import State

HINT = "do not use it until you know why; `reg promote` by somebody who may puts it right"


def check_holder(
    place: RegistryReader, channel: str, found: LocatedVersion, index: IndexFile | None, policies: IndexFile
) -> None:
    """As `check_held`, of index files that were read; and the version that was `found` there is the one that is judged."""
    log = PolicyLog.decode(policies.data, place.registry_id)
    if not log.policy.covering(found.name, channel):
        return

    def judge(read: IndexFile | None) -> None:
        ledger = read_ledger(place, found.name, read)
        check_held(ledger, log, channel)
        check_answer(ledger, channel, found, state_of(place, found.name, index or read))

    steady(place, found.name, judge, index)


def check_answer(ledger: Ledger, channel: str, found: LocatedVersion, answered: State) -> None:
    """Raise GateError if a channel that was judged holds another version than was found; IntegrityError if
    the state line that the answer came from says other things of it than its manifest.

    The judged log may be newer than that state line: what its index file named may have been freed meanwhile.
    """
    held = ledger.channels.get(channel)
    if held is None or (held.version, held.manifest) != (found.version, found.entry.manifest):
        raise GateError(
            f"{found.name}:{channel} holds {held.version if held else 'nothing'} by now, and {found.version} was found",
            "it was moved while it was read: ask again",
        )
    summary = answered.summaries.get(str(found.version))
    if summary is not None:
        check_summary(summary, ledger.fetch(held.manifest), held.manifest, found.name)


def check_held(ledger: Ledger, log: PolicyLog, channel: str, trust: Trust | None = None) -> None:
    """Raise GateError if a governed channel holds what was not promoted to it, or does not meet the policy
    in force.

    `trust` is by default what the user's trust file says.
    """
    name = ledger.name
    rules = log.policy.covering(name, channel)
    if not rules:
        return
    past = moves(ledger, channel)
    held = ledger.channels.get(channel)
    if held is None or not past or (held.version, held.evidence) != (past[-1].version, past[-1].evidence):
        raise IntegrityError(f"{name}:{channel} was moved without an event in the log", EXTENT)
    _check_moves(ledger, log, rules, past)
    last = past[-1]
    judged = judge_version(ledger, rules, last.version, compared_with(past[:-1], last.manifest), trust)
    if judged.failed:
        faults = "; ".join(f"{finding.requirement}: {finding.detail}" for finding in judged.failed)
        raise GateError(f"{name}:{channel} is {last.version}, which does not meet the policy: {faults}", HINT)


def _check_moves(ledger: Ledger, log: PolicyLog, rules: Sequence[Rule], past: Sequence[Tag]) -> None:
    """The last move must be a promotion; where breaking changes are barred, each promotion before it is looked at too.

    Else an attacker could go from one holder to another by way of a third.
    """
    where = f"{ledger.name}:{past[-1].tag}"
    if past[-1].evidence is None:
        raise GateError(f"{where} was moved to {past[-1].version} without a promotion", HINT)
    newest = 0
    for place, move in enumerate(past):
        if move.evidence is None:
            continue
        seq = check_evidence(ledger, log, move)
        if seq < newest:
            raise GateError(
                f"{where} was moved to {move.version} under a policy that was replaced before", HINT
            )
        newest = seq
        known = log.at(move.policy) if move.policy else None
        barring = [
            r for r in (known[1].covering(ledger.name, move.tag) if known else ()) if r.breaking is False
        ]
        if move is not past[-1] and barring and move.version in ledger.entries:
            _check_breaking(ledger, barring, past[:place], move)


def check_evidence(ledger: Ledger, log: PolicyLog, move: Tag) -> int:
    """The number of the policy that a promotion names.

    Raise GateError if its evidence is not about this very move.
    """
    where = f"{ledger.name}:{move.tag}"
    known = log.at(move.policy) if move.policy else None
    if known is None or move.evidence is None or move.policy is None:
        raise GateError(
            f"{where} was moved to {move.version} under a policy that the registry never had", HINT
        )
    try:
        found = PromotionEvidence.decode(ledger.fetch(move.evidence))
    except InputError as error:
        raise GateError(f"{where}: {error.message}", HINT) from error
    said = (found.name, found.channel, found.version, found.manifest, found.policy)
    if said != (ledger.name, move.tag, move.version, move.manifest, move.policy):
        raise GateError(f"the evidence of {where} is that of another move", HINT)
    return known[0]


def _check_breaking(ledger: Ledger, rules: Sequence[Rule], past: Sequence[Tag], move: Tag) -> None:
    only = [Rule(rule.channel, rule.models, breaking=False) for rule in rules]
    judged = judge_version(ledger, only, move.version, compared_with(past, move.manifest))
    if judged.failed:
        raise GateError(
            f"{ledger.name}:{move.tag} was moved to {move.version} on the way: {judged.failed[0].detail}",
            HINT,
        )


def audit_gates(
    place: RegistryReader, ledger: Ledger, trust: Trust | None = None
) -> Iterator[tuple[str, str]]:
    """What `reg verify` says of the governed channels of a model; see `verify.Audit`."""
    for channel in sorted(ledger.channels):
        try:
            check_held(ledger, read_policies(place), channel, trust)
        except RegError as error:
            yield "gate", error.message
