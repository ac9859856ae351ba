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
from onnxreg.registry.log.ledger import Ledger, channel_of
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.registry.trust.checked_reader import CheckedReader
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, ConflictError, GateError, InputError, NotFoundError
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

        def step(ledger: Ledger, current: Channel) -> Rollout:
            if channel in ledger.rollouts:
                raise ConflictError(
                    f"{ledger.name}:{channel} is being rolled out to {ledger.rollouts[channel].to}",
                    Advice("end-rollout", name=ledger.name, channel=channel),
                )
            if current.manifest == located.entry.manifest:
                raise ConflictError(
                    f"{ledger.name}:{channel} is {located.version} already", "there is nothing to do"
                )
            return Rollout(located.version, located.entry.manifest, share, secrets.token_hex(16), 0, cohort)

        return self._step(located.name, channel, step, reason)

    def advance(self, name: str, channel: str, share: float, reason: str | None = None) -> RolloutStatus:
        """Give the version to more devices; those that have it keep it.

        Raise NotFoundError without a rollout; InputError if it is not more; GateError as `start`.
        """
        check_percent(share)

        def step(ledger: Ledger, _: Channel) -> Rollout:
            rollout = _current(ledger, channel)
            if share <= rollout.percent:
                raise InputError(
                    f"{rollout.to} goes to {rollout.percent:g} % of the devices, which is not less than {share:g} %",
                    Advice("end-rollout", name=name, channel=channel),
                )
            return rollout.replace(percent=share)

        return self._step(name, channel, step, reason)

    def halt(self, name: str, channel: str, reason: str | None = None) -> RolloutStatus:
        """Stop: every device gets what the channel holds. Raise NotFoundError without a rollout."""

        def change(ledger: Ledger) -> None:
            _current(ledger, channel)
            expects = channel_of(ledger, channel).manifest
            ledger.append(RolloutStep(**stamp(name, self.actor, reason), tag=channel, expects=expects))

        return self._commit(name, channel, change)

    def finish(self, name: str, channel: str, reason: str | None = None) -> RolloutStatus:
        """Move the channel to the version. Raise NotFoundError without a rollout; GateError as `start`."""
        log = read_policies(CheckedReader(self.store, self.known_heads))

        def change(ledger: Ledger) -> None:
            rollout, current = _current(ledger, channel), channel_of(ledger, channel)
            about = stamp(name, self.actor, reason)
            hours = rollout_hours(ledger, channel, rollout.manifest, datetime.fromisoformat(about["time"]))
            evidence = _evidence(log, ledger, channel, rollout, hours)
            ledger.finish(
                Tag(
                    **about,
                    tag=channel,
                    version=rollout.to,
                    manifest=rollout.manifest,
                    expects=current.manifest,
                    policy=log.head if evidence else None,
                    evidence=ledger.attach(evidence) if evidence else None,
                )
            )

        return self._commit(name, channel, change)

    def _step(
        self, name: str, channel: str, step: Callable[[Ledger, Channel], Rollout], reason: str | None
    ) -> RolloutStatus:
        log = read_policies(CheckedReader(self.store, self.known_heads))

        def change(ledger: Ledger) -> None:
            if check_channel(channel) not in ledger.channels:
                remote = f" --remote {quote(self.store.url)}" if self.is_remote else ""
                first = f"; reg tag {name}:VERSION {channel}{remote} makes it"
                raise no_channel(name, channel, ledger.channels, first)
            current = ledger.channels[channel]
            rollout = step(ledger, current)
            evidence = _evidence(log, ledger, channel, rollout, None)
            digest = ledger.attach(evidence) if evidence else None
            ledger.append(
                RolloutStep(
                    **stamp(name, self.actor, reason),
                    tag=channel,
                    expects=current.manifest,
                    version=rollout.to,
                    manifest=rollout.manifest,
                    percent=rollout.percent,
                    salt=rollout.salt,
                    where=rollout.where,
                    policy=log.head if evidence else None,
                    evidence=digest,
                    blobs=(Descriptor(digest, len(evidence)),) if digest and evidence else (),
                )
            )

        return self._commit(name, channel, change)

    def _commit(self, name: str, channel: str, change: Callable[[Ledger], None]) -> RolloutStatus:
        def changed(ledger: Ledger) -> Collection[Digest]:
            change(ledger)
            return []

        CheckedReader(self.store, self.known_heads).read_index(name)
        with self.store.push() as push:
            ledger = commit(self.store, push, name, changed)
        version = channel_of(ledger, channel).version
        return RolloutStatus(ledger.name, channel, version, ledger.rollouts.get(channel))


def _evidence(
    log: PolicyLog, ledger: Ledger, channel: str, rollout: Rollout, hours: float | None
) -> bytes | None:
    """Judge the version by the policy, and return the evidence; None if the channel is free.

    `hours`: the time that the rollout took; None if it is not at its end. Raise GateError if the policy does not hold.
    """
    judged = judge_rollout(ledger, log, channel, rollout, hours)
    if judged is None:
        return None
    if judged.failed:
        raise GateError(
            f"{ledger.name}:{rollout.to} may not become {channel}: {judged.faults}", READ_FINDINGS
        )
    return judged.evidence(log, channel)


def _current(ledger: Ledger, channel: str) -> Rollout:
    if channel not in ledger.rollouts:
        others = ", ".join(ledger.rollouts)
        raise NotFoundError(
            f"nothing is rolled out to {ledger.name}:{channel}",
            f"rollouts are under way on {others}" if others else Advice("start-rollout", name=ledger.name),
        )
    return ledger.rollouts[channel]
