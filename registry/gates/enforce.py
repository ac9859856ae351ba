"""Check a governed channel: its version was promoted, and still meets the policy in force. No cache is trusted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.gates.promotion import (
    JudgedVersion,
    compared_with,
    judge_version,
    moves,
    rollout_hours,
)
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import read_ledger
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import LocatedVersion, check_summary, read_consistently, state_of
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.errors import VERIFY_ADVICE, GateError, InputError, IntegrityError, RegError, fault
from onnxreg.schema.core.ref import Version
from onnxreg.schema.gates.policy import Policy
from onnxreg.schema.gates.rule import PromotionEvidence, Rule
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import RolloutStep, Tag
from onnxreg.schema.log.state import Rollout, State

PROMOTE_ADVICE = "do not use it until you know why; `reg promote` by somebody who may puts it right"


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
    log = PolicyLog.decode(policies, reader.registry_id)
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
    summary = state.summaries.get(located.version)
    if summary is not None:
        manifest = located.entry.manifest
        check_summary(summary, ledger.fetch(manifest), manifest, located.name)


def check_held(ledger: Ledger, log: PolicyLog, channel: str, trust: Trust | None = None) -> None:
    """Raise GateError if a governed channel holds a version that was not promoted or fails the policy.

    `trust` is by default what the user's trust file says.
    """
    rules = log.policy.covering(ledger.name, channel)
    if not rules:
        return
    where = f"{ledger.name}:{channel}"
    history, current = moves(ledger, channel), ledger.channels.get(channel)
    move = history[-1] if history else None
    if (
        current is None
        or move is None
        or (current.version, current.evidence) != (move.version, move.evidence)
    ):
        raise IntegrityError(f"{where} was moved without an event in the log", VERIFY_ADVICE)
    if move.evidence is None:
        raise UnpromotedError(f"{where} was moved to {move.version} without a promotion", PROMOTE_ADVICE)
    _check_past(ledger, log, history)
    hours = None
    if any(rule.min_hours for rule in rules):
        hours = rollout_hours(ledger, channel, move.manifest, datetime.fromisoformat(move.time))
    judged = judge_version(
        ledger, rules, move.version, compared_with(history[:-1], move.manifest), trust, hours
    )
    if judged.failed:
        raise GateError(
            f"{where} is {move.version}, which does not meet the policy: {judged.faults}", PROMOTE_ADVICE
        )


def _check_past(ledger: Ledger, log: PolicyLog, history: Sequence[Tag]) -> None:
    """Check the evidence of each promotion, that no policy was older than the one before it, and the limits of changes.

    Else an attacker could make a forbidden change in two steps, by way of a third version.
    """
    newest = 0
    for position, move in enumerate(history):
        if move.evidence is None:
            continue
        where, (seq, policy) = f"{ledger.name}:{move.tag}", check_evidence(ledger, log, move)
        if seq < newest:
            raise GateError(
                f"{where} was moved to {move.version} under a policy that was replaced before", PROMOTE_ADVICE
            )
        newest = seq
        covering = policy.covering(ledger.name, move.tag)
        limits = [
            rule.only("breaking", "planned") for rule in covering if rule.breaking is False or rule.planned
        ]
        if move is not history[-1] and limits and move.version in ledger.entries:
            before = compared_with(history[:position], move.manifest)
            failed = judge_version(ledger, limits, move.version, before).failed
            if failed:
                raise GateError(
                    f"{where} was moved to {move.version} on the way: {failed[0].detail}", PROMOTE_ADVICE
                )


def check_evidence(ledger: Ledger, log: PolicyLog, move: Tag | RolloutStep) -> tuple[int, Policy]:
    """The policy that a promotion names, and its number.

    Raise GateError if the registry never had it, or the evidence is not about this very move.
    """
    where = f"{ledger.name}:{move.tag}"
    policy = log.at(move.policy) if move.policy else None
    if policy is None or move.evidence is None:
        raise GateError(
            f"{where} was moved to {move.version} under a policy that the registry never had", PROMOTE_ADVICE
        )
    data = ledger.fetch(move.evidence)
    try:
        evidence = PromotionEvidence.decode(data, "the evidence")
    except InputError as error:
        raise GateError(
            f"{where}: it is not evidence of a promotion: {error.message}", PROMOTE_ADVICE
        ) from error
    stated = (evidence.name, evidence.channel, evidence.version, evidence.manifest, evidence.policy)
    if stated != (ledger.name, move.tag, str(move.version), move.manifest, move.policy):
        raise GateError(f"the evidence of {where} is that of another move", PROMOTE_ADVICE)
    return policy


def check_rollout(
    ledger: Ledger, log: PolicyLog, channel: str, rollout: Rollout, trust: Trust | None = None
) -> None:
    """Raise GateError if the version of a rollout on a governed channel was not promoted or fails the policy."""
    steps = [event for _, event in ledger.events(RolloutStep) if event.tag == channel]
    step = next((step for step in reversed(steps) if step.manifest == rollout.manifest), None)
    if step is None or (step.percent, step.salt) != (rollout.percent, rollout.salt):
        raise IntegrityError(
            f"the rollout of {ledger.name}:{channel} is not what its log says", VERIFY_ADVICE
        )
    judged = judge_rollout(ledger, log, channel, rollout, trust=trust)
    if judged is None:
        return
    if step.evidence is None:
        raise UnpromotedError(
            f"{rollout.to} is rolled out to {ledger.name}:{channel} without a promotion", PROMOTE_ADVICE
        )
    check_evidence(ledger, log, step)
    if judged.failed:
        raise GateError(
            f"{rollout.to}, which is rolled out to {ledger.name}:{channel}, does not meet the policy: {judged.faults}",
            PROMOTE_ADVICE,
        )


def judge_rollout(
    ledger: Ledger,
    log: PolicyLog,
    channel: str,
    rollout: Rollout,
    hours: float | None = None,
    trust: Trust | None = None,
) -> JudgedVersion | None:
    """Judge the version of a rollout by the policy. Return None if the channel is free.

    `hours`: the time that the rollout took; None if it is not at its end, when `min_hours` demands nothing.
    """
    rules: Sequence[Rule] = log.policy.covering(ledger.name, channel)
    if not rules:
        return None
    if hours is None:
        rules = [rule.only(*rule.checks.keys() - {"min_hours"}) for rule in rules]
    before = compared_with(moves(ledger, channel), rollout.manifest)
    return judge_version(ledger, rules, rollout.to, before, trust, hours)


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


def blocked_channels(reader: RegistryReader, policy: Policy) -> Iterator[BlockedChannel]:
    """Yield the channels whose version a policy refuses, or whose version was not promoted.

    Signatures are judged by the user's trust file. Raise UnlistedError if the place cannot list its models.
    """
    log = read_policies(reader).append(policy)
    for name in reader.names():
        try:
            index = reader.read_index(name)
            channels = lookup.state_of(reader, name, index).channels
            governed = [channel for channel in sorted(channels) if log.policy.covering(name, channel)]
            if not governed:
                continue
            ledger = read_ledger(reader, name, index)
        except RegError as error:
            yield BlockedChannel(name, None, None, error.message)
            continue
        for channel in governed:
            try:
                check_held(ledger, log, channel)
            except RegError as error:
                yield BlockedChannel(name, channel, channels[channel].version, error.message)
