"""The rules for channels: policies, promotions with evidence, rollouts, and the checks that run when a channel is read.

A policy governs a channel if it has a rule for the channel. Only a promotion moves a governed channel: `ChannelGate`
judges the version by the newest policy, and the event records the findings as evidence. When a channel is read, its
version is judged again, from the log and its blobs. The start and each `advance` of a rollout are judged and recorded
like promotions. The channel itself moves only at `finish`. See docs/gates.md.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from onnxreg.registry.log.commit import Change, commit, line_signer
from onnxreg.registry.log.contents import documents
from onnxreg.registry.log.log import LocatedVersion, Log, consult, find, load, log_of, mirror_error
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore, StoredObject
from onnxreg.registry.system import stamp
from onnxreg.registry.trust import signatures
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads, load_trust
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    ConflictError,
    ForkError,
    GateError,
    InputError,
    IntegrityError,
    LostRaceError,
    NotFoundError,
    RegError,
    about,
    fault,
)
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version
from onnxreg.schema.gates.policy import Policy, PolicyLog
from onnxreg.schema.gates.rule import DEMANDS, PromotionCandidate, PromotionEvidence, Rule
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Event, LogLine, PolicyEvent, RolloutStep, Tag, check_channel
from onnxreg.schema.log.state import Channel, Rollout, check_percent, no_channel
from onnxreg.schema.query.device import DEVICE_FIELDS
from onnxreg.schema.query.expression import parse
from onnxreg.schema.signing.dsse import SignLine

PROMOTE_ADVICE = "do not use it until you know why; `reg promote` by somebody who may puts it right"
CHANGES = frozenset({"breaking"})  # the demands that limit the changes since the previous promotion


class UnpromotedError(GateError):
    """A governed channel, or its rollout, has a version that was not promoted. Nothing is damaged."""


def read_policies(reader: RegistryReader) -> PolicyLog:
    return policies_in(reader.read_index(POLICY_LOG), reader.registry_id)


def policies_in(index: StoredObject | None, registry: str) -> PolicyLog:
    return PolicyLog(registry) if index is None else PolicyLog.decode(index.data, registry)


class ChannelGate(Struct, frozen=True, dict=True):
    """Judges versions for one channel by the newest policy, the model's log and the trust file."""

    log: Log
    policies: PolicyLog
    channel: str
    trust: Trust = field(default_factory=load_trust)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        return self.policies.policy.covering(self.log.name, self.channel)

    @cached_property
    def moves(self) -> list[Tag]:
        return [event for _, event in self.log.events(Tag) if event.tag == self.channel]

    def judge(
        self, version: Version, demands: Collection[str] = DEMANDS, past: Sequence[Tag] | None = None
    ) -> PromotionEvidence:
        """Judge a version by these demands. `past` has the channel's earlier moves, by default those in the log."""
        log, entry, trust = self.log, self.log.versions[version], self.trust
        manifest = log.manifest(version)
        counted = {key for rule in self.rules for key in rule.checks} & set(demands)
        events = signatures.attestations(log, entry.manifest, manifest)
        by = signatures.signatures_of(log, trust, version, entry.manifest) if "signed_by" in counted else ()
        trusted = sorted({item.keyid or "" for item in by if item.status == "trusted"})
        published = {item.manifest for item in log.versions.values()}
        moves = self.moves if past is None else past
        moves = [move for move in moves if move.evidence or move.manifest in published]
        before = compared_with(moves, entry.manifest)
        candidate = PromotionCandidate(
            manifest,
            entry.manifest,
            entry.size,
            evaluations=tuple(filter(None, (signatures.evaluation_of(log, event) for event in events))),
            signers=trust.signers(trusted),
            before=log.read_manifest(before) if before and CHANGES & counted else None,
            held=entry.held,
            trusted=frozenset(name for key in trust.keys.values() for name in (key.name, key.key.id)),
            proofs=tuple(signatures.recorded_proofs(log, events, manifest, trust))
            if "faithful" in counted
            else (),
        )
        findings = (item for rule in self.rules for item in rule.evaluate(candidate, demands))
        return PromotionEvidence(
            name=log.name,
            channel=self.channel,
            version=str(version),
            manifest=entry.manifest,
            policy=self.policies.head,
            before=before,
            findings=tuple(dict.fromkeys(findings)),
            statements=tuple(dict.fromkeys(event.statement for event in events)),
        )

    def promotion(self, version: Version) -> dict[str, Digest]:
        """Judge a version and add the evidence to the log. Return the keys `policy` and `evidence` for the event.

        Return {} if no policy governs the channel. Raise GateError if the version fails the policy.
        """
        if not self.rules:
            return {}
        judged = self.judge(version)
        if judged.failed:
            raise judged.refusal(judged.faults)
        return {"policy": judged.policy, "evidence": self.log.attach(judged.encode())}

    def check(self) -> None:
        """Check the version of a governed channel. Raise GateError if it was not promoted, or fails the policy."""
        if not self.rules:
            return
        name, current = f"{self.log.name}:{self.channel}", self.log.channels.get(self.channel)
        move = self.moves[-1] if self.moves else None
        keys = ("version", "manifest", "policy", "evidence")
        if move is None or any(getattr(current, key, None) != getattr(move, key) for key in keys):
            raise IntegrityError(f"{name} was moved without an event in the log", VERIFY_ADVICE)
        moved = f"{name} was moved to {move.version}"
        self._check_promoted(move, moved, f"{name} is {move.version}, which", self.moves[:-1])

    def check_rollout(self) -> None:
        """Check the version of the channel's rollout. Raises GateError if it was not promoted, or fails the policy."""
        name, rollout = f"{self.log.name}:{self.channel}", self.log.rollouts[self.channel]
        steps = [event for _, event in self.log.events(RolloutStep) if event.tag == self.channel]
        step = next((step for step in reversed(steps) if step.manifest == rollout.manifest), None)
        stated = (rollout.to, rollout.percent, rollout.salt, rollout.where)
        if step is None or (step.version, step.percent, step.salt, step.where) != stated:
            raise IntegrityError(f"the rollout of {name} is not what its log says", VERIFY_ADVICE)
        if self.rules:
            moved = f"{rollout.to} is rolled out to {name}"
            self._check_promoted(step, moved, f"{rollout.to}, which is rolled out to {name},", None)

    def check_past(self) -> None:
        """Check all promotions in the history of a governed channel. Each is checked against the policy of its time.

        Raises GateError if evidence is wrong, or if a promotion was made under an older policy than the promotion
        before it. Also raises GateError if a promotion before the last move made changes that its own policy forbids.
        """
        newest = 0  # else an attacker could make a forbidden change in two steps, through a third version
        for position, move in enumerate(self.moves if self.rules else ()):
            if move.evidence is None:
                continue
            seq = check_evidence(self.log, self.policies, move)
            moved = f"{self.log.name}:{self.channel} was moved to {move.version}"
            if seq < newest:
                raise GateError(f"{moved} under a policy that was replaced before", PROMOTE_ADVICE)
            newest = seq
            former = replace(self, policies=PolicyLog(self.log.registry, self.policies.lines[:seq]))
            is_limited = any(CHANGES & rule.checks.keys() for rule in former.rules)
            if is_limited and move is not self.moves[-1] and move.version in self.log.versions:
                judged = former.judge(move.version, CHANGES, past=self.moves[:position])
                if judged.failed:
                    raise GateError(f"{moved} on the way: {judged.failed[0].detail}", PROMOTE_ADVICE)

    def _check_promoted(
        self, move: Tag | RolloutStep, moved: str, subject: str, past: Sequence[Tag] | None
    ) -> None:
        if move.evidence is None or move.version is None:
            raise UnpromotedError(f"{moved} without a promotion", PROMOTE_ADVICE)
        check_evidence(self.log, self.policies, move)
        judged = self.judge(move.version, past=past)
        if judged.failed:
            raise GateError(f"{subject} does not meet the policy: {judged.faults}", PROMOTE_ADVICE)


