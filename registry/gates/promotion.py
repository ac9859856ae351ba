"""Promotion: a channel moves to a version where the policy in force holds, and the event says what was found."""

from collections.abc import Collection
from dataclasses import dataclass
from io import BytesIO

from onnxreg.registry.gates.evaluate import JudgedVersion, judge_version
from onnxreg.registry.gates.gate_history import compared_with, moves
from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.gates.promotion_evidence import PromotionEvidence
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import commit, load
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.stamp import stamp
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.trust.checked_source import CheckedReader
from onnxreg.registry.trust.rollback import CheckpointStore
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.channel_rules import GateFinding
from onnxreg.schema.log.events import Tag, check_channel


@dataclass(frozen=True)
class Promotion:
    """What was found, and whether the channel moved. `before` is what it held, if anything."""

    found: lookup.LocatedVersion
    channel: str
    findings: tuple[GateFinding, ...]
    moved: bool
    before: str | None = None

    @property
    def holds(self) -> bool:
        return all(finding.verdict == "pass" for finding in self.findings)

    def refuse(self) -> GateError:
        """The error for whoever asked for it."""
        failed = list(dict.fromkeys(each.requirement for each in self.findings if each.verdict == "fail"))
        return GateError(
            f"{self.found.ref} may not become {self.channel}: {', '.join(failed)}",
            "the findings say what is missing; `reg policy show` shows what is demanded",
        )


@dataclass(frozen=True)
class Promoter:
    """Promotes in one registry; `heads` are what the user saw of it before, `remote` whether it lies elsewhere."""

    place: RegistryStore
    heads: CheckpointStore
    actor: str | None = None
    remote: bool = False

    def promote(self, ref: Ref, channel: str, dry_run: bool = False, reason: str | None = None) -> Promotion:
        """Hold a version against the policy and, where all of it holds, move the channel.

        Nothing happens where it was promoted already under this policy. Raise InputError if no policy
        governs the channel; ConflictError if somebody else moves it meanwhile.
        """
        check_channel(channel)
        watched = CheckedReader(self.place, self.heads)
        log = read_policies(watched)
        rules = log.policy.covering(ref.name, channel)
        if not rules:
            raise InputError(
                f"no policy governs {ref.name}:{channel} in {self.place.url}",
                self._without_policy(ref, channel),
            )
        found = lookup.find(watched, ref)
        ledger, _ = load(watched, ref.name)
        held = ledger.channels.get(channel)
        judged = judge_version(ledger, rules, found.version, self._before(ledger, channel, found))
        done = held is not None and (held.manifest, held.policy) == (found.entry.manifest, log.head)
        moved = not judged.failed and not done and not dry_run
        if moved:
            self._move(log, channel, found, reason)
        return Promotion(found, channel, judged.findings, moved, str(held.version) if held else None)

    def _without_policy(self, ref: Ref, channel: str) -> str:
        """What to do with a channel that is free. No push brings a policy along."""
        if not self.remote:
            return f"`reg tag {ref} {channel}` moves it; `reg policy set FILE` governs it"
        url = self.place.url
        return f"`reg push {ref} {url} --tag {channel}` moves it; `reg policy set FILE --remote {url}` governs it"

    def _before(self, ledger: Ledger, channel: str, found: lookup.LocatedVersion) -> Digest | None:
        return compared_with(moves(ledger, channel), found.entry.manifest)

    def _move(self, log: PolicyLog, channel: str, found: lookup.LocatedVersion, reason: str | None) -> None:
        """Judge again on the log that is swapped, which may have grown, and append the event with its evidence."""
        rules = log.policy.covering(found.name, channel)
        with self.place.push() as push:

            def change(ledger: Ledger) -> Collection[Digest]:
                judged = judge_version(ledger, rules, found.version, self._before(ledger, channel, found))
                if judged.failed:
                    raise GateError(f"{found.ref} meets the policy no more", "run it again to see why")
                held = ledger.channels.get(channel)
                evidence = _evidence(judged, log, channel, found)
                digest, _ = push.put(BytesIO(evidence.encode()))
                ledger.append(
                    Tag(
                        **stamp(found.name, self.actor, reason),
                        tag=channel,
                        version=found.version,
                        manifest=found.entry.manifest,
                        expects=held.manifest if held else None,
                        policy=log.head,
                        evidence=digest,
                    )
                )
                return [digest]

            commit(self.place, push, found.name, change)


def _evidence(
    judged: JudgedVersion, log: PolicyLog, channel: str, found: lookup.LocatedVersion
) -> PromotionEvidence:
    return PromotionEvidence(
        found.name,
        channel,
        found.version,
        found.entry.manifest,
        log.head,
        judged.before,
        judged.findings,
        judged.statements,
    )
