"""Requirements on artifacts, and the choice of the best artifact that meets them. Pure: summaries in, a choice out.

A query is a list of requirements, tested in order; a device adds its own (`device.py`). The first that an artifact does
not meet is why it is rejected. `docs/resolve.md` is the specification.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core.codec import flag, items, mapping, number, optional, text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.log.artifact_state import STATES
from onnxreg.schema.log.summary import ArtifactSummary, VersionSummary

if TYPE_CHECKING:
    from onnxreg.schema.query.expression.evaluate import Columns
    from onnxreg.schema.query.expression.parser import Expression


def worst(states: Iterable[str]) -> str:
    """Return the worst of several verdicts on the same bytes: a refusal wins."""
    return max(states, key=STATES.index)


FLOATS = ("float32", "float16", "bfloat16")
"""The precisions that need no proof: nothing was quantized."""
FORMAT_PREFERENCE = ("onnx-int8", "ort-android", "onnx-android", "ort", "onnx")
"""The order of formats if the query names none; formats that are not listed come last, by name."""

Places = Sequence[int]
"""Artifacts by their place in the summary, in rising order."""

UNMEASURED = -1.0
"""Below every share."""

MAX_CONDITIONS = 100
"""Formats, and labels with a least recall, of a query document."""

KEYS = ("formats", "precision", "certified", "max_size", "min_recall", "where", "member")


class Requirement(NamedTuple):
    """A code for machines, and what is wrong with an artifact in words for people.

    The second argument of `problem` is the download size: the bytes of everything that the artifact needs. Without
    `select`, `problem` decides: it is "" if nothing is wrong, and looks at nothing but what `ArtifactSummary.kind`
    has, so that artifacts of one kind are judged once. With it, `select` decides for many at once, and `problem` is
    asked only about those that were left out, when somebody wants to know why.
    """

    code: str
    problem: Callable[[ArtifactSummary, int], str]
    select: Callable[[VersionSummary, Places], Places] | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions of a question. `formats` are in order of preference; empty means any, in the order of `FORMAT_PREFERENCE`.

    `max_size` limits the download in bytes; `min_recall` maps labels to the least recall that must have been measured. `member`
    is the stage of a pipeline or the member of a family.
    """

    formats: tuple[str, ...] = ()
    precision: str | None = None
    certified: bool = False
    max_size: int | None = None
    min_recall: dict[str, float] = field(default_factory=dict)
    where: "Expression | None" = None
    member: str | None = None

    @classmethod
    def read(cls, value: Any) -> "Query":
        """Read a query document, in which every key is optional. InputError if it is malformed."""
        from onnxreg.schema.core.sizes import size

        fields = {key: item for key, item in mapping(value).items() if item is not None}
        for key in fields:
            if key not in KEYS:
                raise InputError(f"a query has no {key[:40]!r}", f"its keys are {', '.join(KEYS)}")
        recalls = mapping(fields.get("min_recall", {}))
        formats = items(fields.get("formats", []), text)
        for key, conditions in (("formats", formats), ("min_recall", recalls)):
            if len(conditions) > MAX_CONDITIONS:
                raise InputError(f"{key} has more than {MAX_CONDITIONS} entries", "ask for fewer")
        return cls(
            formats,
            optional(fields.get("precision"), text),
            flag(fields.get("certified", False)),
            optional(fields.get("max_size"), size),
            {label: share(least) for label, least in recalls.items()},
            optional(fields.get("where"), _expression),
            optional(fields.get("member"), text),
        )

    def to_json(self) -> dict[str, Any]:
        """The query document, without absent conditions."""
        value = {
            "formats": list(self.formats),
            "precision": self.precision,
            "certified": self.certified,
            "max_size": self.max_size,
            "min_recall": self.min_recall,
            "where": None if self.where is None else str(self.where),
            "member": self.member,
        }
        return {key: item for key, item in value.items() if item not in ([], None, False, {})}

    def requirements(self, columns: "Columns") -> list[Requirement]:
        """The requirements on an artifact, in the order in which they are tested. `columns` has the artifacts as `where` sees
        them."""
        requirements: list[Requirement] = []
        if self.member is not None:
            requirements.append(of_member(self.member))
        if self.formats:
            requirements.append(Requirement("format", self._format_problem))
        if self.precision is not None:
            requirements.append(Requirement("precision", self._precision_problem))
        if self.certified:
            requirements.append(Requirement("not-certified", _certified_problem))
        if self.max_size is not None:
            requirements.append(_at_most(self.max_size))
        if self.min_recall:
            requirements.append(Requirement("recall", self._recall_problem, self._recalled))
        if self.where is not None:
            requirements.append(_where(self.where, columns))
        return requirements

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

    def _recalled(self, summary: VersionSummary, places: Places) -> Places:
        artifacts = summary.artifacts
        for label, least in self.min_recall.items():
            places = [index for index in places if artifacts[index].recall.get(label, UNMEASURED) >= least]
        return places

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


