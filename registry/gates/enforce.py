"""Check a governed channel: its version was promoted, and still meets the policy in force. No cache is trusted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from onnxreg.registry.gates.gate_history import compared_with, moves, rollout_hours, rollout_steps
from onnxreg.registry.gates.policy_log import PolicyLog, read_policies, with_policy
from onnxreg.registry.gates.promotion import PromotionEvidence, judge_version
from onnxreg.registry.gates.rollouts import judge_rollout
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import read_ledger
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import LocatedVersion, check_summary, read_consistently, state_of
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    Advice,
    GateError,
    InputError,
    IntegrityError,
    RegError,
    fault,
)
from onnxreg.schema.core.ref import Version
from onnxreg.schema.gates.policy import Policy
from onnxreg.schema.gates.rule import Rule
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import RolloutStep, Tag
from onnxreg.schema.log.state import Rollout, State

PROMOTE_ADVICE = Advice("promote-properly")


class UnpromotedError(GateError):
    """A governed channel or rollout that no promotion set. It does not resolve, and nothing is damaged."""


def check_holder(
    reader: RegistryReader,
    channel: str,
    located: LocatedVersion,
    index: IndexFile | None,
    policies: IndexFile,
) -> None:
    """Judge a governed channel, which must still hold the version `located`. See `check_held`."""
    log = PolicyLog.decode(policies.data, reader.registry_id)
    if not log.policy.covering(located.name, channel):
        return

    def judge(fresh: IndexFile | None) -> None:
        ledger = read_ledger(reader, located.name, fresh)
        rollout = ledger.rollouts.get(channel)
        if rollout is not None and rollout.manifest == located.entry.manifest:
            check_rollout(ledger, log, channel, rollout)
        else:
            check_held(ledger, log, channel)
        check_answer(ledger, channel, located, state_of(reader, located.name, index or fresh))

    read_consistently(reader, located.name, judge, index)


def check_answer(ledger: Ledger, channel: str, located: LocatedVersion, state: State) -> None:
    """Raise GateError if a judged channel no longer holds the version.

    Raise IntegrityError if the state line that the answer came from contradicts its manifest.

    The judged log may be newer than that state line, since a collector may have freed older documents.
    """
    current, rollout = ledger.channels.get(channel), ledger.rollouts.get(channel)
    manifests = {holder.manifest for holder in (current, rollout) if holder is not None}
    if current is None or located.entry.manifest not in manifests:
        raise GateError(
            f"{located.name}:{channel} holds {current.version if current else 'nothing'} by now, and {located.version} was found",
            "it was moved while it was read: ask again",
        )
    summary = state.summaries.get(str(located.version))
    if summary is not None:
        manifest = located.entry.manifest
        check_summary(summary, ledger.fetch(manifest), manifest, located.name)


def check_rollout(
    ledger: Ledger, log: PolicyLog, channel: str, rollout: Rollout, trust: Trust | None = None
) -> None:
    """Raise GateError if the version of a rollout on a governed channel was not promoted or fails the policy."""
    steps = [step for step in rollout_steps(ledger, channel) if step.manifest == rollout.manifest]
    if not steps or (steps[-1].percent, steps[-1].salt) != (rollout.percent, rollout.salt):
        raise IntegrityError(
            f"the rollout of {ledger.name}:{channel} is not what its log says", VERIFY_ADVICE
        )
    judged = judge_rollout(ledger, log, channel, rollout, trust=trust)
    if judged is None:
        return
    if steps[-1].evidence is None:
        raise UnpromotedError(
            f"{rollout.to} is rolled out to {ledger.name}:{channel} without a promotion", PROMOTE_ADVICE
        )
    check_evidence(ledger, log, steps[-1])
    if judged.failed:
        raise GateError(
            f"{rollout.to}, which is rolled out to {ledger.name}:{channel}, does not meet the policy: {judged.faults}",
            PROMOTE_ADVICE,
        )


def check_held(ledger: Ledger, log: PolicyLog, channel: str, trust: Trust | None = None) -> None:
    """Raise GateError if a governed channel holds a version that was not promoted or fails the policy.

    `trust` is by default what the user's trust file says.
    """
    name = ledger.name
    rules = log.policy.covering(name, channel)
    if not rules:
        return
    history = moves(ledger, channel)
    current = ledger.channels.get(channel)
    if (
        current is None
        or not history
        or (current.version, current.evidence) != (history[-1].version, history[-1].evidence)
    ):
        raise IntegrityError(f"{name}:{channel} was moved without an event in the log", VERIFY_ADVICE)
    _check_moves(ledger, log, rules, history)
    move = history[-1]
    before = compared_with(history[:-1], move.manifest)
    hours = None
    if any(rule.min_hours for rule in rules):
        hours = rollout_hours(ledger, channel, move.manifest, datetime.fromisoformat(move.time))
    judged = judge_version(ledger, rules, move.version, before, trust, hours)
    if judged.failed:
        raise GateError(
            f"{name}:{channel} is {move.version}, which does not meet the policy: {judged.faults}",
            PROMOTE_ADVICE,
        )


def _check_moves(ledger: Ledger, log: PolicyLog, rules: Sequence[Rule], history: Sequence[Tag]) -> None:
    """Check that the last move is a promotion. If changes are limited, check each move before it too.

    Else an attacker could make a forbidden change in two steps, by way of a third version.
    """
    channel = f"{ledger.name}:{history[-1].tag}"
    if history[-1].evidence is None:
        moved = f"{channel} was moved to {history[-1].version} without a promotion"
        raise UnpromotedError(moved, PROMOTE_ADVICE)
    newest = 0
    for position, move in enumerate(history):
        if move.evidence is None:
            continue
        seq = check_evidence(ledger, log, move)
        if seq < newest:
            raise GateError(
                f"{channel} was moved to {move.version} under a policy that was replaced before",
                PROMOTE_ADVICE,
            )
        newest = seq
        policy = log.at(move.policy) if move.policy else None
        rules_then = policy[1].covering(ledger.name, move.tag) if policy else ()
        limiting = [rule for rule in rules_then if rule.breaking is False or rule.planned]
        if move is not history[-1] and limiting and move.version in ledger.entries:
            _check_changes(ledger, limiting, history[:position], move)


def check_evidence(ledger: Ledger, log: PolicyLog, move: Tag | RolloutStep) -> int:
    """The number of the policy that a promotion names.

    Raise GateError if its evidence is not about this very move.
    """
    channel = f"{ledger.name}:{move.tag}"
    policy = log.at(move.policy) if move.policy else None
    if policy is None or move.evidence is None or move.policy is None:
        raise GateError(
            f"{channel} was moved to {move.version} under a policy that the registry never had",
            PROMOTE_ADVICE,
        )
    try:
        evidence = PromotionEvidence.decode(ledger.fetch(move.evidence))
    except InputError as error:
        raise GateError(f"{channel}: {error.message}", PROMOTE_ADVICE) from error
    stated = (evidence.name, evidence.channel, evidence.version, evidence.manifest, evidence.policy)
    if stated != (ledger.name, move.tag, move.version, move.manifest, move.policy):
        raise GateError(f"the evidence of {channel} is that of another move", PROMOTE_ADVICE)
    return policy[0]


def _check_changes(ledger: Ledger, rules: Sequence[Rule], past: Sequence[Tag], move: Tag) -> None:
    """Check a former promotion against what its rules say of changes."""
    only = [rule.only("breaking", "planned") for rule in rules]
    judged = judge_version(ledger, only, move.version, compared_with(past, move.manifest))
    if judged.failed:
        raise GateError(
            f"{ledger.name}:{move.tag} was moved to {move.version} on the way: {judged.failed[0].detail}",
            PROMOTE_ADVICE,
        )


def audit_gates(
    reader: RegistryReader, ledger: Ledger, trust: Trust | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the governed channels and rollouts of a model that fail their policy; see `verify.Audit`.

    Those without a promotion are `unpromoted`.
    """
    log = None
    for channel in sorted(ledger.channels):
        try:
            log = log or read_policies(reader)
            check_held(ledger, log, channel, trust)
            if channel in ledger.rollouts:
                check_rollout(ledger, log, channel, ledger.rollouts[channel], trust)
        except UnpromotedError as error:
            yield "unpromoted", error.message
        except RegError as error:
            yield fault("gate", error)


