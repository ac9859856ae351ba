"""The summary of a version in the index file, with which one small request answers a query.

`summarize` derives a summary from the manifest alone; `reg verify` compares the two.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, NamedTuple

from msgspec import Meta

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_MACHINE_CHARS, MAX_METRICS
from onnxreg.schema.core.canonical import Count, Record
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import check_path

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
    from onnxreg.schema.manifest.parts import Check

STATES = ("certified", "unknown", "refused")
"""The states from best to worst; a refused artifact is chosen only if no other artifact of its version fits."""


def effective_state(stated: str, *verdicts: str | None) -> str:
    """The effective state of an artifact, from the state in the manifest and later verdicts on the same bytes: a refusal
    wins.

    A later certificate changes neither a refusal nor `unknown`, because anybody who can write to the registry could attest
    one.
    """
    return "refused" if "refused" in verdicts else stated


def worst(states: Iterable[str]) -> str:
    """Return the worst of several verdicts on the same bytes: a refusal wins."""
    return max(states, key=STATES.index)


_Positive = Annotated[float, Meta(gt=0, le=1e9)]
_Word = Annotated[str, Meta(min_length=1, max_length=MAX_MACHINE_CHARS)]


class Speed(Record, frozen=True):
    """The latency of an artifact on a class of machine: `ratio` is a multiple of full precision's, for the slower input.

    `low` is the low end of the ratio's 95 % interval, `median_ms` the median. The class is the widest instruction set, the
    runtime with its version, and the number of threads. `seq` is the number of the log's line; 0 in the line itself.
    """

    isa: _Word
    runtime: _Word
    threads: Count
    ratio: _Positive
    low: _Positive
    median_ms: _Positive | None = None
    seq: Count = 0

    @property
    def machine(self) -> str:
        """The class of machine, such as `x86_64+avx2, onnxruntime 1.31.1, 1 thread`."""
        return f"{self.isa}, {self.runtime}, {self.threads} thread{'' if self.threads == 1 else 's'}"

    def __str__(self) -> str:
        median = "" if self.median_ms is None else f"{self.median_ms:.3g} ms, "
        return f"{median}{self.ratio:.2f} x, {self.isa}"


class ArtifactState(NamedTuple):
    """The state of an artifact with its three sources: the manifest, later evaluations of this version's artifact, and
    refusals of the same bytes in other versions.

    `attested` is the worst verdict of those evaluations; None without one. `speeds` are those that the log has.
    """

    path: str
    stated: str
    attested: str | None = None
    refused_elsewhere: bool = False
    speeds: tuple[Speed, ...] = ()

    @property
    def latency(self) -> str:
        """The newest speed in words, such as `12.3 ms, 0.57 x, x86_64+avx2`; empty if nothing was measured."""
        return str(self.speeds[-1]) if self.speeds else ""

    @property
    def state(self) -> str:
        return effective_state(self.stated, self.attested, "refused" if self.refused_elsewhere else None)

    @property
    def remark(self) -> str:
        """A sentence for an artifact whose effective state or later evaluation differs from its manifest; else empty."""
        if self.state != self.stated:
            is_own = self.attested == self.state
            why = "by a later evaluation" if is_own else "with the bytes of another version"
            return f"{self.state} {why}: {self.path} (its manifest says {self.stated})"
        if self.attested not in (None, "refused", self.stated):
            return f"{self.state} as its manifest says: {self.path} (a later evaluation says {self.attested})"
        return ""


ArtifactStates = tuple[ArtifactState, ...]
"""The states of all artifacts of a version, in the manifest's order."""
Verdict = tuple[str, Digest, str]
"""An artifact's path, its digest, and its state in the manifest."""


def artifact_states(
    verdicts: Iterable[Verdict],
    attested: Mapping[Digest, str],
    refused: Collection[Digest],
    speeds: Mapping[Digest, tuple[Speed, ...]],
) -> ArtifactStates:
    """The states of a version's artifacts, given the later verdicts on them, what the log refuses in any version, and the
    speeds of the manifest.
    """
    return tuple(
        ArtifactState(
            path, stated, verdict, digest in refused and verdict != "refused", speeds.get(digest, ())
        )
        for path, digest, stated in verdicts
        for verdict in (attested.get(digest),)
    )


