"""Resolve: choose one artifact of a model by its state.

Pure: callers hand in what is read beside the state line, such as summaries of older versions and operator sets.
`docs/resolve.md` is the specification. Its vectors in `tests/vectors/resolve` are run in other languages too.

A `ResolveRequest` is the question as a document: `{"ref", "device"?, ...}`, like the options of `reg resolve`. Beside
`ref` and `device` its keys are those of a query (`Query.read`). The device is the name of a preset or a device
document. A key that this build does not know is refused: an answer that left out a condition would be wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import mapping, optional, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.state import State, VersionEntry, version_of
from onnxreg.schema.log.summary import ArtifactSummary, VersionSummary
from onnxreg.schema.query.requirements import Query, Ranking, judge, presence

if TYPE_CHECKING:
    from onnxreg.schema.query.device import Device, OperatorSets
    from onnxreg.schema.query.expression.fields import FieldValues

MAX_NEAREST = 3
"""The most near misses that an error names."""


@dataclass(frozen=True, slots=True)
class ResolveRequest:
    """A question: a model or version, the conditions on its artifact, and the device."""

    ref: Ref
    query: Query
    device: "Device | None" = None

    @classmethod
    def decode(cls, data: bytes) -> "ResolveRequest":
        """Read the bytes of a request; see `read`."""
        return cls.read(canonical.decode(data, "the request"))

    @classmethod
    def read(cls, value: Any) -> "ResolveRequest":
        """Read a request; InputError if it is malformed. A condition that is null is as good as absent."""
        value = mapping(value)
        ref = Ref.parse(text(required(value, "ref")))
        device = optional(value.get("device"), _device)
        conditions = {key: item for key, item in value.items() if key not in ("ref", "device")}
        return cls(ref, Query.read(conditions), device)

    def to_json(self) -> dict[str, Any]:
        """The document, with the device in full, so that a later table of presets cannot change the question."""
        device = {} if self.device is None else {"device": self.device.to_json()}
        return {"ref": str(self.ref), **self.query.to_json(), **device}


def _device(value: Any) -> "Device":
    if isinstance(value, str):
        from onnxreg.schema.query.device import preset

        return preset(value)
    from onnxreg.schema.query.device import Device

    return Device.read(value)


class VersionCandidate(NamedTuple):
    """One version whose artifacts are candidates."""

    version: Version
    entry: VersionEntry
    summary: VersionSummary


class Rejection(NamedTuple):
    """The reason why an artifact is not the answer: a code for machines, a detail for people.

    `artifact` is its path; None if the whole version is not a candidate.
    """

    version: Version
    artifact: str | None
    code: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        return {
            "artifact": self.artifact,
            "version": str(self.version),
            "code": self.code,
            "detail": self.detail,
        }

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.version), self.artifact, self.detail)))


class ResolveOutcome(NamedTuple):
    """The best artifact, if there is one, and all candidates that were considered.

    `candidate` is the version that answers, and the last of those looked at.
    """

    candidate: VersionCandidate | None
    artifact: ArtifactSummary | None
    size: int
    looked_at: tuple[tuple[VersionCandidate, Ranking], ...] = ()
    passed_over: tuple[Rejection, ...] = ()

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """Every candidate but the chosen one, newest version first, then in the manifest's order."""
        rejections = [*(rejection for rejection, _ in self._misses()), *self.passed_over]
        return tuple(sorted(rejections, key=lambda rejection: rejection.version.precedence, reverse=True))

    def _misses(self) -> Iterator[tuple[Rejection, int]]:
        """Each artifact that was not chosen, and how many requirements it met."""
        for candidate, ranking in self.looked_at:
            for artifact, miss in zip(candidate.summary.artifacts, ranking.misses, strict=True):
                if miss is not None:
                    yield Rejection(candidate.version, artifact.path, miss.code, miss.detail), miss.met

    def nearest(self) -> str:
        """The misses that came furthest, in words."""
        misses = sorted(self._misses(), key=lambda miss: -miss[1])
        return "; ".join(str(rejection) for rejection, _ in misses[:MAX_NEAREST])


def no_operator_sets(digest: Digest) -> Any:
    """The default: raise NotFoundError if a device needs an operator set."""
    raise NotFoundError(f"the operator set {digest} was not handed in")


