"""What an artifact must be, and which of those that are it is the best. Pure: summaries in, a choice out.

A query is a list of requirements, tested in order; a device adds its own (`device.py`). The first that an artifact does
not meet is why it is rejected. `docs/resolve.md` is the specification.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.errors import InputError
from onnxreg.schema.reading import flag, items, mapping, number, optional, text
from onnxreg.schema.summary import ArtifactSummary, VersionSummary

if TYPE_CHECKING:
    from onnxreg.schema.where import Expression

STATES = ("certified", "unknown", "refused")
"""From best to worst; a refused artifact is chosen only where nothing else of its version answers."""

PREFERENCE = ("onnx-int8", "ort-android", "onnx-android", "ort", "onnx")
"""The order of formats where the query names none; formats that are not listed come last, by name."""

KEYS = ("formats", "precision", "certified", "max_size", "min_recall", "where")


class Requirement(NamedTuple):
    """A code for machines, and what is wrong with an artifact in words for people; "" where nothing is.

    The second argument of `problem` is the download size: the bytes of everything that the artifact needs.
    """

    code: str
    problem: Callable[[ArtifactSummary, int], str]


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for. `formats` are in order of preference; empty means any, in the order of `PREFERENCE`.

    `max_size` limits the download in bytes; `min_recall` maps labels to the least recall that must have been measured.
    """

    formats: tuple[str, ...] = ()
    precision: str | None = None
    certified: bool = False
    max_size: int | None = None
    min_recall: dict[str, float] = field(default_factory=dict)
    where: "Expression | None" = None

    @classmethod
    def read(cls, value: Any) -> "Query":
        """Read a query document, every key of which may be left out. InputError where it is none."""
        from onnxreg.schema.sizes import size

        found = {key: item for key, item in mapping(value).items() if item is not None}
        for key in found:
            if key not in KEYS:
                raise InputError(f"a query has no {key[:40]!r}", f"its keys are {', '.join(KEYS)}")
        recalls = mapping(found.get("min_recall", {}))
        return cls(
            items(found.get("formats", []), text),
            optional(found.get("precision"), text),
            flag(found.get("certified", False)),
            optional(found.get("max_size"), size),
            {label: share(least) for label, least in recalls.items()},
            optional(found.get("where"), _expression),
        )

    def requirements(self, candidate: Callable[[ArtifactSummary], dict[str, Any]]) -> list[Requirement]:
        """What an artifact must meet, in the order in which it is tested. `candidate` gives it as `where` sees it."""
        found: list[Requirement] = []
        if self.formats:
            found.append(Requirement("format", self._format_problem))
        if self.precision is not None:
            found.append(Requirement("precision", self._precision_problem))
        if self.certified:
            found.append(Requirement("not-certified", _certified_problem))
        if self.max_size is not None:
            found.append(Requirement("too-large", self._size_problem))
        if self.min_recall:
            found.append(Requirement("recall", self._recall_problem))
        if self.where is not None:
            found.append(Requirement("where", _where_problem(self.where, candidate)))
        return found

    def _format_problem(self, artifact: ArtifactSummary, _: int) -> str:
        if artifact.format in self.formats:
            return ""
        return f"is {artifact.format}, wanted {' or '.join(self.formats)}"

    def _precision_problem(self, artifact: ArtifactSummary, _: int) -> str:
        return (
            ""
            if artifact.precision == self.precision
            else f"is {artifact.precision}, wanted {self.precision}"
        )

    def _size_problem(self, _: ArtifactSummary, download: int) -> str:
        if self.max_size is None or download <= self.max_size:
            return ""
        return f"takes {download} bytes to download, at most {self.max_size} are wanted"

    def _recall_problem(self, artifact: ArtifactSummary, _: int) -> str:
        for label, least in self.min_recall.items():
            measured = artifact.recall.get(label)
            if measured is None:
                return f"has no measured recall of {label}"
            if measured < least:
                return f"has a recall of {label} of {measured:g}, wanted {least:g}"
        return ""


def _certified_problem(artifact: ArtifactSummary, _: int) -> str:
    return "" if artifact.state == "certified" else f"is {artifact.state}"


def _where_problem(
    where: "Expression", candidate: Callable[[ArtifactSummary], dict[str, Any]]
) -> Callable[[ArtifactSummary, int], str]:
    return lambda artifact, _: "" if where.matches(candidate(artifact)) else f"does not meet {where}"


def share(value: Any) -> float:
    """A number from 0 to 1."""
    found = number(value)
    if not 0 <= found <= 1:
        raise InputError(f"not a share: {str(value)[:40]!r}", "write a number from 0 to 1, such as 0.95")
    return found


def _expression(value: Any) -> "Expression":
    from onnxreg.schema.where import parse

    return parse(text(value))


class Verdict(NamedTuple):
    """An artifact of a version, how much there is to download for it, and how many requirements it met.

    `failed` is the first that it did not meet, None where it met all.
    """

    artifact: ArtifactSummary
    size: int
    met: int
    failed: Requirement | None


def judge(summary: VersionSummary, requirements: Sequence[Requirement]) -> list[Verdict]:
    """Each artifact of a version, in the manifest's order, tested up to the first requirement that it does not meet."""
    verdicts = []
    count = len(requirements)
    for artifact, size in zip(summary.artifacts, summary.download_sizes, strict=True):
        met, failed = count, None
        for place, requirement in enumerate(requirements):
            if requirement.problem(artifact, size):
                met, failed = place, requirement
                break
        verdicts.append(Verdict(artifact, size, met, failed))
    return verdicts


def best(verdicts: Iterable[Verdict], formats: Sequence[str] = ()) -> Verdict | None:
    """Of those that met everything: certified first, then the preferred format, then the smallest download.

    Of equals the one that the manifest lists first. `formats` are in order of preference; without them `PREFERENCE`.
    """
    preference = formats or PREFERENCE

    def rank(verdict: Verdict) -> tuple[int, int, str, int]:
        artifact = verdict.artifact
        listed = artifact.format in preference
        return (
            STATES.index(artifact.state) if artifact.state in STATES else 1,
            preference.index(artifact.format) if listed else len(preference),
            "" if listed else artifact.format,
            verdict.size,
        )

    return min((verdict for verdict in verdicts if verdict.failed is None), key=rank, default=None)