def compared_with(past: Sequence[Tag], manifest: Digest) -> Digest | None:
    """Return the earlier manifest with which a channel's new `manifest` is compared. None means no comparison.

    `past` has the channel's earlier moves. Moves to `manifest` itself are skipped. Of the others, the last promotion is
    used or, if there is no promotion, the last move. There is one exception: if `past` has no promotion at all and ends
    with a move to `manifest`, return None.
    """
    others = [event for event in past if event.manifest != manifest]
    promoted = [event for event in others if event.evidence is not None]
    if not any(event.evidence is not None for event in past) and past and past[-1].manifest == manifest:
        return None
    return next((event.manifest for event in reversed(promoted or others)), None)


def check_evidence(log: Log, policies: PolicyLog, move: Tag | RolloutStep) -> int:
    """Check a promotion's policy and evidence, and return the policy's line number. Raises GateError for a fault."""
    channel = f"{log.name}:{move.tag}"
    seq = next((line.seq for line in policies.lines if line.digest == move.policy), None)
    if seq is None or move.evidence is None:
        problem = f"{channel} was moved to {move.version} under a policy that the registry never had"
        raise GateError(problem, PROMOTE_ADVICE)
    with about(f"{channel}: it is not evidence of a promotion", GateError, PROMOTE_ADVICE):
        evidence = PromotionEvidence.decode(log.fetch(move.evidence), "the evidence")
    stated = (evidence.name, evidence.channel, evidence.version, evidence.manifest, evidence.policy)
    if stated != (log.name, move.tag, str(move.version), move.manifest, move.policy):
        raise GateError(f"the evidence of {channel} is that of another move", PROMOTE_ADVICE)
    return seq


