"""Promotion: a channel moves to a version that meets the policy, and the event records the findings.

`judge_version` judges a version by the rules of a channel. Everything is read again from the log and its blobs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from onnxreg.registry.gates.gate_history import attestations, compared_with, evaluation_of, manifest_at, moves
from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.gates.proofs import recorded_proofs
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import commit, load
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import read_manifest
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.registry.trust.checked_reader import CheckedReader, load_trust
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.signatures import signatures
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import items, mapping, optional, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, GateError, InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.gates.rule import GateFinding, PromotionCandidate, Rule
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Tag, check_channel

_HEAD = {"format": "onnxreg-evidence", "format_version": 1}


@dataclass(frozen=True)
class PromotionEvidence:
    """The evidence of a promotion: the version, the policy that it met, the findings and their statements.

        {"format": "onnxreg-evidence", "format_version": 1, "name", "channel", "version", "manifest", "policy",
         "before"?: digest,
         "findings": [{"requirement", "verdict", "detail"}], "statements": [digests]}

    `before` is the manifest with which the version was compared. `statements` are the attestations of the
    manifest in the log. A reader judges the version again, and only checks that the evidence is about this move.
    """

    name: str
    channel: str
    version: Version
    manifest: Digest
    policy: Digest
    before: Digest | None
    findings: tuple[GateFinding, ...]
    statements: tuple[Digest, ...]

    def encode(self) -> bytes:
        value: dict[str, Any] = {
            **_HEAD,
            "name": self.name,
            "channel": self.channel,
            "version": str(self.version),
            "manifest": str(self.manifest),
            "policy": str(self.policy),
            "findings": [finding.to_json() for finding in self.findings],
            "statements": [str(statement) for statement in self.statements],
        }
        return canonical.encode(value | ({"before": str(self.before)} if self.before else {}))

    @classmethod
    def decode(cls, data: bytes) -> "PromotionEvidence":
        """Raise InputError if it is not evidence of a promotion."""
        value = mapping(canonical.decode(data, "evidence"))
        if any(value.get(key) != item for key, item in _HEAD.items()):
            raise InputError("it is not evidence of a promotion")
        return cls(
            text(required(value, "name")),
            text(required(value, "channel")),
            Version.parse(text(required(value, "version"))),
            Digest.parse(required(value, "manifest")),
            Digest.parse(required(value, "policy")),
            optional(value.get("before"), Digest.parse),
            items(required(value, "findings"), _finding),
            items(required(value, "statements"), Digest.parse),
        )


def _finding(value: Any) -> GateFinding:
    finding = mapping(value)
    verdict = required(finding, "verdict")
    if verdict not in ("pass", "fail"):
        raise InputError("a finding is neither pass nor fail")
    return GateFinding(text(required(finding, "requirement")), verdict, text(required(finding, "detail")))


@dataclass(frozen=True)
class Promotion:
    """The findings, and whether the channel moved. `before` is the version that it held, if any."""

    located: lookup.LocatedVersion
    channel: str
    findings: tuple[GateFinding, ...]
    moved: bool
    before: str | None = None

    @property
    def holds(self) -> bool:
        return all(finding.verdict == "pass" for finding in self.findings)

    def refuse(self) -> GateError:
        """The error if the policy does not hold."""
        failed = list(
            dict.fromkeys(finding.requirement for finding in self.findings if finding.verdict == "fail")
        )
        return GateError(
            f"{self.located.ref} may not become {self.channel}: {', '.join(failed)}",
            Advice("read-findings"),
        )


@dataclass(frozen=True)
class Promoter:
    """Promotes in one registry.

    `known_heads` are those of the user; `remote` is True if the registry is not on this machine.
    """

    store: RegistryStore
    known_heads: KnownHeads
    actor: str | None = None
    remote: bool = False

    def promote(self, ref: Ref, channel: str, dry_run: bool = False, reason: str | None = None) -> Promotion:
        """Judge a version by the policy. If it passes, move the channel.

        Do nothing if it was promoted already under this policy. Raise InputError if no policy governs the channel;
        NotFoundError if the version does not exist; ConflictError if another user moves the channel meanwhile.
        """
        check_channel(channel)
        source = CheckedReader(self.store, self.known_heads)
        log = read_policies(source)
        rules = log.policy.covering(ref.name, channel)
        if not rules:
            if not self.remote:
                lookup.find(source, ref)  # the hint moves the channel to it
            raise InputError(
                f"no policy governs {ref.name}:{channel} in {self.store.url}",
                self._without_policy(ref, channel),
            )
        located = lookup.find(source, ref)
        ledger, _ = load(source, ref.name)
        current = ledger.channels.get(channel)
        judged = judge_version(ledger, rules, located.version, self._before(ledger, channel, located))
        repeated = current is not None and (current.manifest, current.policy) == (
            located.entry.manifest,
            log.head,
        )
        moved = not judged.failed and not repeated and not dry_run
        if moved:
            self._move(log, channel, located, current.manifest if current else None, reason)
        return Promotion(located, channel, judged.findings, moved, str(current.version) if current else None)

    def _without_policy(self, ref: Ref, channel: str) -> Advice:
        """The hint for a channel that no policy governs. No push brings a policy along."""
        if not self.remote:
            return Advice("tag-or-govern", ref=ref, channel=channel)
        url = self.store.url
        return Advice("push-or-govern", ref=ref, remote=url, channel=channel)

    def _before(self, ledger: Ledger, channel: str, located: lookup.LocatedVersion) -> Digest | None:
        return compared_with(moves(ledger, channel), located.entry.manifest)

    def _move(
        self,
        log: PolicyLog,
        channel: str,
        located: lookup.LocatedVersion,
        expects: Digest | None,
        reason: str | None,
    ) -> None:
        """Judge again on the log to be swapped, which may have grown, and append the event with its
        evidence. ConflictError if the channel does not hold the manifest `expects` any more."""
        rules = log.policy.covering(located.name, channel)

        def change(ledger: Ledger) -> Collection[Digest]:
            judged = judge_version(ledger, rules, located.version, self._before(ledger, channel, located))
            if judged.failed:
                raise GateError(f"{located.ref} no longer meets the policy", "run it again to see why")
            evidence = evidence_of(judged, log, channel, located)
            ledger.append(
                Tag(
                    **stamp(located.name, self.actor, reason),
                    tag=channel,
                    version=located.version,
                    manifest=located.entry.manifest,
                    expects=expects,
                    policy=log.head,
                    evidence=ledger.attach(evidence.encode()),
                )
            )
            return []

        with self.store.push() as push:
            commit(self.store, push, located.name, change)


@dataclass(frozen=True)
class JudgedVersion:
    """The finding of each demand, the manifest compared with, and the statements that were read."""

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


def judge_version(
    ledger: Ledger,
    rules: Sequence[Rule],
    version: Version,
    before: Digest | None,
    trust: Trust | None = None,
    hours: float | None = None,
) -> JudgedVersion:
    """Judge a version by rules. Raise IntegrityError or NotFoundError if a document cannot be read.

    Args:
        trust: default: the user's trust file.
        hours: the time of the rollout before, if there was one.
    """
    entry = ledger.entries[version]
    trust = load_trust() if trust is None else trust
    data = ledger.fetch(entry.manifest)
    manifest = read_manifest(data, entry.manifest, ledger.name)
    attests = attestations(ledger, entry.manifest, manifest)
    candidate = PromotionCandidate(
        manifest,
        entry.manifest,
        len(data),
        tuple(item for event in attests if (item := evaluation_of(ledger, event)) is not None),
        _signers(ledger, version, trust) if any(rule.signed_by for rule in rules) else (),
        None if before is None else manifest_at(ledger, before),
        entry.held,
        frozenset(name for key in trust.keys.values() for name in (key.name, key.key.id) if name),
        hours,
        tuple(recorded_proofs(ledger, attests, trust)) if any(rule.faithful for rule in rules) else (),
    )
    findings = tuple(dict.fromkeys(item for rule in rules for item in rule.evaluate(candidate)))
    statements = tuple(dict.fromkeys(event.statement for event in attests))
    return JudgedVersion(findings, before, statements)


def evidence_of(
    judged: JudgedVersion, log: PolicyLog, channel: str, located: lookup.LocatedVersion
) -> PromotionEvidence:
    """The evidence of a version that was judged for a channel."""
    return PromotionEvidence(
        located.name,
        channel,
        located.version,
        located.entry.manifest,
        log.head,
        judged.before,
        judged.findings,
        judged.statements,
    )


def _signers(ledger: Ledger, version: Version, trust: Trust) -> tuple[frozenset[str], ...]:
    """The names and ids of each trusted key that signed a version; a key and those that it replaces are one."""
    releases = signatures(ledger, trust, [ledger.entries[version].manifest])
    verdicts = [release.verdict for release in releases if release.version == version]
    return trust.signers(sorted(verdict.keyid or "" for verdict in verdicts if verdict.status == "trusted"))