def resolve_in(
    state: State,
    query: Query | None = None,
    device: "Device | None" = None,
    operator_sets: "OperatorSets" = no_operator_sets,
    tag: str | None = None,
    seed: str | None = None,
) -> ResolveOutcome:
    """Resolve by a state line alone. NotFoundError if it has no such version or channel, or not its summary.

    `seed`: the device's private random text, by which it takes part in rollouts; see `Rollout`.
    """
    versions = releases(state)
    if tag is not None:
        versions = [*rolled_out_to(state, tag, device, seed), version_of(state, tag)]
    candidates = (_candidate(state, version) for version in versions)
    return resolve_among(state, candidates, query or Query(), device, operator_sets, tag is None)


def _candidate(state: State, version: Version) -> VersionCandidate:
    entry = state.versions.get(version)
    if entry is not None and not entry.usable and not entry.dropped:
        raise NotFoundError(f"{state.name}:{version} {_WORDS[_withheld(version, entry)]}")
    summary = state.effective_summary(version)
    if entry is None or summary is None:
        raise NotFoundError(f"the state line of {state.name} does not hold {version}")
    return VersionCandidate(version, entry, summary)


def rolled_out_to(
    state: State, tag: str | None, device: "Device | None", seed: str | None, digest: Digest | None = None
) -> list[Version]:
    """List the version of a channel's rollout, if the device takes part, and it has the `digest` that is asked for.

    It comes before the channel's own version.
    """
    rollout = state.rollouts.get(tag or "")
    if rollout is None or seed is None or digest not in (None, rollout.manifest):
        return []
    from onnxreg.schema.query.cohort import admits

    return [rollout.to] if admits(rollout, seed, device) else []


def releases(state: State) -> list[Version]:
    """The versions that a name without a tag may mean, newest first."""
    return [version for version in state.newest if not version.is_prerelease]


def resolve_among(
    state: State,
    candidates: Iterable[VersionCandidate],
    query: Query,
    device: "Device | None" = None,
    operator_sets: "OperatorSets" = no_operator_sets,
    any_version: bool = False,
) -> ResolveOutcome:
    """Return the best artifact of the first version with a matching one. `any_version`: no tag was given.

    Versions are read one by one, up to the one that answers.
    """
    looked_at = []
    answer: tuple[VersionCandidate | None, ArtifactSummary | None, int] = None, None, 0
    of_device = device.requirements(operator_sets, query.context) if device else []
    for candidate in candidates:
        requirements = [
            *query.requirements(_row(state, candidate)),
            *presence(candidate.entry.held),
            *of_device,
        ]
        ranking = judge(candidate.summary, requirements, query.formats, query.precision)
        looked_at.append((candidate, ranking))
        if ranking.best is not None:
            best = ranking.best
            answer = candidate, candidate.summary.artifacts[best], candidate.summary.download_sizes[best]
            break
    lowest = looked_at[-1][0].version if looked_at else None
    passed_over = _passed_over(state, lowest) if any_version else ()
    return ResolveOutcome(*answer, tuple(looked_at), passed_over)


def _passed_over(state: State, lowest: Version | None) -> tuple[Rejection, ...]:
    """List the versions that a name without a tag skips, above the last candidate, as far as the state has them."""
    rejections = []
    for version, entry in state.versions.items():
        code = _withheld(version, entry)
        if code and not entry.dropped and (lowest is None or version.precedence > lowest.precedence):
            rejections.append(Rejection(version, None, code, _WORDS[code]))
    return tuple(rejections)


_WORDS = {
    "yanked": "is yanked",
    "prerelease": "is a pre-release, which only its own tag or a channel means",
    "expired": "has expired: its files are no longer here",
    "purged": "was taken down",
}


def _withheld(version: Version, entry: VersionEntry) -> str:
    """The reason that a version is not a candidate unless it is named; "" if it is one."""
    if entry.gone is not None:
        return entry.gone.how
    if entry.yanked:
        return "yanked"
    return "prerelease" if version.is_prerelease else ""


def _row(state: State, candidate: VersionCandidate) -> "Callable[[ArtifactSummary, int], FieldValues]":
    """Makes the fields of an artifact, as `where` tests them."""

    @cache
    def status() -> dict[str, Any]:
        from onnxreg.schema.query.expression.fields import of_version

        return of_version(state, candidate.version, candidate.entry)

    def row(artifact: ArtifactSummary, download: int) -> "FieldValues":
        from onnxreg.schema.query.expression.fields import of_artifact

        return status() | of_artifact(candidate.summary, artifact, download)

    return row
