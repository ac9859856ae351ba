"""Which artifact of a version answers a query. Pure: summaries in, one choice and the reasons against the rest out."""

from collections.abc import Collection
from dataclasses import dataclass

from onnxreg.schema.summary import ArtifactSummary

STATES = ("certified", "unknown", "refused")
"""From best to worst; a refused artifact is chosen only where nothing else answers."""

PREFERENCE = ("onnx-int8", "ort-android", "onnx-android", "ort", "onnx")
"""The order of formats where the query names none; formats that are not listed come last, by name."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for. `formats` are in order of preference; empty means any, in the order of `PREFERENCE`."""

    formats: tuple[str, ...] = ()
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an artifact does not answer: a code for machines, a detail for people."""

    artifact: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Choice:
    artifact: ArtifactSummary | None
    rejected: tuple[Rejection, ...]


def choose(
    artifacts: tuple[ArtifactSummary, ...], query: Query, held: Collection[str] | None = None
) -> Choice:
    """The best artifact: certified first, then by preference of formats, then the smallest, then by path.

    Every other artifact is rejected with a code: `format`, `precision`, `not-held`, or `ranked-lower`. `held` are the
    paths of the artifacts that are there to be had, where these are not all.
    """
    rejected: list[Rejection] = []
    fitting: list[ArtifactSummary] = []
    for artifact in artifacts:
        reason = _unfit(artifact, query) or _absent(artifact, held)
        if reason is None:
            fitting.append(artifact)
        else:
            rejected.append(Rejection(artifact.path, *reason))
    fitting.sort(key=lambda artifact: _rank(artifact, query.formats or PREFERENCE))
    for other in fitting[1:]:
        rejected.append(Rejection(other.path, "ranked-lower", f"{fitting[0].path} ranks higher"))
    return Choice(fitting[0] if fitting else None, tuple(rejected))


def _unfit(artifact: ArtifactSummary, query: Query) -> tuple[str, str] | None:
    if query.formats and artifact.format not in query.formats:
        return "format", f"is {artifact.format}, wanted {' or '.join(query.formats)}"
    if query.precision is not None and artifact.precision != query.precision:
        return "precision", f"is {artifact.precision}, wanted {query.precision}"
    return None


def _absent(artifact: ArtifactSummary, held: Collection[str] | None) -> tuple[str, str] | None:
    if held is None or artifact.path in held:
        return None
    return "not-held", "is not held here"


def _rank(artifact: ArtifactSummary, preference: tuple[str, ...]) -> tuple[int, int, str, int, str]:
    place = preference.index(artifact.format) if artifact.format in preference else len(preference)
    return (
        STATES.index(artifact.state) if artifact.state in STATES else 1,
        place,
        artifact.format if place == len(preference) else "",
        artifact.download_size,
        artifact.path,
    )
