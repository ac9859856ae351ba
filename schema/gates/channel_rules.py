"""Checks of a version against the rule of a channel: one finding for each demand. Pure.

One function a demand, in the table `DEMANDS`; each reads the rule and the candidate, and nothing else.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import product
from typing import Any, Literal

from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.gates.evaluation import Evaluation
from onnxreg.schema.gates.faithfulness import FULL_PRECISION, RecordedProof
from onnxreg.schema.gates.policy import Rule
from onnxreg.schema.log.summary import VersionSummary, effective_state, operator_set, summarize
from onnxreg.schema.manifest.license import comparable_license
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.operators import Need, read_operator_set
from onnxreg.schema.manifest.vocabulary import LOSS
from onnxreg.schema.query.expression.fields import of_artifact
from onnxreg.schema.query.requirements import judge, of_member, presence, worst

Passed = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class GateFinding:
    """One demand of a rule, if it is met, and the detail in words for people."""

    requirement: str
    verdict: Passed
    detail: str

    def to_json(self) -> dict[str, str]:
        return {"requirement": self.requirement, "verdict": self.verdict, "detail": self.detail}


@dataclass(frozen=True)
class PromotionCandidate:
    """A version that asks for a channel, with all that is known of it.

    Args:
        manifest, digest, size: its document; `size` in bytes.
        evaluations: the later evaluations of its artifacts, as they were attested.
        signers: the names and the ids of the trusted keys that validly signed the manifest, as one set a key.
        before: the manifest that the channel was last promoted to, other than this one; None: there was none.
        held: the paths of the artifacts that the registry has, if it does not have all.
        trusted: the names and the ids of all keys that the reader trusts, if they were read.
        hours: the time of the rollout before the channel moves, as claimed; None: there was none.
        proofs: those on record that artifacts are their parents, rounded.
    """

    manifest: Manifest
    digest: Digest
    size: int
    evaluations: tuple[Evaluation, ...] = ()
    signers: tuple[frozenset[str], ...] = ()
    before: Manifest | None = None
    held: tuple[str, ...] | None = None
    trusted: frozenset[str] | None = None
    hours: float | None = None
    proofs: tuple[RecordedProof, ...] = ()

    @cached_property
    def summary(self) -> VersionSummary:
        """The version's entry in the index."""
        return VersionSummary.read(summarize(self.manifest, self.digest, self.size))

    @cached_property
    def full_summary(self) -> VersionSummary:
        """The same of every artifact, those of a family's other members included."""
        return VersionSummary.read(summarize(self.manifest, self.digest, self.size, every=True))

    @cached_property
    def _operators(self) -> Mapping[Digest, tuple[Need, ...]]:
        sets = (operator_set(artifact) for artifact in self.manifest.artifacts)
        return {Digest.of(data): read_operator_set(data) for data in sets if data is not None}

    def operators(self, digest: Digest) -> tuple[Need, ...]:
        return self._operators[digest]

    def of_format(self, form: str) -> list[Artifact]:
        return [artifact for artifact in self.manifest.artifacts if artifact.format == form]

    def later(self, artifact: Artifact) -> list[Evaluation]:
        return [evaluation for evaluation in self.evaluations if evaluation.artifact == artifact.digest]

    def judged(self, rule: Rule) -> list[Artifact]:
        """The artifacts whose evidence a rule is about: those of the formats that it wants certified, or else all that
        were evaluated."""
        required = [artifact for form in rule.certified for artifact in self.of_format(form)]
        return required or [artifact for artifact in self.manifest.artifacts if _is_evaluated(artifact)]

    def fields(self, artifact: Artifact) -> dict[str, Any]:
        """The fields of an artifact in an expression; its state is the effective one."""
        recipe = self.manifest.recipe
        states = [evaluation.state for evaluation in self.later(artifact)]
        summary = replace(self.full_summary, profile=None if recipe is None else recipe.profile)
        summary = summary.after({artifact.digest: worst(states)} if states else {})
        return next(of_artifact(summary, item, size) for item, size in summary.downloads([artifact.path]))