def check_holder(
    reader: RegistryReader,
    channel: str,
    located: LocatedVersion,
    index: StoredObject | None,
    policy: StoredObject,
) -> None:
    """Check that the version `located` meets the policy. A query found this version for `channel` or for its rollout.

    `index` is the index file that the query read. Raises GateError if the version fails the policy, or if channel or
    rollout changed after the query. Raises IntegrityError if `index` is wrong.
    """
    policies = PolicyLog.decode(policy.data, reader.registry_id)
    if not policies.policy.covering(located.name, channel):
        return

    def judge(log: Log) -> None:
        manifest = located.entry.manifest
        gate, current = ChannelGate(log, policies, channel), log.channels.get(channel)
        answered = log if index in (None, log.index) else log_of(reader, located.name, index)
        rollout = log.rollouts.get(channel)
        if rollout is not None and rollout.manifest == manifest:
            gate.check_rollout()
            is_same = answered.state.rollouts.get(channel) == rollout
        else:
            gate.check()
            is_same = current is not None and current.manifest == manifest
        if not is_same:
            raise GateError(
                f"{located.name}:{channel} holds {current.version if current else 'nothing'} by now, and {located.version} was found",
                "it was moved while it was read: ask again",
            )
        answered.check_summary(located)

    consult(reader, located.name, judge, index=index)


def promotion_documents(log: Log) -> set[Digest]:
    """Return the digests of the documents that are needed to judge the governed channels offline."""
    governed = {tag: current for tag, current in log.channels.items() if current.evidence}
    moves = [event for _, event in log.events(Tag) if event.evidence and event.tag in governed]
    digests = {digest for event in moves for digest in (event.manifest, event.evidence) if digest}
    for current in governed.values():
        related = signatures.attestations(log, current.manifest, log.manifest(current.version))
        digests |= {event.statement for event in related}
    return digests & {document.digest for document in documents(log)}


def audit_gates(reader: RegistryReader, log: Log, trust: Trust) -> Iterator[tuple[str, str]]:
    """Yield a fault (kind, description) for each channel that breaks the policy. Kinds: `unpromoted`, `gate`."""
    policies = None
    for channel in sorted(log.channels):
        try:
            policies = policies or read_policies(reader)
            gate = ChannelGate(log, policies, channel, trust)
            gate.check()
            gate.check_past()
            if channel in log.rollouts:
                gate.check_rollout()
        except UnpromotedError as error:
            yield "unpromoted", error.message
        except RegError as error:
            yield fault("gate", error)


def check_free(reader: RegistryReader, name: str, channel: str, option: str = "") -> None:
    """Raise GateError if a channel is governed, because only a promotion may move it.

    `option`, such as ` --remote s3://models`, is put at the end of the command in the hint.
    """
    if read_policies(reader).policy.covering(name, channel):
        hint = f"promote instead: reg promote {name}:VERSION {channel}{option}"
        raise GateError(f"a policy governs {name}:{channel} in {reader.url}", hint)


def with_policy(
    log: PolicyLog, policy: Policy, about: dict[str, Any], sign: SignLine | None = None
) -> PolicyLog:
    """Return the policy log with one more line for `policy`. Nothing is written."""
    event = PolicyEvent(**about, rules=policy.to_json()["rule"])
    return PolicyLog(log.registry, (*log.lines, LogLine.make(len(log.lines) + 1, log.head, event, sign=sign)))


def blocked_channels(reader: RegistryReader, policy: Policy) -> Iterator[dict[str, str | None]]:
    """Yield channels and rollouts that a policy blocks, and unreadable models: `{name, channel, version, why}`."""
    policies = with_policy(read_policies(reader), policy, stamp(POLICY_LOG, None))
    for name in reader.names():
        try:
            log = load(reader, name)
        except RegError as error:
            yield {"name": name, "channel": None, "version": None, "why": error.message}
            continue
        for tag, channel in sorted(log.channels.items()):
            gate, version = ChannelGate(log, policies, tag), channel.version
            try:
                gate.check()
                if tag in log.rollouts:
                    version = log.rollouts[tag].to
                    gate.check_rollout()
            except RegError as error:
                yield {"name": name, "channel": tag, "version": str(version), "why": error.message}


