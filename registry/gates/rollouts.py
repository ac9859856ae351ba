"""Staged rollouts of a channel: start, advance, halt and finish.

A start is a promotion: on a governed channel the version must meet the policy, with evidence that readers check
again, and so must each `advance`. `finish` moves the channel. Until then nothing else moves it.
"""

import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Any

from onnxreg.registry.gates.enforce import judge_rollout
from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.gates.promotion import READ_FINDINGS, rollout_hours
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import Log
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


@dataclass(frozen=True)
class RolloutStatus:
    """The rollout of a channel; `version` is what devices outside of it get. None: nothing is rolled out."""

    name: str
    channel: str
    version: Version
    rollout: Rollout | None

    def to_json(self) -> dict[str, Any]:
        """The documented shape of `reg rollout status --json`."""
        rollout = None if self.rollout is None else self.rollout.to_json()
        about = {"name": self.name, "channel": self.channel, "version": str(self.version)}
        return {**about, "rollout": rollout}


@dataclass(frozen=True)
class Rollouts:
    """The rollouts in one registry, which may be a remote; `known_heads` are those of the user."""

    store: RegistryStore
    known_heads: KnownHeads
    actor: str | None = None
    is_remote: bool = False

    def start(
        self, ref: Ref, channel: str, share: float, where: str | None = None, reason: str | None = None
    ) -> RolloutStatus:
        """Give a version to a share of a channel's devices, in percent.

        Raise ConflictError if a rollout of the channel is under way, or it holds the version; GateError if a policy
        governs the channel and does not hold; InputError for a malformed share or expression.
        """
        check_percent(share)
        cohort = None if where is None else str(parse_cohort(where))
        located = lookup.find(CheckedReader(self.store, self.known_heads), ref)

        def step(log: Log, current: Channel) -> Rollout:
            if channel in log.rollouts:
                raise ConflictError(
                    f"{log.name}:{channel} is being rolled out to {log.rollouts[channel].to}",
                    f"`reg rollout finish {log.name} --channel {channel}` moves the channel, `halt` stops the rollout",
                )
            if current.manifest == located.entry.manifest:
                raise ConflictError(
                    f"{log.name}:{channel} is {located.version} already", "there is nothing to do"
                )
            return Rollout(located.version, located.entry.manifest, share, secrets.token_hex(16), 0, cohort)

        return self._step(located.name, channel, step, reason)

    def advance(self, name: str, channel: str, share: float, reason: str | None = None) -> RolloutStatus:
        """Give the version to more devices; those that have it keep it.

        Raise NotFoundError without a rollout; InputError if it is not more; GateError as `start`.
        """
        check_percent(share)

        def step(log: Log, _: Channel) -> Rollout:
            rollout = _current(log, channel)
            if share <= rollout.percent:
                raise InputError(
                    f"{rollout.to} goes to {rollout.percent:g} % of the devices, which is not less than {share:g} %",
                    f"`reg rollout finish {name} --channel {channel}` moves the channel, `halt` stops the rollout",
                )
            return rollout.replace(percent=share)

        return self._step(name, channel, step, reason)

    def halt(self, name: str, channel: str, reason: str | None = None) -> RolloutStatus:
        """Stop: every device gets what the channel holds. Raise NotFoundError without a rollout."""

        def change(log: Log) -> None:
            _current(log, channel)
            expects = log.channel(channel).manifest
            log.append(RolloutStep(**stamp(name, self.actor, reason), tag=channel, expects=expects))

        return self._commit(name, channel, change)

    def finish(self, name: str, channel: str, reason: str | None = None) -> RolloutStatus:
        """Move the channel to the version. Raise NotFoundError without a rollout; GateError as `start`."""
        policies = read_policies(CheckedReader(self.store, self.known_heads))

        def change(log: Log) -> None:
            rollout, current = _current(log, channel), log.channel(channel)
            about = stamp(name, self.actor, reason)
            hours = rollout_hours(log, channel, rollout.manifest, datetime.fromisoformat(about["time"]))
            evidence = _evidence(policies, log, channel, rollout, hours)
            log.finish(
                Tag(
                    **about,
                    tag=channel,
                    version=rollout.to,
                    manifest=rollout.manifest,
                    expects=current.manifest,
                    policy=policies.head if evidence else None,
                    evidence=log.attach(evidence) if evidence else None,
                )
            )

        return self._commit(name, channel, change)

    def _step(
        self, name: str, channel: str, step: Callable[[Log, Channel], Rollout], reason: str | None
    ) -> RolloutStatus:
        policies = read_policies(CheckedReader(self.store, self.known_heads))

        def change(log: Log) -> None:
            if check_channel(channel) not in log.channels:
                remote = f" --remote {quote(self.store.url)}" if self.is_remote else ""
                first = f"; reg tag {name}:VERSION {channel}{remote} makes it"
                raise no_channel(name, channel, log.channels, first)
            current = log.channels[channel]
            rollout = step(log, current)
            evidence = _evidence(policies, log, channel, rollout, None)
            digest = log.attach(evidence) if evidence else None
            log.append(
                RolloutStep(
                    **stamp(name, self.actor, reason),
                    tag=channel,
                    expects=current.manifest,
                    version=rollout.to,
                    manifest=rollout.manifest,
                    percent=rollout.percent,
                    salt=rollout.salt,
                    where=rollout.where,
                    policy=policies.head if evidence else None,
                    evidence=digest,
                    blobs=(Descriptor(digest, len(evidence)),) if digest and evidence else (),
                )
            )

        return self._commit(name, channel, change)

    def _commit(self, name: str, channel: str, change: Callable[[Log], None]) -> RolloutStatus:
        def changed(log: Log) -> Collection[Digest]:
            change(log)
            return []

        CheckedReader(self.store, self.known_heads).read_index(name)
        with self.store.push() as push:
            log = commit(self.store, push, name, changed)
        version = log.channel(channel).version
        return RolloutStatus(log.name, channel, version, log.rollouts.get(channel))


def _evidence(
    policies: PolicyLog, log: Log, channel: str, rollout: Rollout, hours: float | None
) -> bytes | None:
    """Judge the version by the policy, and return the evidence; None if the channel is free.

    `hours`: the time that the rollout took; None if it is not at its end. Raise GateError if the policy does not hold.
    """
    judged = judge_rollout(log, policies, channel, rollout, hours)
    if judged is None:
        return None
    if judged.failed:
        raise GateError(f"{log.name}:{rollout.to} may not become {channel}: {judged.faults}", READ_FINDINGS)
    return judged.evidence(policies, channel)


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