@dataclass(frozen=True)
class BlockedChannel:
    """A channel that will not resolve any more, and why.

    Where a model cannot be read, channel and version are None.
    """

    name: str
    channel: str | None
    version: Version | None
    why: str

    def to_json(self) -> dict[str, str | None]:
        version = None if self.version is None else str(self.version)
        return {"name": self.name, "channel": self.channel, "version": version, "why": self.why}


def blocked_channels(reader: RegistryReader, policy: Policy) -> list[BlockedChannel]:
    """List the channels whose version a policy refuses, or whose version was not promoted.

    Signatures are judged by the user's trust file. Raise UnlistedError if the place cannot list its models.
    """
    log = with_policy(read_policies(reader), policy)
    return [blocked for name in reader.names() for blocked in _stopped(reader, name, log)]


def _stopped(reader: RegistryReader, name: str, log: PolicyLog) -> Iterator[BlockedChannel]:
    try:
        index = reader.read_index(name)
        channels = lookup.state_of(reader, name, index).channels
        governed = [channel for channel in sorted(channels) if log.policy.covering(name, channel)]
        if not governed:
            return
        ledger = read_ledger(reader, name, index)
    except RegError as error:
        yield BlockedChannel(name, None, None, error.message)
        return
    for channel in governed:
        try:
            check_held(ledger, log, channel)
        except RegError as error:
            yield BlockedChannel(name, channel, channels[channel].version, error.message)