def set_policy(
    store: RegistryStore,
    known_heads: KnownHeads,
    policy: Policy,
    actor: str | None = None,
    reason: str | None = None,
) -> LogLine | None:
    """Set the policy of a registry. Return the new line of the log of policies, or None if the policy is set already.

    Raise ConflictError for a mirror, or if another change came first. Raise GateError if the current policy names keys
    and none of them signs.
    """
    if store.is_mirror:
        raise mirror_error(store.registry_id)
    index = store.read_index(POLICY_LOG)
    log = policies_in(index, store.registry_id)
    if log.lines and log.policy == policy:
        return None
    sign = line_signer(store.registry_id)
    longer = with_policy(log, policy, stamp(POLICY_LOG, actor, reason), sign)
    for _, problem in signatures.unauthorized_policies(load_trust(), longer.registry, longer.lines[-2:]):
        how = "sign with one of them: set REG_SIGNING_KEY, and trust it by that name: reg trust add NAME KEY"
        raise GateError(problem, how)
    known_heads.remember(store, POLICY_LOG, _publish(store, longer, index))
    return longer.lines[-1]


def _publish(store: RegistryStore, log: PolicyLog, before: StoredObject | None) -> StoredObject:
    data = b"".join(line.raw + b"\n" for line in log.lines)
    try:
        with store.push() as push:
            push.publish(POLICY_LOG, data, before.token if before else None)
    except LostRaceError as error:
        hint = "`reg policy show` shows it; then decide again"
        raise ConflictError("somebody else set a policy meanwhile", hint) from error
    return StoredObject(data, "")


def copy_policies(original: PolicyLog, destination: RegistryStore) -> None:
    """Copy a log of policies unchanged to a mirror. Raise ForkError if neither log is the beginning of the other."""
    index = destination.read_index(POLICY_LOG)
    copy = policies_in(index, original.registry)
    if original.lines[: len(copy.lines)] != copy.lines[: len(original.lines)]:
        two = f"two copies of registry {original.registry} have different policy logs"
        raise ForkError(two, "one of them was rewritten; nothing was changed")
    if len(original.lines) > len(copy.lines):
        _publish(destination, original, index)


MakeEvent = Callable[[Log, dict[str, Any], Rollout], Event]
"""A function that makes an event from the log, the event's common keys and the rollout."""


