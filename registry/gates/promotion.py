"""Owner's actions: set a policy, promote a version, and roll a version out to a share of the devices first.

A promotion moves a channel to a version that meets the policy; its event records the findings as evidence. The start of
a rollout is a promotion, and so is each `advance`; `finish` moves the channel, which nothing else moves until then.
"""

import secrets
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from onnxreg.registry.gates.enforce import ChannelGate, policies_in, read_policies
from onnxreg.registry.log.commit import Change, commit
from onnxreg.registry.log.log import Log, mirror_error
from onnxreg.registry.log.lookup import consult, find, load, log_of
from onnxreg.registry.signing import line_signer
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore
from onnxreg.registry.support.environment import stamp
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.registry.trust.signatures import unauthorized_policies
from onnxreg.registry.trust.trust_file import load_trust
from onnxreg.schema.core.digest import Descriptor, Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    GateError,
    InputError,
    LostRaceError,
    NotFoundError,
    RegError,
)
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version
from onnxreg.schema.gates.policy import Policy, PolicyLog
from onnxreg.schema.gates.rule import PromotionEvidence
from onnxreg.schema.log.events import Event, PolicyEvent, RolloutStep, Tag, check_channel
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import Channel, Rollout, check_percent, no_channel
from onnxreg.schema.query.cohort import parse_cohort
from onnxreg.schema.signing.dsse import SignLine, sign_line


def with_policy(
    log: PolicyLog,
    policy: Policy,
    actor: str | None = None,
    reason: str | None = None,
    sign: SignLine | None = None,
) -> PolicyLog:
    """Return the log with one more policy; nothing is written."""
    event = PolicyEvent(**stamp(POLICY_LOG, actor, reason), rules=policy.to_json())
    line = LogLine.make(len(log.lines) + 1, log.head, event, sign=sign)
    return PolicyLog(log.registry, (*log.lines, line))


def blocked_channels(reader: RegistryReader, policy: Policy) -> Iterator[dict[str, str | None]]:
    """Yield the name, channel and version of each channel that a policy stops, and `why`; of an unreadable model the name.

    Signatures are judged by the user's trust file. Raise UnlistedError if the registry cannot list its models.
    """
    policies = with_policy(read_policies(reader), policy)
    for name in reader.names():
        try:
            index = reader.read_index(name)
            log = log_of(reader, name, index)
            channels = sorted(log.state.channels.items())
            governed = [item for item in channels if policies.policy.covering(name, item[0])]
            log = load(reader, name, index=index) if governed else log
        except RegError as error:
            yield {"name": name, "channel": None, "version": None, "why": error.message}
            continue
        for tag, channel in governed:
            try:
                ChannelGate(log, policies, tag).check()
            except RegError as error:
                version = str(channel.version)
                yield {"name": name, "channel": tag, "version": version, "why": error.message}


def set_policy(
    store: RegistryStore,
    known_heads: KnownHeads,
    policy: Policy,
    actor: str | None = None,
    reason: str | None = None,
) -> LogLine | None:
    """Set a policy and return its new line; None if the registry's newest policy is equal.

    Raise ConflictError in a mirror, or if another user sets a policy meanwhile. Raise GateError if the policy before
    names keys and none of these keys signs the line.
    """
    if store.is_mirror:
        raise mirror_error(store.registry_id)
    index = store.read_index(POLICY_LOG)
    log = policies_in(index, store.registry_id)
    if log.lines and log.policy == policy:
        return None
    signer = line_signer()
    sign = partial(sign_line, store.registry_id, signer) if signer else None
    longer = with_policy(log, policy, actor, reason, sign)
    for _, problem in unauthorized_policies(load_trust(), longer.registry, longer.lines[-2:]):
        raise GateError(
            problem,
            "sign with one of them: set REG_SIGNING_KEY, and trust it by that name: reg trust add NAME KEY",
        )
    known_heads.remember(store, POLICY_LOG, _publish(store, longer, index))
    return longer.lines[-1]


