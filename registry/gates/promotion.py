"""Promotion: a channel moves to a version that meets the policy, and the event records the findings.

`judge_version` judges a version by the rules of a channel. Everything is read again from the log and its blobs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from shlex import quote

from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.gates.statements import attestations, evaluation_of, manifest_at, recorded_proofs
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import commit
from onnxreg.registry.log.log import LocatedVersion, Log
from onnxreg.registry.log.lookup import load
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.registry.trust.checked_reader import CheckedReader, load_trust
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.signatures import signatures_of
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.gates.rule import GateFinding, PromotionCandidate, PromotionEvidence, Rule
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import RolloutStep, Tag, Untag, check_channel

READ_FINDINGS = (
    "the findings say what is missing; `reg policy show` shows what is demanded, and `reg trust add` adds a key to "
    "your trust file"
)


def moves(log: Log, channel: str) -> list[Tag]:
    """Every move of a channel, oldest first."""
    return [event for _, event in log.events(Tag) if event.tag == channel]


def compared_with(past: Sequence[Tag], manifest: Digest) -> Digest | None:
    """The manifest to compare a move of a channel with: the last one promoted to it before.

    After the first promotion, only promotions count. Before it, None if the channel holds that manifest, which then
    changes nothing for devices, or held no other.
    """
    others = [event for event in past if event.manifest != manifest]
    promoted = [event for event in others if event.evidence is not None]
    if not any(event.evidence is not None for event in past) and past and past[-1].manifest == manifest:
        return None
    return next((event.manifest for event in reversed(promoted or others)), None)


def rollout_hours(log: Log, channel: str, manifest: Digest, until: datetime) -> float | None:
    """The hours for which a version was rolled out to a channel without interruption, up to a time.

    None if it was not. Times are as claimed by those who wrote the events; a line is not older than the lines before it.
    """
    start: datetime | None = None
    time = datetime.min.replace(tzinfo=UTC)
    for line in log.lines():
        event = line.event
        if (claimed := datetime.fromisoformat(event.time)) > until:
            continue
        time = max(time, claimed)
        if isinstance(event, RolloutStep | Tag | Untag) and event.tag == channel:
            is_step = isinstance(event, RolloutStep) and event.manifest == manifest
            start = (start or time) if is_step else None if time < until else start
    return None if start is None else (until - start).total_seconds() / 3600


def promotion_documents(log: Log) -> set[Digest]:
    """List the documents by which an offline reader can judge governed channels."""
    digests: set[Digest] = set()
    for channel, current in log.channels.items():
        promoted = [move for move in moves(log, channel) if move.evidence] if current.evidence else []
        digests |= {digest for move in promoted for digest in (move.manifest, move.evidence) if digest}
        if promoted:
            about = attestations(log, current.manifest, manifest_at(log, current.manifest))
            digests |= {event.statement for event in about}
    return digests - set(log.tombstones)


@dataclass(frozen=True)
class JudgedVersion:
    """The finding of each demand, the manifest compared with, and the statements that were read."""

    located: LocatedVersion
    findings: tuple[GateFinding, ...]
    before: Digest | None
    statements: tuple[Digest, ...]

    @property
    def failed(self) -> tuple[GateFinding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "fail")

    @property
    def faults(self) -> str:
        """The failed findings in words."""
        return "; ".join(f"{finding.requirement}: {finding.detail}" for finding in self.failed)

    def evidence(self, policies: PolicyLog, channel: str) -> bytes:
        """The evidence that the version was judged for a channel by the policy in force."""
        return PromotionEvidence(
            name=self.located.name,
            channel=channel,
            version=str(self.located.version),
            manifest=self.located.entry.manifest,
            policy=policies.head,
            before=self.before,
            findings=self.findings,
            statements=self.statements,
        ).encode()


def judge_version(
    log: Log,
    rules: Sequence[Rule],
    version: Version,
    before: Digest | None,
    trust: Trust | None = None,
    hours: float | None = None,
) -> JudgedVersion:
    """Judge a version by rules. Raise IntegrityError or NotFoundError if a document cannot be read.

    Args:
        before: the manifest to compare it with; see `compared_with`.
        trust: default: the user's trust file.
        hours: the time of the rollout before, if there was one.
    """
    entry, trust = log.versions[version], load_trust() if trust is None else trust
    manifest = manifest_at(log, entry.manifest)
    events = attestations(log, entry.manifest, manifest)
    signers: tuple[frozenset[str], ...] = ()
    if any(rule.signed_by for rule in rules):
        verdicts = signatures_of(log, trust, version, entry.manifest)
        trusted = {verdict.keyid or "" for verdict in verdicts if verdict.status == "trusted"}
        signers = trust.signers(sorted(trusted))
    candidate = PromotionCandidate(
        manifest,
        entry.manifest,
        entry.size,
        tuple(item for event in events if (item := evaluation_of(log, event)) is not None),
        signers,
        None if before is None else manifest_at(log, before),
        entry.held,
        frozenset(name for key in trust.keys.values() for name in (key.name, key.key.id) if name),
        hours,
        tuple(recorded_proofs(log, events, trust)) if any(rule.faithful for rule in rules) else (),
    )
    findings = tuple(dict.fromkeys(item for rule in rules for item in rule.evaluate(candidate)))
    statements = tuple(dict.fromkeys(event.statement for event in events))
    return JudgedVersion(LocatedVersion(log.name, version, entry), findings, before, statements)


@dataclass(frozen=True)
class Promotion:
    """The findings, and whether the channel moved. `before` is the version that it held, if any."""

    located: LocatedVersion
    channel: str
    findings: tuple[GateFinding, ...]
    moved: bool
    before: str | None = None

    @property
    def holds(self) -> bool:
        return all(finding.verdict == "pass" for finding in self.findings)

    def refuse(self) -> GateError:
        """The error if the policy does not hold."""
        failed = dict.fromkeys(item.requirement for item in self.findings if item.verdict == "fail")
        return GateError(
            f"{self.located.ref} may not become {self.channel}: {', '.join(failed)}", READ_FINDINGS
        )


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
    rules = policies.policy.covering(ref.name, channel)
    if not rules:
        if not is_remote:
            lookup.find(source, ref)  # the hint moves the channel to it
        url = quote(store.url)
        moves_it = f"reg push {ref} {url} --tag {channel}" if is_remote else f"reg tag {ref} {channel}"
        raise InputError(
            f"no policy governs {ref.name}:{channel} in {store.url}",
            f"`{moves_it}` moves it; `reg policy set FILE{f' --remote {url}' if is_remote else ''}` governs it",
        )
    located = lookup.find(source, ref)

    def judged_in(log: Log) -> JudgedVersion:
        before = compared_with(moves(log, channel), located.entry.manifest)
        return judge_version(log, rules, located.version, before)

    def change(log: Log) -> Collection[Digest]:
        """Judge again on the log to be swapped, which may have grown, and append the event with its evidence."""
        judged = judged_in(log)
        if judged.failed:
            raise GateError(f"{located.ref} no longer meets the policy", "run it again to see why")
        log.append(
            Tag(
                **stamp(located.name, actor, reason),
                tag=channel,
                version=located.version,
                manifest=located.entry.manifest,
                expects=current.manifest if current else None,
                policy=policies.head,
                evidence=log.attach(judged.evidence(policies, channel)),
            )
        )
        return []

    log = load(source, ref.name)
    current, judged = log.channels.get(channel), judged_in(log)
    is_repeated = current is not None and (current.manifest, current.policy) == (
        located.entry.manifest,
        policies.head,
    )
    is_moved = not judged.failed and not is_repeated and not dry_run
    if is_moved:
        with store.push() as push:
            commit(store, push, located.name, change)
    return Promotion(located, channel, judged.findings, is_moved, str(current.version) if current else None)
