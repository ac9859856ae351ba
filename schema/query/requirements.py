"""Requirements on artifacts, and the choice of the best artifact that meets them. Pure: summaries in, a choice out.

A query is a list of requirements, tested in order; a device adds its own (`device.py`). The first that an artifact does
not meet is why it is rejected. `docs/resolve.md` is the specification.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.log.summary import STATES, ArtifactSummary, VersionSummary
from onnxreg.schema.query.expression.fields import FieldValues
from onnxreg.schema.query.expression.parser import Expression
from onnxreg.schema.query.question_document import read_document

FLOATS = ("float32", "float16", "bfloat16")
"""The precisions that need no proof: nothing was quantized."""
FORMAT_PREFERENCE = ("onnx-int8", "ort-android", "onnx-android", "ort", "onnx")
"""The order of formats if the query names none; formats that are not listed come last, by name."""
MAX_CONDITIONS = 100
"""Formats, contracts, and labels with a least recall, of a query document."""

Problem = Callable[[ArtifactSummary, int], str]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Few = msgspec.Meta(max_length=MAX_CONDITIONS)


class Requirement(NamedTuple):
    """A code for machines, and the problem of an artifact in words for people: "" if it meets the requirement.

    The second argument of `problem` is the download size: the bytes of everything that the artifact needs.
    """

    code: str
    problem: Problem


class Query(msgspec.Struct, frozen=True, omit_defaults=True):
    """The conditions of a question. `formats` are in order of preference; empty means any, in the order of `FORMAT_PREFERENCE`.

    `max_size` limits the download in bytes; `min_recall` maps labels to the least recall that must have been measured. `member`
    is the stage of a pipeline or the member of a family. `contracts` are those that the app was written for; empty means any.
    `context` is the number of tokens that a decoder must keep.
    """

    formats: Annotated[tuple[str, ...], _Few] = ()
    precision: str | None = None
    certified: bool = False
    max_size: int | None = None
    min_recall: Annotated[Mapping[str, Share], _Few] = {}
    where: Expression | None = None
    member: str | None = None
    contracts: Annotated[tuple[Digest, ...], _Few] = msgspec.field(default=(), name="contract")
    context: Annotated[int, msgspec.Meta(ge=0)] | None = None

    @classmethod
    def read(cls, value: Any) -> "Query":
        """Read a query document, in which every key is optional. InputError, naming the key, if it is malformed."""
        return read_document(value, cls, "a query")

    def to_json(self) -> dict[str, Any]:
        """The query document, without absent conditions."""
        value: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}

    def requirements(self, row: Callable[[ArtifactSummary, int], FieldValues]) -> list[Requirement]:
        """The requirements on an artifact, in the order in which they are tested. `row` makes the fields that `where` tests."""

        def where_problem(artifact: ArtifactSummary, download: int) -> str:
            where = self.where
            is_met = where is None or where.matches(row(artifact, download))
            return "" if is_met else f"does not meet {where}"

        return [
            of_member(self.member) if self.member else ONE_MEMBER,
            Requirement("contract", self._contract_problem),
            Requirement("format", self._format_problem),
            Requirement("precision", self._precision_problem),
            Requirement("not-certified", self._certified_problem),
            Requirement("too-large", self._size_problem),
            Requirement("recall", self._recall_problem),
            Requirement("context", self._context_problem),
            Requirement("where", where_problem),
        ]

    def _contract_problem(self, artifact: ArtifactSummary, _: int) -> str:
        if not self.contracts or artifact.contract in self.contracts:
            return ""
        if artifact.contract is None:
            return "has no recorded contract"
        return f"has the contract {artifact.contract.short}..., and the app was written for another one"

    def _format_problem(self, artifact: ArtifactSummary, _: int) -> str:
        if not self.formats or artifact.format in self.formats:
            return ""
        return f"is {artifact.format}, wanted {' or '.join(self.formats)}"

    def _precision_problem(self, artifact: ArtifactSummary, _: int) -> str:
        if self.precision in (None, artifact.precision):
            return ""
        return f"is {artifact.precision}, wanted {self.precision}"

    def _certified_problem(self, artifact: ArtifactSummary, _: int) -> str:
        return "" if not self.certified or artifact.state == "certified" else f"is {artifact.state}"

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

    def _context_problem(self, artifact: ArtifactSummary, _: int) -> str:
        if self.context is None:
            return ""
        if artifact.kv_cache is None:
            return "has a context that is not recorded"
        longest = artifact.kv_cache.max_tokens
        if self.context <= longest:
            return ""
        return f"has a context of {longest} tokens, {self.context} are wanted"


def worst(states: Iterable[str]) -> str:
    """Return the worst of several verdicts on the same bytes: a refusal wins."""
    return max(states, key=STATES.index)


ONE_MEMBER = Requirement(
    "member",
    lambda artifact, _: f"is one stage of several: {artifact.member}" if artifact.member else "",
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


def presence(paths: Collection[str] | None) -> list[Requirement]:
    """The requirement of a registry that has only the artifacts with these paths; None: it has all."""
    if paths is None:
        return []
    return [Requirement("not-held", lambda artifact, _: "" if artifact.path in paths else "is not held here")]


def share(value: Any) -> float:
    """A number from 0 to 1. InputError for anything else."""
    try:
        return msgspec.convert(value, Share)
    except msgspec.ValidationError as error:
        raise InputError(
            f"not a share: {str(value)[:40]!r}", "write a number from 0 to 1, such as 0.95"
        ) from error


class Miss(NamedTuple):
    """The reason for which an artifact is not the best one of its version; `met` counts the requirements that it meets."""

    met: int
    code: str
    detail: str


class Ranking(NamedTuple):
    """The place of the best artifact, None if none meets all requirements; and why each other one is not the best."""

    best: int | None
    misses: tuple[Miss | None, ...]


def judge(
    summary: VersionSummary,
    requirements: Sequence[Requirement],
    formats: Sequence[str] = (),
    precision: str | None = None,
) -> Ranking:
    """Test each artifact of a version up to the first requirement that it does not meet, and rank those that meet all.

    `formats` are in order of preference; without them the winner of a search comes first, then `FORMAT_PREFERENCE`. Without
    them and a `precision`, what was quantized and is not certified comes after the others.
    """
    artifacts, sizes = summary.artifacts, summary.download_sizes
    misses = [_first_miss(requirements, *download) for download in zip(artifacts, sizes, strict=True)]
    fitting = [index for index, miss in enumerate(misses) if miss is None]
    rank = _ranking(formats, precision)
    best = min(fitting, key=lambda index: (*rank(artifacts[index]), sizes[index]), default=None)
    if best is not None:
        lower = Miss(len(requirements), "ranked-lower", f"{artifacts[best].path} ranks higher")
        misses = [miss or (None if index == best else lower) for index, miss in enumerate(misses)]
    return Ranking(best, tuple(misses))


def _first_miss(requirements: Sequence[Requirement], artifact: ArtifactSummary, download: int) -> Miss | None:
    for met, requirement in enumerate(requirements):
        if problem := requirement.problem(artifact, download):
            return Miss(met, requirement.code, problem)
    return None


def _ranking(
    formats: Sequence[str], precision: str | None
) -> Callable[[ArtifactSummary], tuple[int, bool, bool, int, str]]:
    """The key of the order of artifacts, best first: by state, proof, search and format; see docs/resolve.md."""
    preference = formats or FORMAT_PREFERENCE
    is_open = not formats and precision is None

    def rank(artifact: ArtifactSummary) -> tuple[int, bool, bool, int, str]:
        is_listed = artifact.format in preference
        return (
            STATES.index(artifact.state) if artifact.state in STATES else 1,
            is_open and artifact.precision not in FLOATS and artifact.state != "certified",
            not formats and not artifact.preferred,
            preference.index(artifact.format) if is_listed else len(preference),
            "" if is_listed else artifact.format,
        )

    return rank