def _publish(store: RegistryStore, log: PolicyLog, before: IndexFile | None) -> IndexFile:
    """Replace the log of policies `before`, as it was read, by `log`. Raise ConflictError if the file changed since."""
    data = b"".join(line.raw + b"\n" for line in log.lines)
    try:
        with store.push() as push:
            push.publish(POLICY_LOG, data, before.token if before else None)
    except LostRaceError as error:
        raise ConflictError(
            "somebody else set a policy meanwhile", "`reg policy show` shows it; then decide again"
        ) from error
    return IndexFile(data, "")


def copy_policies(original: PolicyLog, destination: RegistryStore) -> None:
    """Copy a log of policies to a mirror, verbatim. Raise ForkError if the mirror has other lines."""
    index = destination.read_index(POLICY_LOG)
    copy = policies_in(index, original.registry)
    if original.lines[: len(copy.lines)] != copy.lines[: len(original.lines)]:
        raise ForkError(
            f"two copies of registry {original.registry} have different policy logs",
            "one of them was rewritten; nothing was changed",
        )
    if len(original.lines) > len(copy.lines):
        _publish(destination, original, index)


class Promotion(NamedTuple):
    """The judged version, and True if the channel moved. `before` is the version that the channel held, if any."""

    judged: PromotionEvidence
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
) -> Promotion:
    """Judge a version by the policy. If the version passes, move the channel.

    Do nothing if this policy promoted the version already. Raise InputError if no policy governs the channel; NotFoundError
    for an unknown version; ConflictError if the version is yanked, or another user moves the channel meanwhile.
    """
    check_channel(channel)
    source = CheckedReader(store, known_heads)
    policies = read_policies(source)
    if not policies.policy.covering(ref.name, channel):
        find(source, ref)  # the hint moves the channel to it
        raise InputError(
            f"no policy governs {ref.name}:{channel} in {store.url}",
            f"`reg tag {ref} {channel}` moves it; `reg policy set FILE` governs it",
        )

    def judge(log: Log) -> tuple[Channel | None, PromotionEvidence]:
        version = log.find(ref).version
        log.check_unyanked(version)
        return log.channels.get(channel), ChannelGate(log, policies, channel).judge(version)

    current, judged = consult(source, ref.name, judge)
    version, expects = Version.parse(judged.version), current.manifest if current else None

    def change(log: Log) -> Collection[Digest]:
        """Judge again by the log that is about to be written, which may have grown."""
        log.check_unyanked(version)
        about = stamp(ref.name, actor, reason) | ChannelGate(log, policies, channel).promotion(version)
        log.append(Tag(**about, tag=channel, version=version, manifest=judged.manifest, expects=expects))
        return []

    is_repeated = current and (current.manifest, current.policy) == (judged.manifest, policies.head)
    is_moved = not (judged.failed or is_repeated or dry_run)
    if is_moved:
        _commit(store, known_heads, ref.name, change)
    return Promotion(judged, is_moved, current.version if current else None)


def _commit(store: RegistryStore, known_heads: KnownHeads, name: str, change: Change) -> Log:
    with store.push() as push:
        log = commit(store, push, name, change)
    known_heads.remember(store, name, log.index)
    return log