class Promotions(Struct, frozen=True, dict=True):
    """Promotions and rollouts in one registry, which may be a remote.

    The methods about rollouts return the changed log. They raise NotFoundError if channel or rollout does not exist.
    """

    store: RegistryStore
    known_heads: KnownHeads
    actor: str | None = None

    @cached_property
    def _reader(self) -> CheckedReader:
        return CheckedReader(self.store, self.known_heads)

    def promote(
        self, ref: Ref, channel: str, dry_run: bool = False, reason: str | None = None
    ) -> tuple[PromotionEvidence, bool, Version | None]:
        """Judge a version and, if it meets the policy, move the channel to it.

        Return the judgement, a flag (True if the channel was moved), and the channel's previous version or None. A
        second call under the same policy moves nothing. Raise InputError if no policy governs the channel. Raise
        ConflictError if the version is yanked, or the channel moves meanwhile.
        """
        check_channel(channel)
        policies = read_policies(self._reader)
        if not policies.policy.covering(ref.name, channel):
            find(self._reader, ref)  # the hint names the version
            hint = f"`reg tag {ref} {channel}` moves it; `reg policy set FILE` governs it"
            raise InputError(f"no policy governs {ref.name}:{channel} in {self.store.url}", hint)

        def judge(log: Log) -> tuple[Channel | None, PromotionEvidence]:
            version = log.find(ref).version
            log.check_unyanked(version)
            return log.channels.get(channel), ChannelGate(log, policies, channel).judge(version)

        current, judged = consult(self._reader, ref.name, judge)
        version, expects = Version.parse(judged.version), current.manifest if current else None

        def change(log: Log) -> Collection[Digest]:
            about = stamp(ref.name, self.actor, reason)
            about |= ChannelGate(log, policies, channel).promotion(version)  # the log may have new lines
            log.append(Tag(**about, tag=channel, version=version, manifest=judged.manifest, expects=expects))
            return []

        is_repeated = current and (current.manifest, current.policy) == (judged.manifest, policies.head)
        is_moved = not (judged.failed or is_repeated or dry_run)
        if is_moved:
            self._commit(ref.name, change)
        return judged, is_moved, current.version if current else None

    def start(
        self, ref: Ref, channel: str, share: float, where: str | None = None, reason: str | None = None
    ) -> Log:
        """Begin a rollout: give a version to `share` percent of a channel's devices, or of those that match `where`.

        Raise ConflictError if the channel already has a rollout, or already points to the version. Raise GateError if
        the version fails the policy.
        """
        check_percent(share)
        cohort = None if where is None else str(parse(where, DEVICE_FIELDS))
        located = find(self._reader, ref)
        manifest, salt = located.entry.manifest, secrets.token_hex(16)
        rollout = Rollout(located.version, manifest, share, salt, 0, cohort)
        return self._change(ref.name, channel, reason, self._step, rollout)

    def advance(self, name: str, channel: str, share: float, reason: str | None = None) -> Log:
        """Enlarge a rollout: give its version to `share` percent of the devices. Devices with the version keep it."""
        check_percent(share)

        def widen(log: Log, about: dict[str, Any], rollout: Rollout) -> Event:
            if share <= rollout.percent:
                raise InputError(
                    f"{rollout.to} goes to {rollout.percent:g} % of the devices, which is not less than {share:g} %",
                    f"`reg rollout finish {name} --channel {channel}` moves the channel, `halt` stops the rollout",
                )
            return self._step(log, about, rollout.replace(percent=share))

        return self._change(name, channel, reason, widen)

    def halt(self, name: str, channel: str, reason: str | None = None) -> Log:
        """Stop a rollout: all devices get the channel's version again."""
        return self._change(name, channel, reason, lambda log, about, rollout: RolloutStep(**about))

    def finish(self, name: str, channel: str, reason: str | None = None) -> Log:
        """End a rollout: move the channel to the rollout's version. Raise GateError if the version fails the policy."""

        def finish(log: Log, about: dict[str, Any], rollout: Rollout) -> Event:
            promotion = ChannelGate(log, read_policies(self._reader), channel).promotion(rollout.to)
            del log.rollouts[channel]  # so that the channel may move
            return Tag(**about, **promotion, version=rollout.to, manifest=rollout.manifest)

        return self._change(name, channel, reason, finish)

    def _step(self, log: Log, about: dict[str, Any], rollout: Rollout) -> Event:
        about |= ChannelGate(log, read_policies(self._reader), about["tag"]).promotion(rollout.to)
        if (evidence := about.get("evidence")) is not None:
            about["blobs"] = (Descriptor(evidence, len(log.fetch(evidence))),)
        state = {key: getattr(rollout, key) for key in ("manifest", "percent", "salt", "where")}
        return RolloutStep(**about, **state, version=rollout.to)

    def _change(
        self, name: str, channel: str, reason: str | None, make: MakeEvent, new: Rollout | None = None
    ) -> Log:
        """Append the event that `make` returns for the rollout `new`, or else for the channel's current rollout."""

        def change(log: Log) -> Collection[Digest]:
            if check_channel(channel) not in log.channels:
                raise no_channel(name, channel, log.channels, f"; reg tag {name}:VERSION {channel} makes it")
            holder, current = log.channels[channel].manifest, log.rollouts.get(channel)
            if (rollout := new or current) is None:
                under_way = ", ".join(log.rollouts) or "no channel"
                hint = f"rollouts are under way on {under_way}; `reg rollout start` begins one"
                raise NotFoundError(f"nothing is rolled out to {name}:{channel}", hint)
            if new is not None and current is not None:
                raise ConflictError(
                    f"{current.to} is being rolled out to {name}:{channel}",
                    f"`reg rollout advance {name} --channel {channel}` gives it to more, `finish` to all, `halt` to none",
                )
            if new is not None and new.manifest == holder:
                raise ConflictError(f"{name}:{channel} is {new.to} already", "there is nothing to do")
            about = {**stamp(name, self.actor, reason), "tag": channel, "expects": holder}
            log.append(make(log, about, rollout))
            return []

        self._reader.read_index(name)
        return self._commit(name, change)

    def _commit(self, name: str, change: Change) -> Log:
        with self.store.push() as push:
            log = commit(self.store, push, name, change)
        self.known_heads.remember(self.store, name, log.index)
        return log
