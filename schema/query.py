"""What an artifact must be, and which of those that are it is the best. Pure: summaries in, a choice out.

A query is a list of requirements, tested in order; a device adds its own (`device.py`). The first that an artifact does
not meet is why it is rejected. `docs/resolve.md` is the specification.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
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

    The second argument of `problem` is the download size: the bytes of everything that the artifact needs. `of_kind`:
    it looks at nothing but what `ArtifactSummary.kind` has, so that artifacts of one kind are judged once.
    """

    code: str
    problem: Callable[[ArtifactSummary, int], str]
    of_kind: bool = False


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

    def to_json(self) -> dict[str, Any]:
        """What `read` reads, without what is not asked for."""
        value = {
            "formats": list(self.formats),
            "precision": self.precision,
            "certified": self.certified,
            "max_size": self.max_size,
            "min_recall": self.min_recall,
            "where": None if self.where is None else str(self.where),
        }
        return {key: item for key, item in value.items() if item not in ([], None, False, {})}

    def requirements(self, candidate: Callable[[ArtifactSummary], dict[str, Any]]) -> list[Requirement]:
        """What an artifact must meet, in the order in which it is tested. `candidate` gives it as `where` sees it."""
        found: list[Requirement] = []
        if self.formats:
            found.append(Requirement("format", self._format_problem, True))
        if self.precision is not None:
            found.append(Requirement("precision", self._precision_problem, True))
        if self.certified:
            found.append(Requirement("not-certified", _certified_problem, True))
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


@dataclass(frozen=True)
class Judgement:
    """The artifacts of a version by their place: the first requirement that each does not meet, and the best of the rest.

    `failed` has the place of that requirement, None for an artifact that meets all; `best` is None where none does.
    """

    summary: VersionSummary
    requirements: Sequence[Requirement]
    failed: Sequence[int | None]
    best: int | None


def judge(
    summary: VersionSummary, requirements: Sequence[Requirement], formats: Sequence[str] = ()
) -> Judgement:
    """Test each artifact of a version up to the first requirement that it does not meet, and rank those that meet all.

    `formats` are in order of preference; without them `PREFERENCE`.
    """
    failed: list[int | None] = [None] * len(summary.artifacts)
    left = list(range(len(failed)))
    for of_kind, run in groupby(enumerate(requirements), key=lambda each: each[1].of_kind):
        faults = _faults(summary, left, list(run), of_kind)
        for place, fault in zip(left, faults, strict=True):
            failed[place] = fault
        left = [place for place, fault in zip(left, faults, strict=True) if fault is None]
    return Judgement(summary, requirements, failed, _best(summary, left, formats or PREFERENCE))


def _faults(
    summary: VersionSummary, places: Sequence[int], run: Sequence[tuple[int, Requirement]], of_kind: bool
) -> list[int | None]:
    """For each of these artifacts the first requirement of a run that it does not meet."""
    artifacts, sizes, kinds = summary.artifacts, summary.download_sizes, summary.kinds

    def fault(place: int) -> int | None:
        artifact, size = artifacts[place], sizes[place]
        for index, requirement in run:
            if requirement.problem(artifact, size):
                return index
        return None

    if not of_kind:
        return [fault(place) for place in places]
    known = {kind: fault(kind) for kind in {kinds[place] for place in places}}
    return [known[kinds[place]] for place in places]


def _best(summary: VersionSummary, places: Sequence[int], preference: Sequence[str]) -> int | None:
    """Of these: certified first, then the preferred format, then the smallest download, then the one listed first."""

    def rank(artifact: ArtifactSummary) -> tuple[int, int, str]:
        listed = artifact.format in preference
        return (
            STATES.index(artifact.state) if artifact.state in STATES else 1,
            preference.index(artifact.format) if listed else len(preference),
            "" if listed else artifact.format,
        )

    kinds = summary.kinds
    ranks = {kind: rank(summary.artifacts[kind]) for kind in {kinds[place] for place in places}}
    highest = min(ranks.values(), default=None)
    equals = (place for place in places if ranks[kinds[place]] == highest)
    return min(equals, key=summary.download_sizes.__getitem__, default=None)
