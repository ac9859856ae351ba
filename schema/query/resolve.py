"""Choose one artifact of a model. docs/resolve.md is the specification.

A query is a list of requirements, and a device adds more requirements. If an artifact is rejected, the reason is the
first requirement that it does not meet. This module does no I/O. The caller passes data that the state line lacks, such
as summaries of old versions.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from onnxreg.schema.core.bounds import MAX_CONDITIONS
from onnxreg.schema.core.canonical import Digest, convert
from onnxreg.schema.core.errors import InputError, about, suggest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.core.units import format_size, size
from onnxreg.schema.log.state import STATES, ArtifactSummary, State, VersionEntry, VersionSummary
from onnxreg.schema.query.expression import Expression, parse
from onnxreg.schema.query.fields import FieldValues, artifact_values, version_values

FLOATS = ("float32", "float16", "bfloat16")  # need no proof: they are not quantized
# The order if the query names no format. Other formats come last, by name.
FORMAT_PREFERENCE = ("onnx-int8", "ort-android", "onnx-android", "ort", "onnx")

MAX_NEAREST = 3  # rejections that an error names
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Few = msgspec.Meta(max_length=MAX_CONDITIONS)
_CODES = (
    "member contract format precision not-certified too-large recall context where not-held runtime ort-format opset "
    "ir-version domain provider ram space latency contrib operators types ranked-lower"
)
CODES = tuple(_CODES.split())  # in the order of the tests
Document = TypeVar("Document", bound=msgspec.Struct)


# key -> a function that converts its JSON value, such as `30MB` to bytes
_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("max_size", "ram", "free_space"), size),
    "app_version": lambda value: str(Version.parse(str(value))),
    "contract": lambda value: tuple(map(Digest.parse, value if isinstance(value, list) else [value])),
    "where": lambda value: parse(str(value)),
}


def read_document(value: Any, kind: type[Document], label: str) -> Document:
    """Read a JSON object as type `kind`. Null means absent. Raise InputError, naming the key, if it is malformed."""
    if not isinstance(value, dict):
        raise InputError(f"{label} is not an object: {str(value)[:40]!r}")
    keys = [field.encode_name for field in msgspec.structs.fields(kind)]
    given = {}
    for key, item in value.items():
        if key not in keys:
            hint = suggest(str(key), keys, f"its keys are {', '.join(keys)}")
            raise InputError(f"{label} has no {str(key)[:40]!r}", hint)
        if item is not None:
            with about(key):
                given[key] = _READERS.get(key, lambda value: value)(item)
    return convert(given, kind, label)


class Miss(NamedTuple):
    """The reason why an artifact was not chosen. It has a code for machines and a detail for people."""

    code: str
    detail: str


# Tests an artifact, given its download size in bytes, and yields the unmet requirements.
Requirements = Callable[[ArtifactSummary, int], Iterable[Miss]]


class Query(msgspec.Struct, frozen=True, omit_defaults=True):
    """The conditions on an artifact. `contracts` are the contracts that the app was written for. If `contracts` is
    empty, every contract fits.
    """

    formats: Annotated[tuple[str, ...], _Few] = ()  # the preferred one first; empty: any format
    precision: str | None = None
    certified: bool = False
    max_size: int | None = None  # of the download, in bytes
    min_recall: Annotated[Mapping[str, Share], _Few] = {}  # by label
    where: Expression | None = None
    member: str | None = None  # of a family, or a stage of a pipeline
    contracts: Annotated[tuple[Digest, ...], _Few] = msgspec.field(default=(), name="contract")
    context: Annotated[int, msgspec.Meta(ge=0, lt=2**53)] | None = None  # tokens to keep

    @classmethod
    def read(cls, value: Any) -> "Query":
        """Read a query document. All keys are optional. Raise InputError, naming the key, if it is malformed."""
        return read_document(value, cls, "a query")

    def to_json(self) -> dict[str, Any]:
        """Return the query as JSON, without absent conditions."""
        value: dict[str, Any] = msgspec.to_builtins(self, enc_hook=str)
        return {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}

    def misses(
        self, summary: VersionSummary, version: FieldValues, artifact: ArtifactSummary, download: int
    ) -> Iterator[Miss]:
        """Yield the conditions that an artifact does not meet. `download` is its download size in bytes."""
        if self.member is not None:
            yield from require_member(self.member, artifact, download)
        elif artifact.member:  # one stage alone is not the model
            yield Miss("member", f"is one stage of several: {artifact.member}")
        if self.contracts and artifact.contract not in self.contracts:
            reason = "and the app was written for another one"
            other = f"has the contract {str(artifact.contract)[7:19]}..., {reason}"
            yield Miss("contract", other if artifact.contract else "has no recorded contract")
        if self.formats and artifact.format not in self.formats:
            yield Miss("format", f"is {artifact.format}, wanted {' or '.join(self.formats)}")
        if self.precision not in (None, artifact.precision):
            yield Miss("precision", f"is {artifact.precision}, wanted {self.precision}")
        if self.certified and artifact.state != "certified":
            is_reference = (artifact.state, artifact.precision) == ("unknown", "float32")
            state = "the reference, in full precision" if is_reference else artifact.state
            yield Miss("not-certified", f"is {state}")
        if self.max_size is not None and download > self.max_size:
            most = f"at most {format_size(self.max_size)} are wanted"
            yield Miss("too-large", f"takes {format_size(download)} to download, {most}")
        for label, least in self.min_recall.items():
            measured = artifact.recall.get(label)
            if measured is None:
                yield Miss("recall", f"has no measured recall of {label}")
            elif measured < least:
                yield Miss("recall", f"has a recall of {label} of {measured:g}, wanted {least:g}")
        kv_cache, tokens = artifact.kv_cache, self.context
        if tokens is not None and kv_cache is None:
            yield Miss("context", "has a context that is not recorded")
        if tokens is not None and kv_cache is not None and tokens > kv_cache.max_tokens:
            yield Miss("context", f"has a context of {kv_cache.max_tokens} tokens, {tokens} are wanted")
        if self.where is not None:
            fields = {**version, **artifact_values(summary, artifact, download)}
            if not self.where.matches(fields):
                yield Miss("where", f"does not meet {self.where}")


def require_member(name: str, artifact: ArtifactSummary, _: int) -> Iterator[Miss]:
    """Yield a `Miss` unless the artifact belongs to the member `name` of a family or pipeline."""
    if artifact.member != name:
        yield Miss("member", f"is {artifact.member or 'not a member of a family'}, wanted {name}")


def require_presence(paths: Collection[str] | None, artifact: ArtifactSummary, _: int) -> Iterator[Miss]:
    """Yield a `Miss` unless the registry has the artifact. `paths` is None if the registry has all artifacts."""
    if paths is not None and artifact.path not in paths:
        yield Miss("not-held", "is not held here")


class Ranking(NamedTuple):
    """The ranking of a version's artifacts. `best` is the index of the best artifact. `misses` has the reason why each
    other artifact was not chosen, and None for the best artifact.
    """

    best: int | None  # None: no artifact meets all requirements
    misses: tuple[Miss | None, ...]


def judge(
    summary: VersionSummary,
    requirements: Sequence[Requirements],
    formats: Sequence[str] = (),
    precision: str | None = None,
    is_slow: Callable[[ArtifactSummary], bool] | None = None,
) -> Ranking:
    """Test the artifacts of a version, and rank those that meet all requirements (docs/resolve.md).

    `formats` has the preferred format first. The default is `FORMAT_PREFERENCE`. `precision` is the precision that the
    query names, or None. `is_slow` is true for an artifact that is slower than full precision.
    """
    artifacts, sizes = summary.artifacts, summary.download_sizes
    misses = [
        next((miss for tests in requirements for miss in tests(*download)), None)
        for download in zip(artifacts, sizes, strict=True)
    ]
    preference = formats or FORMAT_PREFERENCE

    def rank(index: int) -> tuple[int, bool, bool, bool, int, str, int]:
        artifact = artifacts[index]
        is_listed = artifact.format in preference
        is_unproven = artifact.precision not in FLOATS and artifact.state != "certified"
        return (
            STATES.index(artifact.state) if artifact.state in STATES else 1,
            is_unproven and not formats and precision is None,
            is_slow is not None and is_slow(artifact),
            not formats and not artifact.preferred,
            preference.index(artifact.format) if is_listed else len(preference),
            "" if is_listed else artifact.format,
            sizes[index],
        )

    best = min((index for index, miss in enumerate(misses) if miss is None), key=rank, default=None)
    if best is not None:
        for index, artifact in enumerate(artifacts):
            if misses[index] is None and index != best:
                is_refused = artifact.state == "refused"
                detail = (
                    "is refused (`reg show` says why)"
                    if is_refused
                    else f"{artifacts[best].path} ranks higher"
                )
                misses[index] = Miss("ranked-lower", detail)
    return Ranking(best, tuple(misses))


class VersionCandidate(NamedTuple):
    """A version from which `resolve_among` may choose an artifact."""

    version: Version
    entry: VersionEntry
    summary: VersionSummary


class Rejection(NamedTuple):
    """An artifact or a version that was not chosen, and the reason: a code for machines, a detail for people."""

    version: Version
    artifact: str | None  # the path; None: the whole version
    code: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"version": str(self.version)}

    def __str__(self) -> str:
        return " ".join(filter(None, (str(self.version), self.artifact, self.detail)))


class ResolveOutcome(NamedTuple):
    """The result of `resolve_among`: the chosen artifact, and the versions from which it was chosen.

    `candidate` is the version of the artifact. It is the last version in `looked_at`. `passed_over` has versions, such
    as pre-releases, that only a ref with their version number can choose.
    """

    candidate: VersionCandidate | None
    artifact: ArtifactSummary | None  # None: no artifact meets the conditions
    size: int  # of the download, in bytes
    looked_at: tuple[tuple[VersionCandidate, Ranking], ...] = ()
    passed_over: tuple[Rejection, ...] = ()

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """The artifacts and versions that were not chosen, with reasons, newest version first."""
        rejections = [*self._misses(), *self.passed_over]
        return tuple(sorted(rejections, key=lambda rejection: rejection.version.precedence, reverse=True))

    def _misses(self) -> Iterator[Rejection]:
        for candidate, ranking in self.looked_at:
            for artifact, miss in zip(candidate.summary.artifacts, ranking.misses, strict=True):
                if miss is not None:
                    yield Rejection(candidate.version, artifact.path, *miss)

    def nearest(self) -> str:
        """Describe the rejected artifacts that met the most requirements."""
        misses = sorted(self._misses(), key=lambda rejection: -CODES.index(rejection.code))
        return "; ".join(map(str, misses[:MAX_NEAREST]))


def resolve_among(
    state: State,
    candidates: Iterable[VersionCandidate],
    query: Query,
    device_requirements: Sequence[Requirements] = (),
    is_slow: Callable[[ArtifactSummary], bool] | None = None,
    any_version: bool = False,
) -> ResolveOutcome:
    """Find the best artifact in the first candidate that has a matching artifact. Later candidates are not read.

    `is_slow` is true for an artifact that is slower than full precision on the device. `any_version` is true if the ref
    has no tag.
    """
    looked_at = []
    answer: tuple[VersionCandidate | None, ArtifactSummary | None, int] = None, None, 0
    for candidate in candidates:
        version, entry, summary = candidate
        status = {} if query.where is None else version_values(state, version, entry)
        own = partial(query.misses, summary, status), partial(require_presence, entry.held)
        ranking = judge(summary, [*own, *device_requirements], query.formats, query.precision, is_slow)
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


# code -> why only a ref that names the version can choose it
WITHHELD = {
    "yanked": "is yanked",
    "prerelease": "is a pre-release, which only its own tag or a channel means",
    "expired": "has expired: its files are no longer here",
    "purged": "was taken down",
}


def withheld(version: Version, entry: VersionEntry) -> str:
    """Return why only a ref that names the version can choose it, such as `yanked`, or "" if any ref can choose it."""
    if entry.gone is not None:
        return entry.gone.how
    return "yanked" if entry.yanked else "prerelease" if version.is_prerelease else ""
