"""Check a governed channel: its version was promoted, and still meets the policy in force. No cache is trusted."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.gates.promotion import (
    JudgedVersion,
    compared_with,
    judge_version,
    moves,
    rollout_hours,
)
from onnxreg.registry.log import lookup
from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.log.lookup import consult, load, log_of
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.errors import VERIFY_ADVICE, GateError, InputError, IntegrityError, RegError, fault
from onnxreg.schema.gates.policy import Policy
from onnxreg.schema.gates.rule import PromotionEvidence, Rule
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import RolloutStep, Tag
from onnxreg.schema.log.state import Rollout

PROMOTE_ADVICE = "do not use it until you know why; `reg promote` by somebody who may puts it right"


class UnpromotedError(GateError):
    """A governed channel or rollout that no promotion set. It does not resolve, and nothing is damaged."""


def check_holder(
    reader: RegistryReader,
    channel: str,
    located: LocatedVersion,
    index: IndexFile | None,
    policy_file: IndexFile,
) -> None:
    """Judge a governed channel, which must still hold the version `located`. See `check_held`.

    Raise IntegrityError if the state line that the answer came from contradicts its manifest.
    """
    policies = PolicyLog.decode(policy_file, reader.registry_id)
    if not policies.policy.covering(located.name, channel):
        return

    def judge(log: Log) -> None:
        """The judged log may be newer than the state line, since a collector may have freed older documents."""
        manifest, current, rollout = (
            located.entry.manifest,
            log.channels.get(channel),
            log.rollouts.get(channel),
        )
        if rollout is not None and rollout.manifest == manifest:
            check_rollout(log, policies, channel, rollout)
        else:
            check_held(log, policies, channel)
            if current is None or current.manifest != manifest:
                raise GateError(
                    f"{located.name}:{channel} holds {current.version if current else 'nothing'} by now, and {located.version} was found",
                    "it was moved while it was read: ask again",
                )
        answered = log if index in (None, log.index) else log_of(reader, located.name, index)
        answered.check_summary(located)

    consult(reader, located.name, judge, index=index)


def check_held(log: Log, policies: PolicyLog, channel: str, trust: Trust | None = None) -> None:
    """Raise GateError if a governed channel holds a version that was not promoted or fails the policy.

    `trust` is by default what the user's trust file says.
    """
    rules = policies.policy.covering(log.name, channel)
    if not rules:
        return
    where, current, history = f"{log.name}:{channel}", log.channels.get(channel), moves(log, channel)
    move = history[-1] if history else None
    if (
        current is None
        or move is None
        or (current.version, current.evidence) != (move.version, move.evidence)
    ):
        raise IntegrityError(f"{where} was moved without an event in the log", VERIFY_ADVICE)
    hours = None
    if any(rule.min_hours for rule in rules):
        hours = rollout_hours(log, channel, move.manifest, datetime.fromisoformat(move.time))
    _check_promoted(log, policies, move, f"{where} was moved to {move.version}")
    _check_past(log, policies, history)
    before = compared_with(history[:-1], move.manifest)
    judged = judge_version(log, rules, move.version, before, trust, hours)
    _check_met(judged, f"{where} is {move.version}, which")


def check_rollout(
    log: Log, policies: PolicyLog, channel: str, rollout: Rollout, trust: Trust | None = None
) -> None:
    """Raise GateError if the version of a rollout on a governed channel was not promoted or fails the policy."""
    where = f"{log.name}:{channel}"
    steps = [event for _, event in log.events(RolloutStep) if event.tag == channel]
    step = next((step for step in reversed(steps) if step.manifest == rollout.manifest), None)
    if step is None or (step.percent, step.salt) != (rollout.percent, rollout.salt):
        raise IntegrityError(f"the rollout of {where} is not what its log says", VERIFY_ADVICE)
    judged = judge_rollout(log, policies, channel, rollout, trust=trust)
    if judged is not None:
        _check_promoted(log, policies, step, f"{rollout.to} is rolled out to {where}")
        _check_met(judged, f"{rollout.to}, which is rolled out to {where},")


def _check_promoted(log: Log, policies: PolicyLog, move: Tag | RolloutStep, moved: str) -> None:
    if move.evidence is None:
        raise UnpromotedError(f"{moved} without a promotion", PROMOTE_ADVICE)
    check_evidence(log, policies, move)


def _check_met(judged: JudgedVersion, subject: str) -> None:
    if judged.failed:
        raise GateError(f"{subject} does not meet the policy: {judged.faults}", PROMOTE_ADVICE)


def _check_past(log: Log, policies: PolicyLog, history: Sequence[Tag]) -> None:
    """Check the evidence of each promotion, that no policy was older than the one before it, and the limits of changes.

    Else an attacker could make a forbidden change in two steps, by way of a third version.
    """
    newest = 0
    for position, move in enumerate(history):
        if move.evidence is None:
            continue
        where, (seq, policy) = f"{log.name}:{move.tag}", check_evidence(log, policies, move)
        if seq < newest:
            raise GateError(
                f"{where} was moved to {move.version} under a policy that was replaced before", PROMOTE_ADVICE
            )
        newest = seq
        covering = policy.covering(log.name, move.tag)
        limits = [
            rule.only("breaking", "planned") for rule in covering if rule.breaking is False or rule.planned
        ]
        if move is not history[-1] and limits and move.version in log.versions:
            before = compared_with(history[:position], move.manifest)
            failed = judge_version(log, limits, move.version, before).failed
            if failed:
                raise GateError(
                    f"{where} was moved to {move.version} on the way: {failed[0].detail}", PROMOTE_ADVICE
                )


def check_evidence(log: Log, policies: PolicyLog, move: Tag | RolloutStep) -> tuple[int, Policy]:
    """The policy that a promotion names, and its number.

    Raise GateError if the registry never had it, or the evidence is not about this very move.
    """
    where = f"{log.name}:{move.tag}"
    policy = policies.at(move.policy) if move.policy else None
    if policy is None or move.evidence is None:
        raise GateError(
            f"{where} was moved to {move.version} under a policy that the registry never had", PROMOTE_ADVICE
        )
    data = log.fetch(move.evidence)
    try:
        evidence = PromotionEvidence.decode(data, "the evidence")
    except InputError as error:
        raise GateError(
            f"{where}: it is not evidence of a promotion: {error.message}", PROMOTE_ADVICE
        ) from error
    stated = (evidence.name, evidence.channel, evidence.version, evidence.manifest, evidence.policy)
    if stated != (log.name, move.tag, str(move.version), move.manifest, move.policy):
        raise GateError(f"the evidence of {where} is that of another move", PROMOTE_ADVICE)
    return policy


def judge_rollout(
    log: Log,
    policies: PolicyLog,
    channel: str,
    rollout: Rollout,
    hours: float | None = None,
    trust: Trust | None = None,
) -> JudgedVersion | None:
    """Judge the version of a rollout by the policy. Return None if the channel is free.

    `hours`: the time that the rollout took; None if it is not at its end, when `min_hours` demands nothing.
    """
    rules: Sequence[Rule] = policies.policy.covering(log.name, channel)
    if not rules:
        return None
    if hours is None:
        rules = [rule.only(*rule.checks.keys() - {"min_hours"}) for rule in rules]
    before = compared_with(moves(log, channel), rollout.manifest)
    return judge_version(log, rules, rollout.to, before, trust, hours)


def audit_gates(reader: RegistryReader, log: Log, trust: Trust | None = None) -> Iterator[tuple[str, str]]:
    """Yield the governed channels and rollouts of a model that fail their policy; see `verify.Audit`.

    Those without a promotion are `unpromoted`.
    """
    policies = None
    for channel in sorted(log.channels):
        try:
            policies = policies or read_policies(reader)
            check_held(log, policies, channel, trust)
            if channel in log.rollouts:
                check_rollout(log, policies, channel, log.rollouts[channel], trust)
        except UnpromotedError as error:
            yield "unpromoted", error.message
        except RegError as error:
            yield fault("gate", error)


class BlockedChannel(NamedTuple):
    """A channel that will not resolve any more, and why. Of a model that cannot be read, channel and version are None."""

    name: str
    channel: str | None
    version: str | None
    why: str


def blocked_channels(reader: RegistryReader, policy: Policy) -> Iterator[BlockedChannel]:
    """Yield the channels whose version a policy refuses, or whose version was not promoted.

    Signatures are judged by the user's trust file. Raise UnlistedError if the place cannot list its models.
    """
    policies = read_policies(reader).append(policy)
    for name in reader.names():
        try:
            index = reader.read_index(name)
            channels = lookup.log_of(reader, name, index).state.channels
            governed = [channel for channel in sorted(channels) if policies.policy.covering(name, channel)]
            if not governed:
                continue
            log = load(reader, name, index=index)
        except RegError as error:
            yield BlockedChannel(name, None, None, error.message)
            continue
        for channel in governed:
            try:
                check_held(log, policies, channel)
            except RegError as error:
                yield BlockedChannel(name, channel, str(channels[channel].version), error.message)
