"""A rule of a policy: its demands on a version, and the check of each demand.

Each demand is a key of `Rule`, annotated with a check function. The function yields findings: True or False, and a
detail for people.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from inspect import isfunction
from itertools import chain, product
from typing import Annotated, Any, Literal, Self

from msgspec import Struct
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from onnxreg.schema.compare.manifests import Change, diff
from onnxreg.schema.core import units
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.document import Document, First, Items, JsonObject, Table, Text, WrittenDocument
from onnxreg.schema.core.errors import GateError, InputError, value_error
from onnxreg.schema.gates.statements import FULL_PRECISION, EvaluationDocument, RecordedProof
from onnxreg.schema.log.events import check_channel
from onnxreg.schema.log.state import VersionSummary, effective_state, operator_set, summarize, worst
from onnxreg.schema.manifest.manifest import Artifact, Check, Manifest
from onnxreg.schema.manifest.operators import Need, read_operator_set
from onnxreg.schema.manifest.vocabulary import LOSS, comparable_license
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.fields import ARTIFACT_FIELDS, artifact_values
from onnxreg.schema.query.resolve import judge, require_member, require_presence

Found = Iterator[tuple[bool, str]]
Demand = Callable[["Rule", "PromotionCandidate"], Found]
# The findings if no artifact was evaluated.
OF_NOTHING: Mapping[str, tuple[tuple[bool, str], ...]] = dict.fromkeys(
    ("suites", "where", "synthetic"), ((False, "nothing was evaluated"),)
)
NOTHING_BEFORE = "there is no other version to compare with"


class GateFinding(Document):
    """A result of `Rule.evaluate`: the verdict on one demand of a rule, and a detail for people."""

    requirement: Text
    verdict: Literal["pass", "fail"]
    detail: str


class PromotionEvidence(Document):
    """The record of a promotion: the version, the policy and the findings. Readers judge the version again, and do not
    trust the findings.
    """

    format: Literal["onnxreg-evidence"] = "onnxreg-evidence"
    format_version: First = 1
    name: Text
    channel: Text
    version: Text
    manifest: Digest
    policy: Digest
    before: Digest | None = None  # the manifest that was compared
    findings: Items[GateFinding]
    statements: Items[Digest]  # the attestations of the manifest

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)

    @property
    def ref(self) -> str:
        return f"{self.name}:{self.version}"

    @property
    def failed(self) -> tuple[GateFinding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == "fail")

    @property
    def faults(self) -> str:
        return "; ".join(f"{finding.requirement}: {finding.detail}" for finding in self.failed)

    def refusal(self, reasons: str = "") -> GateError:
        """Return the error for a version that does not meet the policy. The default reasons are the failed demands."""
        demands = dict.fromkeys(finding.requirement for finding in self.failed)
        reasons = reasons or f"it does not meet {', '.join(demands)}"
        hint = "the findings say what is missing; `reg policy show` shows what is demanded"
        if any(finding.requirement == "signed_by" for finding in self.failed):
            hint += "; `reg sign` signs a version, and `reg trust add` adds a key to your trust file"
        return GateError(f"{self.ref} may not become {self.channel}: {reasons}", hint)


class PromotionCandidate(Struct, frozen=True, dict=True):
    """A version that may be promoted to a channel, with the facts that `Rule.evaluate` tests."""

    manifest: Manifest
    digest: Digest
    size: int  # of the manifest, in bytes
    evaluations: tuple[EvaluationDocument, ...] = ()  # attested after publication
    signers: tuple[frozenset[str], ...] = ()  # of the manifest: names and id of each trusted key
    before: Manifest | None = None  # the manifest to compare with
    held: tuple[str, ...] | None = None  # paths of artifacts in the registry; None: all
    trusted: frozenset[str] | None = None  # names and ids of the reader's trusted keys, if read
    proofs: tuple[RecordedProof, ...] = ()

    @cached_property
    def summary(self) -> VersionSummary:
        """The summary of the version, as an index file stores it."""
        return summarize(self.manifest, self.digest, self.size)

    @cached_property
    def full_summary(self) -> VersionSummary:
        """The summary of the version with all artifacts. In contrast, an index file omits most members of a family."""
        return summarize(self.manifest, self.digest, self.size, every=True)

    @cached_property
    def operators(self) -> Mapping[Digest, tuple[Need, ...]]:
        sets = (operator_set(artifact) for artifact in self.manifest.artifacts)
        return {Digest.of(data): read_operator_set(data) for data in sets if data is not None}

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        return () if self.before is None else tuple(diff(self.before, self.manifest).changes)

    def of_formats(self, formats: Sequence[str]) -> list[Artifact]:
        return [item for form in formats for item in self.manifest.artifacts if item.format == form]

    def later(self, artifact: Artifact) -> list[EvaluationDocument]:
        return [evaluation for evaluation in self.evaluations if evaluation.artifact == artifact.digest]

    def evaluated(self, rule: "Rule") -> list[Artifact]:
        """Return the artifacts with a format that `rule.certified` lists. If there is no such artifact, return all
        artifacts that were evaluated.
        """
        return self.of_formats(rule.certified) or [
            item for item in self.manifest.artifacts if _losses(item) or item.suite is not None
        ]


def _certified(rule: "Rule", candidate: PromotionCandidate) -> Found:
    for form in rule.certified:
        artifacts = candidate.of_formats([form])
        if not artifacts:
            yield False, f"there is no {form}"
        for artifact in artifacts:
            later, own_state = candidate.later(artifact), artifact.certification.state
            detail = f"{artifact.path} is {own_state}"
            if later:
                state = worst(item.state for item in later)
                suites = dict.fromkeys(item.suite.short for item in later if item.state == state)
                detail += f", a later evaluation says {state} on suite {', '.join(suites)}"
            yield effective_state(own_state, *(item.state for item in later)) == "certified", detail


def _signed_by(rule: "Rule", candidate: PromotionCandidate) -> Found:
    signed = [name for name in rule.signed_by if any(name in names for names in candidate.signers)]
    count = sum(not names.isdisjoint(rule.signed_by) for names in candidate.signers)
    threshold = len(rule.signed_by) if rule.signatures is None else rule.signatures
    detail = f"{count} of {threshold} wanted"
    detail += f": {', '.join(signed)}" if signed else ""
    if count < threshold:
        missing = [name for name in rule.signed_by if name not in signed]
        unknown = [] if candidate.trusted is None else [x for x in missing if x not in candidate.trusted]
        detail += f"; no trusted signature by {', '.join(missing)}"
        detail += f" (your trust file has no key {', '.join(unknown)})" if unknown else ""
    yield count >= threshold, detail


def _suites(rule: "Rule", candidate: PromotionCandidate) -> Found:
    evaluated = candidate.evaluated(rule)
    for artifact, suite in product(
        candidate.of_formats(rule.certified) or candidate.manifest.artifacts, rule.suites
    ):
        states = {item.state for item in candidate.later(artifact) if item.suite == suite}
        if artifact.suite == suite:
            states.add(artifact.certification.state)
        if not states and artifact not in evaluated:
            continue
        is_met = "certified" in states and "refused" not in states
        verdict = f"says {'certified' if is_met else worst(states)}" if states else "never judged it"
        yield is_met, f"{artifact.path}: suite {suite.short} {verdict}"


def _max_recall_loss(rule: "Rule", candidate: PromotionCandidate) -> Found:
    """Check the loss of recall in the manifest and in later evaluations. If the manifest has no loss, fail."""

    def compare(check: Check | None, unknown: str, verb: str) -> tuple[bool, str]:
        loss = None if check is None else check.value
        if rule.loss_interval:
            loss = check.interval[1] if check is not None and check.interval else None
        if loss is None:
            return False, unknown
        return loss <= limit, f"{verb} {loss:g}, at most {limit:g} is wanted"

    limit = rule.max_recall_loss or 0.0
    quantity = "the upper end of the interval of its loss" if rule.loss_interval else "its loss"
    artifacts = [item for item in candidate.evaluated(rule) if rule.certified or _losses(item)]
    if not artifacts:
        yield False, "no loss of recall was measured"
    for artifact in artifacts:
        for check in _losses(artifact) or (None,):
            is_met, detail = compare(check, "is not known", "is")
            yield is_met, f"{artifact.path}: {quantity} {detail}"
    for artifact in candidate.of_formats(rule.certified) or candidate.manifest.artifacts:
        for check in chain.from_iterable(map(_losses, candidate.later(artifact))):
            if check.value is not None:
                is_met, detail = compare(check, "without an interval", "of")
                yield is_met, f"{artifact.path}: a later evaluation found a loss {detail}"


def _losses(item: Artifact | EvaluationDocument) -> list[Check]:
    return [check for check in item.checks if check.name == LOSS]


def _where(rule: "Rule", candidate: PromotionCandidate) -> Found:
    expression = parse(rule.where or "")
    for artifact in candidate.evaluated(rule):
        states = [evaluation.state for evaluation in candidate.later(artifact)]
        summary = candidate.full_summary.with_verdicts({artifact.digest: worst(states)} if states else {})
        fields = next(artifact_values(summary, *item) for item in summary.downloads([artifact.path]))
        is_met = expression.matches(fields)
        yield is_met, f"{artifact.path} {'meets' if is_met else 'does not meet'} {rule.where}"


def _synthetic(rule: "Rule", candidate: PromotionCandidate) -> Found:
    words = {True: "synthetic", False: "not synthetic", None: "not said to be real"}
    for artifact in candidate.evaluated(rule):
        evidence = artifact.certification.evidence
        is_synthetic = None if evidence is None else evidence.synthetic
        yield is_synthetic is False, f"{artifact.path}: its suite is {words[is_synthetic]}"


def _max_size(rule: "Rule", candidate: PromotionCandidate) -> Found:
    for form, most in sorted(rule.max_size.items()):
        if not candidate.of_formats([form]):
            yield True, f"there is no {form}"
        for artifact, size in candidate.full_summary.downloads(None):
            if artifact.format == form:
                yield size <= most, f"{artifact.path} takes {size} bytes, at most {most} are wanted"


def _licenses(rule: "Rule", candidate: PromotionCandidate) -> Found:
    name, choices = candidate.manifest.license, map(comparable_license, rule.licenses)
    is_met = name is not None and comparable_license(name) in choices
    yield is_met, f"it is {name or 'not stated'}, wanted {' or '.join(rule.licenses)}"


def _devices(rule: "Rule", candidate: PromotionCandidate) -> Found:
    summary = candidate.summary
    stages = [(f" of {name}", [partial(require_member, name)]) for name in summary.members] or [("", [])]
    for device, (part, member) in product(map(Device.read, rule.devices), stages):
        needs = device.requirements(candidate.operators.__getitem__)
        best = judge(summary, [*member, partial(require_presence, candidate.held), needs]).best
        answer = f"nothing{part}" if best is None else summary.artifacts[best].path
        yield best is not None, f"{device.name or f'ONNX Runtime {device.ort}'} gets {answer}"


def _contract(rule: "Rule", candidate: PromotionCandidate) -> Found:
    for digest in rule.contract:
        artifacts = [item for item in candidate.full_summary.artifacts if item.contract == digest]
        paths = [item.path for item in artifacts if candidate.held is None or item.path in candidate.held]
        yield bool(paths), f"contract {digest.short} is that of {', '.join(paths) or 'no artifact'}"


def _breaking(rule: "Rule", candidate: PromotionCandidate) -> Found:
    kinds = sorted({change.kind for change in candidate.changes if change.severity == "breaking"})
    detail = f"breaking changes: {', '.join(kinds)}" if kinds else "an app can go on unchanged"
    yield not kinds, NOTHING_BEFORE if candidate.before is None else detail


def _faithful(rule: "Rule", candidate: PromotionCandidate) -> Found:
    """Check each artifact that is not float32. Its newest proof must say that the weights are the rounded weights of a
    float32 ancestor. If the rule has `signed_by`, only proofs that one of these keys signed count.
    """
    artifacts = candidate.of_formats(rule.certified)
    smaller = [item for item in artifacts or candidate.manifest.artifacts if item.precision != FULL_PRECISION]
    if not smaller:
        yield not rule.certified or bool(artifacts), "nothing is smaller than float32"
    for artifact in smaller:
        lineage = candidate.manifest.ancestors(artifact)
        parents = {item.digest: item.path for item in lineage if item.precision == FULL_PRECISION}
        proofs = [item for item in candidate.proofs if item.report.artifact == artifact.digest]
        proofs = [item for item in proofs if item.report.parent in parents]
        current = [item for item in proofs if item.report.is_current]
        demanded = set(rule.signed_by)
        counted = [item for item in current if not demanded or demanded & set().union(*item.signers)]
        if not parents:
            yield False, f"{artifact.path} has no float32 parent in the version"
        elif not proofs:
            yield False, f"{artifact.path}: no proof is on record"
        elif not current:
            yield False, f"{artifact.path}: its proof follows other rules than this program's"
        elif not counted:
            yield False, f"{artifact.path}: its proof is not signed by {', '.join(rule.signed_by)}"
        else:
            report = counted[-1].report
            is_met = report.verdict == "proven"
            yield is_met, f"{artifact.path} is {report.verdict} from {parents[report.parent]}"


def _different(words: tuple[Any, ...]) -> tuple[Any, ...]:
    if not words or len(set(words)) < len(words) or "" in words:
        raise ValueError("not a list of different words, at least one")
    return words


def _check_where(text: str) -> str:
    # Fields of the version, such as `newest`, are refused: the promotion itself changes them.
    for name in sorted(parse(text).fields - {*ARTIFACT_FIELDS}):
        raise InputError(f"{name} is not a field of an artifact: these are {', '.join(ARTIFACT_FIELDS)}")
    return text


def _check_device(value: str | JsonObject) -> str | JsonObject:
    Device.read(value)
    return value


Words = Annotated[tuple[str, ...], AfterValidator(_different)]
Digests = Annotated[tuple[Digest, ...], AfterValidator(_different)]
Where = Annotated[str, AfterValidator(value_error(_check_where))]
Devices = tuple[Annotated[str | JsonObject, AfterValidator(value_error(_check_device))], ...]
Sizes = Table[Annotated[int, BeforeValidator(value_error(units.size))]]


class Rule(WrittenDocument):
    """The demands on a channel of some models (docs/gates.md). An absent key demands nothing."""

    channel: Annotated[str, AfterValidator(value_error(check_channel))]
    models: Words = ("*",)
    certified: Annotated[Words, _certified] = ()
    signed_by: Annotated[Words, _signed_by] = ()
    signatures: Annotated[int, Field(gt=0)] | None = None
    suites: Annotated[Digests, _suites] = ()
    max_recall_loss: Annotated[float | None, Field(ge=0, le=1), _max_recall_loss] = None
    loss_interval: bool = False
    where: Annotated[Where | None, _where] = None
    synthetic: Annotated[Literal[False] | None, _synthetic] = None
    max_size: Annotated[Sizes, _max_size] = Field(default_factory=dict)
    licenses: Annotated[Words, _licenses] = ()
    devices: Annotated[Devices, _devices] = ()
    contract: Annotated[Digests, _contract] = ()
    breaking: Annotated[Literal[False] | None, _breaking] = None
    faithful: Annotated[Literal[True] | None, _faithful] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.checks:
            raise ValueError(f"the rule for {self.channel} demands nothing")
        if self.signatures is not None and self.signatures > len(self.signed_by):
            raise ValueError(f"signatures is {self.signatures}, but signed_by has {len(self.signed_by)} keys")
        if self.loss_interval and self.max_recall_loss is None:
            raise ValueError("loss_interval says what max_recall_loss is held against, which is missing")
        return self

    @property
    def checks(self) -> dict[str, Demand]:
        return {key: check for key, check in DEMANDS.items() if getattr(self, key) not in (None, (), {})}

    def covers(self, model: str, channel: str) -> bool:
        return channel == self.channel and any(fnmatchcase(model, pattern) for pattern in self.models)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON, without absent demands."""
        demanded = self.model_dump(mode="json", exclude_defaults=True)
        return {"channel": self.channel, "models": list(self.models), **demanded}

    def evaluate(
        self, candidate: PromotionCandidate, demands: Collection[str] | None = None
    ) -> tuple[GateFinding, ...]:
        """Check a candidate against the demands with these keys. None means every demand."""
        return tuple(
            GateFinding(requirement=key, verdict="pass" if is_met else "fail", detail=detail)
            for key, check in self.checks.items()
            if demands is None or key in demands
            for is_met, detail in [*check(self, candidate)] or OF_NOTHING.get(key, ())
        )


# key -> check function
DEMANDS: dict[str, Demand] = {
    key: check for key, field in Rule.model_fields.items() for check in field.metadata if isfunction(check)
}
