"""Resolve: choose one artifact of a model, given the model's state.

Pure: callers pass in the data beyond the state line, such as summaries of older versions and operator sets.
`docs/resolve.md` is the specification. Clients in other languages also run the test vectors in `tests/vectors/resolve`.

A `ResolveRequest` is the question as a document `{"ref", "device"?, ...}`, with the options of `reg resolve` as keys: all
keys except `ref` and `device` are keys of a query (`Query.read`). The device is the name of a preset or a device document.
An unknown key is refused, because an answer that ignored a condition would be wrong.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.log.state import ArtifactSummary, State, VersionEntry, VersionSummary
from onnxreg.schema.query.fields import FieldValues, of_artifact, of_version
from onnxreg.schema.query.requirements import CODES, Query, Ranking, judge, presence

if TYPE_CHECKING:
    from onnxreg.schema.query.device import Device, OperatorSets

MAX_NEAREST = 3
"""The most near misses that an error names."""


class ResolveRequest(NamedTuple):
    """A question: a model or version, the conditions on an artifact, and the device."""

    ref: Ref
    query: Query
    device: "Device | None" = None

    @classmethod
    def read(cls, value: Any) -> "ResolveRequest":
        """Read a request. Raise InputError if it is malformed. A condition that is null counts as absent."""
        if not isinstance(value, dict) or not isinstance(value.get("ref"), str):
            raise InputError("a request is an object with a ref", 'write {"ref": "acme/pii-small"}')
        device, conditions = value.get("device"), value.copy()
        conditions.pop("device", None)
        ref = Ref.parse(conditions.pop("ref"))
        if device is not None:
            from onnxreg.schema.query.device import Device, preset

            device = preset(device) if isinstance(device, str) else Device.read(device)
        return cls(ref, Query.read(conditions), device)

    def to_json(self) -> dict[str, Any]:
        """The request as a document, with the whole device in place of a preset, so that later presets cannot change it."""
        device = {} if self.device is None else {"device": self.device.to_json()}
        return {"ref": str(self.ref), **self.query.to_json(), **device}


class VersionCandidate(NamedTuple):
    """A version whose artifacts are candidates."""

    version: Version
    entry: VersionEntry
    summary: VersionSummary


class Rejection(NamedTuple):
    """The reason why an artifact is not the answer: a code for machines, a detail for people.

    `artifact` is the artifact's path; None if the whole version is not a candidate.
    """

    version: Version
    artifact: str | None
    code: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"version": str(self.version)}

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.version), self.artifact, self.detail)))


class ResolveOutcome(NamedTuple):
    """The best artifact, if an artifact meets the conditions, and all candidates that were considered.

    `candidate` is the version of the best artifact: the last version in `looked_at`. `size` is the download in bytes.
    """

    candidate: VersionCandidate | None
    artifact: ArtifactSummary | None
    size: int
    looked_at: tuple[tuple[VersionCandidate, Ranking], ...] = ()
    passed_over: tuple[Rejection, ...] = ()

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """A rejection for each candidate that was not chosen: newest version first, then in the manifest's order."""
        rejections = [*self._misses(), *self.passed_over]
        return tuple(sorted(rejections, key=lambda rejection: rejection.version.precedence, reverse=True))

    def _misses(self) -> Iterator[Rejection]:
        """A rejection for each artifact of `looked_at` that was not chosen."""
        for candidate, ranking in self.looked_at:
            for artifact, miss in zip(candidate.summary.artifacts, ranking.misses, strict=True):
                if miss is not None:
                    yield Rejection(candidate.version, artifact.path, *miss)

    def nearest(self) -> str:
        """The rejections of the artifacts that met the most requirements, in words."""
        misses = sorted(self._misses(), key=lambda rejection: -CODES.index(rejection.code))
        return "; ".join(map(str, misses[:MAX_NEAREST]))


def rolled_out_to(
    state: State, tag: str | None, device: "Device | None", seed: str | None, digest: Digest | None = None
) -> list[Version]:
    """Return the version that a rollout of the channel offers to the device; empty if the device does not take part, or
    if the version has another manifest than `digest`. This version comes before the channel's own version.
    """
    rollout = state.rollouts.get(tag or "")
    if rollout is None or seed is None or digest not in (None, rollout.manifest):
        return []
    from onnxreg.schema.query.cohort import admits

    return [rollout.to] if admits(rollout, seed, device) else []


def releases(state: State) -> list[Version]:
    """The versions that a ref without a tag may mean, the newest first."""
    return [version for version in state.newest if not version.is_prerelease]


def resolve_among(
    state: State,
    candidates: Iterable[VersionCandidate],
    query: Query,
    device: "Device | None",
    operator_sets: "OperatorSets",
    any_version: bool = False,
) -> ResolveOutcome:
    """Find the best artifact of the first version that has a matching artifact. `any_version`: the ref had no tag.

    The iterator of candidates is read only up to that version.
    """
    looked_at = []
    answer: tuple[VersionCandidate | None, ArtifactSummary | None, int] = None, None, 0
    of_device = [device.requirements(operator_sets, query.context)] if device else []
    is_slow = device.is_slow if device else lambda artifact: False
    for candidate in candidates:
        version, entry, summary = candidate

        status = {} if query.where is None else of_version(state, version, entry)
        row = partial(_row, status, summary)
        requirements = [query.requirements(row), presence(entry.held), *of_device]
        ranking = judge(summary, requirements, query.formats, query.precision, is_slow)
        looked_at.append((candidate, ranking))
        if ranking.best is not None:
            answer = candidate, summary.artifacts[ranking.best], summary.download_sizes[ranking.best]
            break
    passed_over = []
    lowest = looked_at[-1][0].version.precedence if looked_at else ()
    for version, entry in state.versions.items() if any_version else ():
        code = withheld(version, entry)
        if code and not entry.dropped and version.precedence > lowest:
            passed_over.append(Rejection(version, None, code, WITHHELD[code]))
    return ResolveOutcome(*answer, tuple(looked_at), tuple(passed_over))


def _row(
    status: FieldValues, summary: VersionSummary, artifact: ArtifactSummary, download: int
) -> FieldValues:
    """The fields of an artifact that `where` tests."""
    return {**status, **of_artifact(summary, artifact, download)}


WITHHELD = {
    "yanked": "is yanked",
    "prerelease": "is a pre-release, which only its own tag or a channel means",
    "expired": "has expired: its files are no longer here",
    "purged": "was taken down",
}
"""The reasons why a version is a candidate only if it is named: code and words."""


def withheld(version: Version, entry: VersionEntry) -> str:
    """The code of the reason why a version is a candidate only if it is named; "" if it is always a candidate."""
    if entry.gone is not None:
        return entry.gone.how
    if entry.yanked:
        return "yanked"
    return "prerelease" if version.is_prerelease else ""