def verdicts_of(manifest: "Manifest") -> list[Verdict]:
    return [(item.path, item.digest, item.certification.state) for item in manifest.artifacts]


RECALL = "character_recall/"
"""The prefix of the names of checks that measure one label each."""
CERTIFICATE, ITEM_SCORES = "certificate", "item-scores"
EVIDENCE = frozenset({CERTIFICATE, ITEM_SCORES})
"""Roles of companion files that prove a verdict: no artifact needs them to run, so a download leaves them out."""


class FileSummary(Record, frozen=True):
    """The summary of a file of a version."""

    role: str
    path: str
    digest: Digest
    size: Count

    def __post_init__(self) -> None:
        check_path(self.path)


class KvCacheSummary(Record, frozen=True):
    """The memory that a decoder needs for keys and values; see `manifest.KvCache`."""

    bytes_per_token: Count
    max_tokens: Count

    def size(self, context: int | None = None) -> int:
        """Memory in bytes for a context of this many tokens; default: the longest."""
        return self.bytes_per_token * (self.max_tokens if context is None else context)


class ArtifactSummary(Record, frozen=True):
    """The summary of one artifact: all that a device must know before a download.

    `operators` is the digest of the operator-set blob, the canonical JSON of the manifest's `operators`; `domains` are the
    domains of these operators without `ai.onnx`. `ir_version` is read from the ONNX file. `recall` maps a label to its
    measured recall, `metrics` the name of a check on the certification's suite to its value. `stated` is the manifest's
    state if a later evaluation refused the artifact (then `state` is `refused`); an index file never stores it. `member` is
    the pipeline stage of the artifact. `contrib` lists the contrib operators that the artifact needs, with features that a
    release may lack. `contract` is the digest of what an app's code relies on. `kv_cache` is set for a decoder. `preferred`
    is True for the winner of the search that made the version. `speeds` are those of the log; an index file never stores
    them here.
    """

    format: str
    precision: str
    path: str
    digest: Digest
    size: Count
    state: str
    files: tuple[FileSummary, ...] = ()
    opset: Count | None = None
    ort_format: Count | None = None
    operators: Digest | None = None
    providers: tuple[str, ...] = ()
    recall: dict[str, float] = {}
    ir_version: Count | None = None
    domains: tuple[str, ...] = ()
    stated: str | None = None
    member: str | None = None
    metrics: dict[str, float] = {}
    contrib: tuple[str, ...] = ()
    contract: Digest | None = None
    kv_cache: KvCacheSummary | None = None
    preferred: bool = False
    speeds: tuple[Speed, ...] = ()

    def __post_init__(self) -> None:
        check_path(self.path)

    @property
    def weight_size(self) -> int:
        """The bytes of the main file and its external data."""
        return self.size + sum(file.size for file in self.files if file.role == "external-data")

    def after(self, verdict: str | None, speeds: tuple[Speed, ...]) -> "ArtifactSummary":
        """Copy the summary with the state that follows from a later verdict, and with measured speeds."""
        state = effective_state(self.state, verdict)
        stated = self.stated if state == self.state else self.state
        return self.replace(state=state, stated=stated, speeds=speeds)


class VersionSummary(Record, frozen=True, dict=True):
    """The summary of a version: manifest, artifacts, and shared companion files; `profile` is the recipe's profile."""

    manifest: Digest
    size: Count
    artifacts: tuple[ArtifactSummary, ...]
    files: tuple[FileSummary, ...]
    task: str | None = None
    family: str | None = None
    license: str | None = None
    profile: str | None = None

    @property
    def shared_files(self) -> tuple[FileSummary, ...]:
        """The companion files that every download includes: all but the evidence."""
        return tuple([entry for entry in self.files if entry.role not in EVIDENCE])

    @cached_property
    def download_sizes(self) -> tuple[int, ...]:
        """The bytes that a device must fetch for each artifact: its files and the shared companions; equal files count
        once."""
        shared = {entry.digest: entry.size for entry in self.shared_files}
        common = sum(shared.values())
        return tuple(
            [
                common + sum(size for digest, size in _own(artifact).items() if digest not in shared)
                for artifact in self.artifacts
            ]
        )

    def downloads(self, paths: Collection[str] | None) -> Iterator[tuple[ArtifactSummary, int]]:
        """Yield each artifact with one of these paths (None: every artifact) and its download size in bytes."""
        for artifact, size in zip(self.artifacts, self.download_sizes, strict=True):
            if paths is None or artifact.path in paths:
                yield artifact, size

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The stages of a pipeline, in the manifest's order; empty for another model."""
        named = (artifact.member for artifact in self.artifacts)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def after(
        self, attested: Mapping[Digest, str], speeds: Mapping[Digest, tuple[Speed, ...]] = {}
    ) -> "VersionSummary":
        """Copy the summary with what the log says of the artifacts by digest: effective states and speeds."""
        if (attested.keys() | speeds.keys()).isdisjoint(artifact.digest for artifact in self.artifacts):
            return self
        artifacts = tuple(
            artifact.after(attested.get(artifact.digest), speeds.get(artifact.digest, ()))
            for artifact in self.artifacts
        )
        return self.replace(artifacts=artifacts)