Demand = Callable[[Rule, PromotionCandidate], Iterator[tuple[bool, str]]]
"""A check of one demand: yields for each of its parts if it is met, and the detail in words."""


def _certified(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """A refusal by a later evaluation wins over the certificate, and both are shown."""
    for form in rule.certified:
        artifacts = candidate.of_format(form)
        if not artifacts:
            yield False, f"there is no {form}"
        for artifact in artifacts:
            later = candidate.later(artifact)
            states = [evaluation.state for evaluation in later]
            stated = artifact.certification.state
            detail = f"{artifact.path} is {stated}"
            if states:
                state = worst(states)
                detail += f", a later evaluation says {state}{_suites_of(later, state)}"
            yield effective_state(stated, *states) == "certified", detail


def _suites_of(evaluations: list[Evaluation], state: str) -> str:
    """The suites on which evaluations came to a state, in words; "" if none names one."""
    suites = (evaluation.suite for evaluation in evaluations if evaluation.state == state)
    names = dict.fromkeys(suite.short for suite in suites if suite is not None)
    return f" on suite {', '.join(names)}" if names else ""


def _suites(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """Each suite certified each artifact, in the manifest or later, and refused none."""
    artifacts = candidate.judged(rule)
    if not artifacts:
        yield False, "nothing was evaluated"
    for artifact in artifacts:
        evidence = artifact.certification.evidence
        verdicts = [(evaluation.suite, evaluation.state) for evaluation in candidate.later(artifact)]
        if evidence is not None and evidence.suite is not None:
            verdicts.append((evidence.suite, artifact.certification.state))
        for suite in map(Digest.parse, rule.suites):
            states = {state for judge, state in verdicts if judge == suite}
            passed = "certified" in states and "refused" not in states
            detail = f"says {'certified' if passed else worst(states)}" if states else "never judged it"
            yield passed, f"{artifact.path}: suite {suite.short} {detail}"


def _signed_by(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    yield check_signers(rule, candidate.signers, candidate.trusted)


def check_signers(
    rule: Rule, signers: Collection[frozenset[str]], trusted: Collection[str] | None = None
) -> tuple[bool, str]:
    """Return True if as many of the keys that a rule names signed as it demands, and in words who did.

    `signers` has the names and ids of each key that signed, `trusted` those of all keys that the reader trusts.
    """
    signed = [name for name in rule.signed_by if any(name in names for names in signers)]
    keys = {names for names in signers if not names.isdisjoint(rule.signed_by)}
    missing = [name for name in rule.signed_by if name not in signed]
    detail = f"{len(keys)} of {rule.threshold} wanted"
    detail += f": {', '.join(signed)}" if signed else ""
    detail += f"; no trusted signature by {', '.join(missing)}" if len(keys) < rule.threshold else ""
    unknown = [name for name in missing if trusted is not None and name not in trusted]
    if len(keys) < rule.threshold and unknown:
        detail += f" (your trust file has no key {', '.join(unknown)})"
    return len(keys) >= rule.threshold, detail


def _max_recall_loss(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """The loss in the manifest must be known; a later evaluation counts if it measured the loss."""
    artifacts = [item for item in candidate.judged(rule) if rule.certified or _losses(item)]
    limit = rule.max_recall_loss or 0.0
    if not artifacts:
        yield False, "no loss of recall was measured"
    for artifact in artifacts:
        stated = [_reached(rule, *evaluation) for evaluation in _losses(artifact)] or [None]
        quantity = "the upper end of the interval of its loss" if rule.loss_interval else "its loss"
        for reached in stated:
            verdict = "is not known" if reached is None else f"is {reached:g}, at most {limit:g} is wanted"
            yield reached is not None and reached <= limit, f"{artifact.path}: {quantity} {verdict}"
        for evaluation in candidate.later(artifact):
            if evaluation.loss is not None:
                reached = _reached(rule, evaluation.loss, evaluation.interval)
                verdict = (
                    "without an interval"
                    if reached is None
                    else f"of {reached:g}, at most {limit:g} is wanted"
                )
                detail = f"{artifact.path}: a later evaluation found a loss {verdict}"
                yield reached is not None and reached <= limit, detail


def _reached(rule: Rule, loss: float | None, interval: tuple[float, float] | None) -> float | None:
    """The figure that counts: the point, or the upper end of the interval."""
    if not rule.loss_interval:
        return loss
    return interval[1] if interval else None


def _losses(artifact: Artifact) -> list[tuple[float | None, tuple[float, float] | None]]:
    return [(check.value, check.interval) for check in artifact.checks if check.name == LOSS]


def _is_evaluated(artifact: Artifact) -> bool:
    evidence = artifact.certification.evidence
    return bool(_losses(artifact)) or (evidence is not None and evidence.suite is not None)


def _where(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """Figures are those of the manifest; a later evaluation counts by its state."""
    assert rule.where is not None, "evaluate asks for stated demands only"
    artifacts = candidate.judged(rule)
    if not artifacts:
        yield False, "nothing was evaluated"
    for artifact in artifacts:
        is_met = rule.where.matches(candidate.fields(artifact))
        yield is_met, f"{artifact.path} {'meets' if is_met else 'does not meet'} {rule.where}"


def _synthetic(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """The suite must be stated to be real; an unstated origin does not count."""
    artifacts = candidate.judged(rule)
    if not artifacts:
        yield False, "nothing was evaluated"
    words = {True: "synthetic", False: "not synthetic", None: "not said to be real"}
    for artifact in artifacts:
        evidence = artifact.certification.evidence
        is_synthetic = evidence.synthetic if evidence else None
        yield is_synthetic is False, f"{artifact.path}: its suite is {words[is_synthetic]}"


def _max_size(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    summary = candidate.full_summary
    for form, most in sorted(rule.max_size.items()):
        for artifact, size in zip(summary.artifacts, summary.download_sizes, strict=True):
            if artifact.format == form:
                yield size <= most, f"{artifact.path} takes {size} bytes, at most {most} are wanted"


def _licenses(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    license_name = candidate.manifest.license
    yield (
        license_name is not None
        and comparable_license(license_name) in map(comparable_license, rule.licenses),
        f"it is {license_name or 'not stated'}, wanted {' or '.join(rule.licenses)}",
    )


def _devices(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    summary = candidate.summary
    stages = [(f" of {name}", [of_member(name)]) for name in summary.members] or [("", [])]
    for device, (part, member) in product(rule.devices, stages):
        ranking = judge(
            summary, [*member, *presence(candidate.held), *device.requirements(candidate.operators)]
        )
        name = device.name or f"ONNX Runtime {device.ort}"
        if ranking.best is None:
            yield False, f"{name} gets nothing{part}"
        else:
            yield True, f"{name} gets {summary.artifacts[ranking.best].path}"


def _contract(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """Apps in the field ask for these contracts: each is that of an artifact which is here."""
    for contract in map(Digest.parse, rule.contract):
        artifacts = [item for item in candidate.full_summary.artifacts if item.contract == contract]
        paths = [item.path for item in artifacts if candidate.held is None or item.path in candidate.held]
        verdict = f"is that of {', '.join(paths)}" if paths else "is that of no artifact"
        yield bool(paths), f"contract {contract.short} {verdict}"


def _breaking(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    if candidate.before is None:
        yield True, "there is no other version to compare with"
        return
    comparison = diff(candidate.before, candidate.manifest)
    kinds = sorted({change.kind for change in comparison.changes if change.severity == "breaking"})
    yield not kinds, f"breaking changes: {', '.join(kinds)}" if kinds else "an app can go on unchanged"


def _planned(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """Every change since the channel's last promotion is of a planned kind or severity. A cosmetic one always may be."""
    if candidate.before is None:
        yield True, "there is no other version to compare with"
        return
    comparison = diff(candidate.before, candidate.manifest)
    changes = [change for change in comparison.changes if change.severity != "cosmetic"]
    unplanned = sorted({c.kind for c in changes if not is_planned(rule.planned, c.kind, c.severity)})
    yield not unplanned, f"not planned: {', '.join(unplanned)}" if unplanned else "every change was planned"


def is_planned(planned: Sequence[str], kind: str, severity: str) -> bool:
    """True if one of these severities and patterns of kinds allows a change."""
    return severity in planned or any(fnmatchcase(kind, pattern) for pattern in planned)


def _faithful(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """A proof on record binds each smaller artifact to a float32 one of the version; a signed rule wants it signed."""
    artifacts = [item for form in rule.certified for item in candidate.of_format(form)]
    smaller = [item for item in artifacts or candidate.manifest.artifacts if item.precision != FULL_PRECISION]
    if not smaller:
        yield not rule.certified or bool(artifacts), "nothing is smaller than float32"
    for artifact in smaller:
        yield _is_proven(rule, candidate, artifact)


def _is_proven(rule: Rule, candidate: PromotionCandidate, artifact: Artifact) -> tuple[bool, str]:
    """The newest report that counts decides: a later one may take a verdict back."""
    lineage = candidate.manifest.ancestors(artifact)
    parents = {item.digest: item.path for item in lineage if item.precision == FULL_PRECISION}
    if not parents:
        return False, f"{artifact.path} has no float32 parent in the version"
    about = [
        proof
        for proof in candidate.proofs
        if proof.report.artifact == artifact.digest and proof.report.parent in parents
    ]
    if not about:
        return False, f"{artifact.path}: no proof is on record"
    about = [proof for proof in about if proof.report.is_current]
    if not about:
        return False, f"{artifact.path}: its proof follows other rules than this program's"
    counted = [proof for proof in about if not rule.signed_by or _is_signed(rule, proof)]
    if not counted:
        return False, f"{artifact.path}: its proof is not signed by {', '.join(rule.signed_by)}"
    report = counted[-1].report
    return report.verdict == "proven", f"{artifact.path} is {report.verdict} from {parents[report.parent]}"


def _is_signed(rule: Rule, proof: RecordedProof) -> bool:
    return any(set(rule.signed_by) & names for names in proof.signers)


def _min_hours(rule: Rule, candidate: PromotionCandidate) -> Iterator[tuple[bool, str]]:
    """The first version of a channel needs no rollout: no device has another one."""
    least = rule.min_hours or 0.0
    if candidate.hours is None:
        is_first = candidate.before is None
        yield (
            is_first,
            "there is no other version that it would replace" if is_first else "it was not rolled out",
        )
        return
    yield (
        candidate.hours >= least,
        f"it was rolled out for {candidate.hours:.1f} hours, at least {least:g} are wanted",
    )


DEMANDS: dict[str, Demand] = {
    "certified": _certified,
    "signed_by": _signed_by,
    "suites": _suites,
    "max_recall_loss": _max_recall_loss,
    "where": _where,
    "synthetic": _synthetic,
    "max_size": _max_size,
    "licenses": _licenses,
    "devices": _devices,
    "contract": _contract,
    "breaking": _breaking,
    "planned": _planned,
    "faithful": _faithful,
    "min_hours": _min_hours,
}
"""The demands of a rule, by their keys."""


def evaluate(rule: Rule, candidate: PromotionCandidate) -> tuple[GateFinding, ...]:
    """Hold a candidate against every demand of a rule."""
    demanded: dict[str, Any] = rule.to_json()
    return tuple(
        GateFinding(word, "pass" if holds else "fail", detail)
        for word, demand in DEMANDS.items()
        if word in demanded
        for holds, detail in demand(rule, candidate)
    )