@dataclass(frozen=True)
class Rollouts:
    """The rollouts in one registry, which may be a remote; `known_heads` are the user's known heads.

    Each method returns the changed log, and raises NotFoundError if the channel, or the rollout to continue, is missing.
    """

    store: RegistryStore
    known_heads: KnownHeads
    actor: str | None = None

    def start(
        self, ref: Ref, channel: str, share: float, where: str | None = None, reason: str | None = None
    ) -> Log:
        """Give a version to a share of a channel's devices, in percent.

        Raise ConflictError if the channel has a rollout already, or holds the version; GateError if the version fails
        the channel's policy; InputError for a malformed share or expression.
        """
        check_percent(share)
        cohort = None if where is None else str(parse_cohort(where))
        located = find(CheckedReader(self.store, self.known_heads), ref)
        version, manifest = located.version, located.entry.manifest

        def begin(log: Log, about: dict[str, Any]) -> Event:
            if channel in log.rollouts:
                raise ConflictError(
                    f"{log.name}:{channel} is being rolled out to {log.rollouts[channel].to}",
                    f"`reg rollout finish {log.name} --channel {channel}` moves the channel, `halt` stops the rollout",
                )
            if about["expects"] == manifest:
                raise ConflictError(f"{log.name}:{channel} is {version} already", "there is nothing to do")
            return self._step(log, about, Rollout(version, manifest, share, secrets.token_hex(16), 0, cohort))

        return self._change(ref.name, channel, reason, begin)

    def advance(self, name: str, channel: str, share: float, reason: str | None = None) -> Log:
        """Give the version to a larger share of the devices; devices that have the version keep it.

        Raise InputError if the share is not larger; GateError as `start` does.
        """
        check_percent(share)

        def widen(log: Log, about: dict[str, Any]) -> Event:
            rollout = _current(log, channel)
            if share <= rollout.percent:
                raise InputError(
                    f"{rollout.to} goes to {rollout.percent:g} % of the devices, which is not less than {share:g} %",
                    f"`reg rollout finish {name} --channel {channel}` moves the channel, `halt` stops the rollout",
                )
            return self._step(log, about, rollout.replace(percent=share))

        return self._change(name, channel, reason, widen)

    def halt(self, name: str, channel: str, reason: str | None = None) -> Log:
        """Stop the rollout: every device gets the version that the channel holds."""

        def halt(log: Log, about: dict[str, Any]) -> Event:
            _current(log, channel)
            return RolloutStep(**about)

        return self._change(name, channel, reason, halt)

    def finish(self, name: str, channel: str, reason: str | None = None) -> Log:
        """Move the channel to the rollout's version. Raise GateError as `start` does."""

        def finish(log: Log, about: dict[str, Any]) -> Event:
            rollout = _current(log, channel)
            promotion = self._promotion(log, channel, rollout.to)
            del log.rollouts[channel]  # so that the channel may move
            return Tag(**about, **promotion, version=rollout.to, manifest=rollout.manifest)

        return self._change(name, channel, reason, finish)

    def _step(self, log: Log, about: dict[str, Any], rollout: Rollout) -> Event:
        """The event that begins a rollout or enlarges its share."""
        about |= self._promotion(log, about["tag"], rollout.to)
        if (evidence := about.get("evidence")) is not None:
            about["blobs"] = (Descriptor(evidence, len(log.fetch(evidence))),)
        state = {key: getattr(rollout, key) for key in ("manifest", "percent", "salt", "where")}
        return RolloutStep(**about, **state, version=rollout.to)

    def _change(
        self, name: str, channel: str, reason: str | None, make: Callable[[Log, dict[str, Any]], Event]
    ) -> Log:
        def change(log: Log) -> Collection[Digest]:
            if check_channel(channel) not in log.channels:
                raise no_channel(name, channel, log.channels, f"; reg tag {name}:VERSION {channel} makes it")
            holder = log.channels[channel].manifest
            log.append(make(log, {**stamp(name, self.actor, reason), "tag": channel, "expects": holder}))
            return []

        CheckedReader(self.store, self.known_heads).read_index(name)
        return _commit(self.store, self.known_heads, name, change)

    def _promotion(self, log: Log, channel: str, version: Version) -> dict[str, Digest]:
        policies = read_policies(CheckedReader(self.store, self.known_heads))
        return ChannelGate(log, policies, channel).promotion(version)


def _current(log: Log, channel: str) -> Rollout:
    if channel not in log.rollouts:
        raise NotFoundError(
            f"nothing is rolled out to {log.name}:{channel}",
            f"rollouts are under way on {', '.join(log.rollouts) or 'no channel'}; `reg rollout start` begins one",
        )
    return log.rollouts[channel]