def _own(artifact: ArtifactSummary) -> dict[Digest, int]:
    return {artifact.digest: artifact.size} | {entry.digest: entry.size for entry in artifact.files}


def operator_set(artifact: "Artifact") -> bytes | None:
    """The operator-set blob of an artifact, which versions with equal sets share.

    None if the artifact lists no operators.
    """
    operators = [operator.to_json() for operator in artifact.operators]
    return canonical.encode(operators) if operators else None


def summarize(
    manifest: "Manifest", digest: Digest, size: int, *, every: bool = False, member: str | None = None
) -> VersionSummary:
    """Summarize a manifest. `digest` and `size` (bytes) describe the manifest itself.

    Of a family only the `entry_artifacts` are listed, since hundreds of heads would not fit into an index file; with
    `every` all are, and with `member` also the artifacts of this member, each with the member's name.
    """
    stages = manifest.stages if member is None else manifest.members
    first = {artifact.path for artifact in manifest.entry_artifacts}
    return VersionSummary(
        digest,
        size,
        tuple(
            _artifact(manifest, artifact, stages.get(artifact.path))
            for artifact in manifest.artifacts
            if every or artifact.path in first or (member is not None and stages.get(artifact.path) == member)
        ),
        tuple(map(_file, manifest.files)),
        manifest.task,
        manifest.family,
        manifest.license,
        None if manifest.recipe is None else manifest.recipe.profile,
    )


def _file(entry: "FileEntry") -> FileSummary:
    return FileSummary(entry.role, entry.path, entry.digest, entry.size)


def suite_checks(artifact: "Artifact") -> list["Check"]:
    """An artifact's measured checks on the suite of its certification, without the recalls of single labels."""
    return [
        check
        for check in artifact.checks
        if check.dataset is not None
        and check.dataset == artifact.suite
        and check.value is not None
        and not check.name.startswith(RECALL)
    ]


def _winner(manifest: "Manifest") -> str | None:
    """The path of the artifact that the recipe's search chose; None without a search."""
    search = None if manifest.recipe is None else manifest.recipe.parameters.get("search")
    return search.get("output") if isinstance(search, Mapping) else None


def _artifact(manifest: "Manifest", artifact: "Artifact", member: str | None) -> ArtifactSummary:
    from onnxreg.schema.manifest.manifest import contract_of

    operators, cache = operator_set(artifact), artifact.kv_cache
    recall = {
        check.name.removeprefix(RECALL): check.value
        for check in artifact.checks
        if check.name.startswith(RECALL) and check.value is not None
    }
    return ArtifactSummary(
        artifact.format,
        artifact.precision,
        artifact.path,
        artifact.digest,
        artifact.size,
        artifact.certification.state,
        files=tuple(map(_file, artifact.files)),
        opset=artifact.metadata.opset,
        ort_format=artifact.ort_format,
        operators=None if operators is None else Digest.of(operators),
        providers=tuple(artifact.metadata.execution_providers),
        recall=recall,
        ir_version=artifact.ir_version,
        domains=tuple(sorted({operator.domain for operator in artifact.operators} - {"ai.onnx"})),
        member=member,
        contrib=tuple(artifact.contrib),
        contract=contract_of(manifest, artifact),
        kv_cache=None if cache is None else KvCacheSummary(cache.bytes_per_token, cache.max_tokens),
        metrics={
            check.name: check.value
            for check in suite_checks(artifact)[:MAX_METRICS]
            if check.value is not None
        },
        preferred=_winner(manifest) == artifact.path,
    )
