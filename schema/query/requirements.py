"""Requirements on artifacts, and the choice of the best artifact that meets them. Pure: summaries in, a choice out.

A query is a list of requirements, tested in order; a device adds its own (`device.py`). The first that an artifact does
not meet is why it is rejected. `docs/resolve.md` is the specification.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core.canonical import count, flag, items, mapping, number, optional, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.log.summary import STATES, ArtifactSummary, VersionSummary

if TYPE_CHECKING:
    from onnxreg.schema.query.expression.fields import FieldValues
    from onnxreg.schema.query.expression.parser import Expression


def worst(states: Iterable[str]) -> str:
    """Return the worst of several verdicts on the same bytes: a refusal wins."""
    return max(states, key=STATES.index)


FLOATS = ("float32", "float16", "bfloat16")
"""The precisions that need no proof: nothing was quantized."""
FORMAT_PREFERENCE = ("onnx-int8", "ort-android", "onnx-android", "ort", "onnx")
"""The order of formats if the query names none; formats that are not listed come last, by name."""

MAX_CONDITIONS = 100
"""Formats, and labels with a least recall, of a query document."""

KEYS = (
    "formats",
    "precision",
    "certified",
    "max_size",
    "min_recall",
    "where",
    "member",
    "contract",
    "context",
)


class Requirement(NamedTuple):
    """A code for machines, and the problem of an artifact in words for people: "" if it meets the requirement.

    The second argument of `problem` is the download size: the bytes of everything that the artifact needs.
    """

    code: str
    problem: Callable[[ArtifactSummary, int], str]


class Query(NamedTuple):
    """The conditions of a question. `formats` are in order of preference; empty means any, in the order of `FORMAT_PREFERENCE`.

    `max_size` limits the download in bytes; `min_recall` maps labels to the least recall that must have been measured. `member`
    is the stage of a pipeline or the member of a family. `contracts` are those that the app was written for; empty means any.
    `context` is the number of tokens that a decoder must keep.
    """

    formats: tuple[str, ...] = ()
    precision: str | None = None
    certified: bool = False
    max_size: int | None = None
    min_recall: Mapping[str, float] = {}
    where: "Expression | None" = None
    member: str | None = None
    contracts: tuple[Digest, ...] = ()
    context: int | None = None

    @classmethod
    def read(cls, value: Any) -> "Query":
        """Read a query document, in which every key is optional. InputError if it is malformed."""
        from onnxreg.schema.core.units import size

        fields = {key: item for key, item in mapping(value).items() if item is not None}
        for key in fields:
            if key not in KEYS:
                raise InputError(f"a query has no {key[:40]!r}", f"its keys are {', '.join(KEYS)}")
        recalls = mapping(fields.get("min_recall", {}))
        formats = items(fields.get("formats", []), text)
        contracts = optional(fields.get("contract"), digests) or ()
        for key, conditions in (("formats", formats), ("min_recall", recalls), ("contract", contracts)):
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
            contracts,
            optional(fields.get("context"), count),
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
            "contract": [str(contract) for contract in self.contracts],
            "context": self.context,
        }
        return {key: item for key, item in value.items() if item not in ([], {}, None) and item is not False}

    def requirements(self, row: "Callable[[ArtifactSummary, int], FieldValues]") -> list[Requirement]:
        """The requirements on an artifact, in the order in which they are tested. `row` makes the fields that `where` tests."""
        requirements: list[Requirement] = []
        if self.member is not None:
            requirements.append(of_member(self.member))
        if self.contracts:
            requirements.append(Requirement("contract", self._contract_problem))
        if self.formats:
            requirements.append(Requirement("format", self._format_problem))
        if self.precision is not None:
            requirements.append(Requirement("precision", self._precision_problem))
        if self.certified:
            requirements.append(Requirement("not-certified", _certified_problem))
        if self.max_size is not None:
            requirements.append(_at_most(self.max_size))
        if self.min_recall:
            requirements.append(Requirement("recall", self._recall_problem))
        if self.context is not None:
            requirements.append(_context(self.context))
        if self.where is not None:
            requirements.append(_where(self.where, row))
        return requirements

    def _contract_problem(self, artifact: ArtifactSummary, _: int) -> str:
        if artifact.contract in self.contracts:
            return ""
        if artifact.contract is None:
            return "has no recorded contract"
        return f"has the contract {artifact.contract.short}..., and the app was written for another one"

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
    def problem(_: ArtifactSummary, download: int) -> str:
        return "" if download <= size else f"takes {download} bytes to download, at most {size} are wanted"

    return Requirement("too-large", problem)


def _context(tokens: int) -> Requirement:
    def problem(artifact: ArtifactSummary, _: int) -> str:
        if artifact.kv_cache is None:
            return "has a context that is not recorded"
        longest = artifact.kv_cache.max_tokens
        return "" if tokens <= longest else f"has a context of {longest} tokens, {tokens} are wanted"

    return Requirement("context", problem)


def _where(expression: "Expression", row: "Callable[[ArtifactSummary, int], FieldValues]") -> Requirement:
    def problem(artifact: ArtifactSummary, download: int) -> str:
        return "" if expression.matches(row(artifact, download)) else f"does not meet {expression}"

    return Requirement("where", problem)


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


def presence(held: Collection[str] | None) -> list[Requirement]:
    """The requirement of a registry that has only the artifacts with these paths; None: it has all."""
    if held is None:
        return []
    return [Requirement("not-held", lambda artifact, _: "" if artifact.path in held else "is not held here")]


def share(value: Any) -> float:
    """A number from 0 to 1."""
    fraction = number(value)
    if not 0 <= fraction <= 1:
        raise InputError(f"not a share: {str(value)[:40]!r}", "write a number from 0 to 1, such as 0.95")
    return fraction


def digests(value: Any) -> tuple[Digest, ...]:
    """One digest, or several."""
    return (Digest.parse(value),) if isinstance(value, str) else items(value, Digest.parse)


def _expression(value: Any) -> "Expression":
    from onnxreg.schema.query.expression.parser import parse

    return parse(text(value))


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
