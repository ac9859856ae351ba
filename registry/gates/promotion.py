"""Promotion: a channel moves to a version that meets the policy, at once or by a staged rollout.

The event records the findings as evidence. The start of a rollout is a promotion, and so is each `advance`; `finish`
moves the channel. Until then nothing else moves it.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from shlex import quote
from typing import Any, NamedTuple

from onnxreg.registry.gates.enforce import STEP_DEMANDS, ChannelGate, JudgedVersion
from onnxreg.registry.gates.policy_log import read_policies
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import consult, find
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.registry.trust.checked_reader import CheckedReader
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import ConflictError, GateError, InputError, NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.events import RolloutStep, Tag, check_channel
from onnxreg.schema.log.state import Channel, Rollout, check_percent, no_channel
from onnxreg.schema.query.cohort import parse_cohort


class Promotion(NamedTuple):
    """The judged version, and whether the channel moved. `before` is the version that it held, if any."""

    judged: JudgedVersion
    moved: bool
    before: Version | None


def promote(
    store: RegistryStore,
    known_heads: KnownHeads,
    ref: Ref,
    channel: str,
    dry_run: bool = False,
    reason: str | None = None,
    actor: str | None = None,
    is_remote: bool = False,
) -> Promotion:
    """Judge a version by the policy. If it passes, move the channel.

    Do nothing if it was promoted already under this policy. Raise InputError if no policy governs the channel;
    NotFoundError if the version does not exist; ConflictError if another user moves the channel meanwhile.

    Args:
        known_heads: those of the user.
        is_remote: True if the registry is not on this machine.
    """
    check_channel(channel)
    source = CheckedReader(store, known_heads)
    policies = read_policies(source)
    if not policies.policy.covering(ref.name, channel):
        if not is_remote:
            find(source, ref)  # the hint moves the channel to it
        url = quote(store.url)
        moves_it = f"reg push {ref} {url} --tag {channel}" if is_remote else f"reg tag {ref} {channel}"
        raise InputError(
            f"no policy governs {ref.name}:{channel} in {store.url}",
            f"`{moves_it}` moves it; `reg policy set FILE{f' --remote {url}' if is_remote else ''}` governs it",
        )

    def judge(log: Log) -> tuple[JudgedVersion, Channel | None]:
        version = log.find(ref).version
        return ChannelGate(log, policies, channel).judge(version), log.channels.get(channel)

    judged, current = consult(source, ref.name, judge)
    version, manifest = judged.located.version, judged.located.entry.manifest

    def change(log: Log) -> Collection[Digest]:
        """Judge again on the log to be swapped, which may have grown, and append the event with its evidence."""
        gate = ChannelGate(log, policies, channel)
        latest = gate.judge(version)
        if latest.failed:
            raise GateError(f"{judged.located.ref} no longer meets the policy", "run it again to see why")
        log.append(
            Tag(
                **stamp(ref.name, actor, reason),
                tag=channel,
                version=version,
                manifest=manifest,
                expects=current.manifest if current else None,
                **gate.record(latest),
            )
        )
        return []

    is_repeated = current is not None and (current.manifest, current.policy) == (manifest, policies.head)
    is_moved = not judged.failed and not is_repeated and not dry_run
    if is_moved:
        with store.push() as push:
            commit(store, push, ref.name, change)
    return Promotion(judged, is_moved, current.version if current else None)


@dataclass(frozen=True)
class Rollouts:
    """The rollouts in one registry, which may be a remote; `known_heads` are those of the user.

    Each method returns the log as it is then.
    """

    store: RegistryStore
    known_heads: KnownHeads
    actor: str | None = None
    is_remote: bool = False

    def start(
        self, ref: Ref, channel: str, share: float, where: str | None = None, reason: str | None = None
    ) -> Log:
        """Give a version to a share of a channel's devices, in percent.

        Raise ConflictError if a rollout of the channel is under way, or it holds the version; GateError if a policy
        governs the channel and does not hold; InputError for a malformed share or expression.
        """
        check_percent(share)
        cohort = None if where is None else str(parse_cohort(where))
        located = find(CheckedReader(self.store, self.known_heads), ref)

        def begin(log: Log) -> Rollout:
            if channel in log.rollouts:
                raise ConflictError(
                    f"{log.name}:{channel} is being rolled out to {log.rollouts[channel].to}",
                    f"`reg rollout finish {log.name} --channel {channel}` moves the channel, `halt` stops the rollout",
                )
            if log.channels[channel].manifest == located.entry.manifest:
                raise ConflictError(
                    f"{log.name}:{channel} is {located.version} already", "there is nothing to do"
                )
            return Rollout(located.version, located.entry.manifest, share, secrets.token_hex(16), 0, cohort)

        return self._change(ref.name, channel, lambda log: self._step(log, channel, begin(log), reason))

    def advance(self, name: str, channel: str, share: float, reason: str | None = None) -> Log:
        """Give the version to more devices; those that have it keep it.

        Raise NotFoundError without a rollout; InputError if it is not more; GateError as `start`.
        """
        check_percent(share)

        def widen(log: Log) -> Rollout:
            rollout = _current(log, channel)
            if share <= rollout.percent:
                raise InputError(
                    f"{rollout.to} goes to {rollout.percent:g} % of the devices, which is not less than {share:g} %",
                    f"`reg rollout finish {name} --channel {channel}` moves the channel, `halt` stops the rollout",
                )
            return rollout.replace(percent=share)

        return self._change(name, channel, lambda log: self._step(log, channel, widen(log), reason))

    def halt(self, name: str, channel: str, reason: str | None = None) -> Log:
        """Stop: every device gets what the channel holds. Raise NotFoundError without a rollout."""

        def halt(log: Log) -> None:
            _current(log, channel)
            expects = log.channels[channel].manifest
            log.append(RolloutStep(**stamp(name, self.actor, reason), tag=channel, expects=expects))

        return self._change(name, channel, halt)

    def finish(self, name: str, channel: str, reason: str | None = None) -> Log:
        """Move the channel to the version. Raise NotFoundError without a rollout; GateError as `start`."""

        def finish(log: Log) -> None:
            rollout, about = _current(log, channel), stamp(name, self.actor, reason)
            about |= self._promotion(log, channel, rollout, about["time"])
            about |= {"tag": channel, "version": rollout.to, "manifest": rollout.manifest}
            log.finish(Tag(**about, expects=log.channels[channel].manifest))

        return self._change(name, channel, finish)

    def _step(self, log: Log, channel: str, rollout: Rollout, reason: str | None) -> None:
        """Append the event by which a rollout begins or widens."""
        promotion = self._promotion(log, channel, rollout)
        evidence = promotion.get("evidence")
        log.append(
            RolloutStep(
                **stamp(log.name, self.actor, reason),
                **promotion,
                tag=channel,
                expects=log.channels[channel].manifest,
                version=rollout.to,
                manifest=rollout.manifest,
                percent=rollout.percent,
                salt=rollout.salt,
                where=rollout.where,
                blobs=(Descriptor(evidence, len(log.fetch(evidence))),) if evidence else (),
            )
        )

    def _promotion(self, log: Log, channel: str, rollout: Rollout, end: str | None = None) -> dict[str, Any]:
        """The policy and the evidence of a rollout's version. Empty if the channel is free; GateError if the policy does not hold.

        `end`: the time at which the rollout ends; None while it lasts, when `min_hours` demands nothing.
        """
        gate = ChannelGate(log, read_policies(CheckedReader(self.store, self.known_heads)), channel)
        if not gate.rules:
            return {}
        if end is None:
            judged = gate.judge(rollout.to, STEP_DEMANDS)
        else:
            judged = gate.judge(rollout.to, hours=gate.hours(rollout.manifest, end))
        if judged.failed:
            raise judged.refusal(judged.faults)
        return gate.record(judged)

    def _change(self, name: str, channel: str, change: Callable[[Log], None]) -> Log:
        def changed(log: Log) -> Collection[Digest]:
            if check_channel(channel) not in log.channels:
                remote = f" --remote {quote(self.store.url)}" if self.is_remote else ""
                first = f"; reg tag {name}:VERSION {channel}{remote} makes it"
                raise no_channel(name, channel, log.channels, first)
            change(log)
            return []

        CheckedReader(self.store, self.known_heads).read_index(name)
        with self.store.push() as push:
            return commit(self.store, push, name, changed)


def _current(log: Log, channel: str) -> Rollout:
    if channel not in log.rollouts:
        others = ", ".join(log.rollouts)
        raise NotFoundError(
            f"nothing is rolled out to {log.name}:{channel}",
            f"rollouts are under way on {others}"
            if others
            else f"`reg rollout start {log.name}:VERSION --channel CHANNEL --percent 5` begins one",
        )
    return log.rollouts[channel]