def _at_most(size: int) -> Requirement:
    def select(summary: VersionSummary, places: Places) -> Places:
        sizes = summary.download_sizes
        return [index for index in places if sizes[index] <= size]

    return Requirement(
        "too-large",
        lambda _, download: f"takes {download} bytes to download, at most {size} are wanted",
        select,
    )


def _where(expression: "Expression", columns: "Columns") -> Requirement:
    return Requirement(
        "where",
        lambda artifact, _: f"does not meet {expression}",
        lambda summary, places: expression.select(columns, places),
    )


ONE_MEMBER = Requirement(
    "member",
    lambda artifact, _: f"is one stage of several, add --member {artifact.member}" if artifact.member else "",
)
"""The requirement of a question without a member: no stage of a pipeline can represent the others."""


def of_member(name: str) -> Requirement:
    """A stage of a pipeline, or a member of another family."""

    def problem(artifact: ArtifactSummary, _: int) -> str:
        return (
            ""
            if artifact.member == name
            else f"is {artifact.member or 'not a member of a family'}, wanted {name}"
        )

    return Requirement("member", problem)


def share(value: Any) -> float:
    """A number from 0 to 1."""
    fraction = number(value)
    if not 0 <= fraction <= 1:
        raise InputError(f"not a share: {str(value)[:40]!r}", "write a number from 0 to 1, such as 0.95")
    return fraction


def _expression(value: Any) -> "Expression":
    from onnxreg.schema.query.expression.parser import parse

    return parse(text(value))


@dataclass(frozen=True)
class Judgement:
    """The artifacts of a version by their place. `left` are those that met the first so many requirements: all of them,
    then those that met the first, and so on; `best` is the best of those that met all, None if none did."""

    summary: VersionSummary
    requirements: Sequence[Requirement]
    left: Sequence[Places]
    best: int | None

    @cached_property
    def failed(self) -> Sequence[int | None]:
        """For each artifact the index of the first requirement that it does not meet, None if it meets all."""
        failed: list[int | None] = [None] * len(self.summary.artifacts)
        for index, (before, after) in enumerate(pairwise(self.left)):
            for artifact_index in set(before).difference(after):
                failed[artifact_index] = index
        return failed


def judge(
    summary: VersionSummary,
    requirements: Sequence[Requirement],
    formats: Sequence[str] = (),
    precision: str | None = None,
) -> Judgement:
    """Test each artifact of a version up to the first requirement that it does not meet, and rank those that meet all.

    `formats` are in order of preference; without them `FORMAT_PREFERENCE`. Without them and a `precision`, what was quantized and
    is not certified comes after the others.
    """
    places: Places = range(len(summary.artifacts))
    left = [places]
    for requirement in requirements:
        places = (requirement.select or _by_kind(requirement))(summary, places)
        left.append(places)
    return Judgement(summary, requirements, left, _best(summary, places, formats, precision))


def _by_kind(requirement: Requirement) -> Callable[[VersionSummary, Places], Places]:
    def select(summary: VersionSummary, places: Places) -> Places:
        artifacts, kinds = summary.artifacts, summary.kinds
        wrong = {
            kind for kind in {kinds[index] for index in places} if requirement.problem(artifacts[kind], 0)
        }
        return [index for index in places if kinds[index] not in wrong] if wrong else places

    return select


def _best(
    summary: VersionSummary, places: Places, formats: Sequence[str], precision: str | None
) -> int | None:
    """The best of these: by state, proof, format and download, then the one listed first; see docs/resolve.md."""
    preference = formats or FORMAT_PREFERENCE
    is_open = not formats and precision is None

    def rank(artifact: ArtifactSummary) -> tuple[int, bool, int, str]:
        is_listed = artifact.format in preference
        return (
            STATES.index(artifact.state) if artifact.state in STATES else 1,
            is_open and artifact.precision not in FLOATS and artifact.state != "certified",
            preference.index(artifact.format) if is_listed else len(preference),
            "" if is_listed else artifact.format,
        )

    kinds = summary.kinds
    ranks = {kind: rank(summary.artifacts[kind]) for kind in {kinds[index] for index in places}}
    highest = min(ranks.values(), default=None)
    equals = (index for index in places if ranks[kinds[index]] == highest)
    return min(equals, key=summary.download_sizes.__getitem__, default=None)
