"""The summary of a version in the index file, so that one small request answers a query.

A summary is derived from the manifest by `summarize` and holds nothing else; `reg verify` compares the two.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_METRICS
from onnxreg.schema.core.canonical import Count, Record
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import check_path

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
    from onnxreg.schema.manifest.parts import Check

STATES = ("certified", "unknown", "refused")
"""From best to worst; a refused artifact is chosen only if nothing else of its version answers."""


def effective_state(stated: str, *verdicts: str | None) -> str:
    """The state that counts, of what the manifest states and of later verdicts on the same bytes: a refusal
    wins.

    A certificate after the fact lifts neither a refusal nor an unknown: a writer of the registry could
    attest it.
    """
    return "refused" if "refused" in verdicts else stated


class ArtifactState(NamedTuple):
    """An artifact's state with its reasons: the manifest, later evaluations, and refusals of the bytes in
    other versions.

    `attested` is the worst verdict of later evaluations of this version's artifact, if there are any.
    """

    path: str
    stated: str
    attested: str | None = None
    refused_elsewhere: bool = False

    @property
    def state(self) -> str:
        return effective_state(self.stated, self.attested, "refused" if self.refused_elsewhere else None)

    @property
    def remark(self) -> str:
        """The reason for which the manifest is not the last word on the artifact; empty if it is."""
        if self.state != self.stated:
            why = (
                "by a later evaluation"
                if self.attested == self.state
                else "with the bytes of another version"
            )
            return f"{self.state} {why}: {self.path} (its manifest says {self.stated})"
        if self.attested not in (None, "refused", self.stated):
            return f"{self.state} as its manifest says: {self.path} (a later evaluation says {self.attested})"
        return ""


ArtifactStates = tuple[ArtifactState, ...]
"""Those of all artifacts of a version, in the manifest's order."""
Verdict = tuple[str, Digest, str]
"""An artifact's path and digest, and the state that its manifest gives it."""


def artifact_states(
    verdicts: Iterable[Verdict], attested: Mapping[Digest, str], refused: Collection[Digest]
) -> ArtifactStates:
    """The states of a version's artifacts.

    Args:
        attested: what later evaluations say of them; see `VersionEntry`.
        refused: the artifacts that the model's log refuses in any version.
    """
    return tuple(
        ArtifactState(path, stated, verdict, digest in refused and verdict != "refused")
        for path, digest, stated in verdicts
        for verdict in (attested.get(digest),)
    )


def verdicts_of(manifest: "Manifest") -> list[Verdict]:
    return [(item.path, item.digest, item.certification.state) for item in manifest.artifacts]


RECALL = "character_recall/"
"""The prefix of the checks of single labels."""
CERTIFICATE, ITEM_SCORES = "certificate", "item-scores"
EVIDENCE = frozenset({CERTIFICATE, ITEM_SCORES})
"""Roles of companions that prove a verdict: no artifact needs them to run, so they are part of no download."""


class FileSummary(Record, frozen=True):
    """A file of a version."""

    role: str
    path: str
    digest: Digest
    size: Count

    def __post_init__(self) -> None:
        check_path(self.path)


class KvCacheSummary(Record, frozen=True):
    """The memory of the keys and values of a decoder; see `manifest.KvCache`."""

    bytes_per_token: Count
    max_tokens: Count

    def size(self, context: int | None = None) -> int:
        """The bytes for so many tokens of context, by default for the longest one."""
        return self.bytes_per_token * (self.max_tokens if context is None else context)


class ArtifactSummary(Record, frozen=True):
    """One artifact: what a device must know before it downloads.

    `operators` is the digest of the operator-set blob: the canonical JSON of the manifest's `operators`;
    `domains` are those of the operators, but for `ai.onnx`. `ir_version` is that of the ONNX file. `recall`
    maps a label to its measured recall, `metrics` the name of a check on the suite of the certification to its
    value. `stated` is what the manifest says, if a later evaluation refused the artifact: then `state` is
    `refused`. It is not part of the index file's summary. `member` is the stage of a pipeline that the artifact
    is of. `contrib` are the contrib operators that it needs, with features that a release may lack. `contract`
    is the digest of what the code of an app relies on. `kv_cache` is that of a decoder. `preferred` is the winner of
    the search that made the version.
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

    def __post_init__(self) -> None:
        check_path(self.path)

    @property
    def weight_size(self) -> int:
        """Bytes of the main file and its external data."""
        return self.size + sum(file.size for file in self.files if file.role == "external-data")

    def after(self, verdict: str | None) -> "ArtifactSummary":
        """With what a later evaluation says of it."""
        state = effective_state(self.state, verdict)
        return self if state == self.state else self.replace(state=state, stated=self.state)


class VersionSummary(Record, frozen=True, dict=True):
    """One version: its manifest, its artifacts, and the companions they share. `profile` is that of the recipe."""

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
        """The companions that every download has: all but the evidence."""
        return tuple([entry for entry in self.files if entry.role not in EVIDENCE])

    @cached_property
    def download_sizes(self) -> tuple[int, ...]:
        """For each artifact the bytes that a device must fetch: its files and the companions that it needs, equal
        ones once."""
        shared = {entry.digest: entry.size for entry in self.shared_files}
        common = sum(shared.values())
        return tuple(
            [
                common + sum(size for digest, size in _own(artifact).items() if digest not in shared)
                for artifact in self.artifacts
            ]
        )

    def downloads(self, paths: Collection[str] | None) -> Iterator[tuple[ArtifactSummary, int]]:
        """The artifacts with these paths (None: all), each with its download size."""
        for artifact, size in zip(self.artifacts, self.download_sizes, strict=True):
            if paths is None or artifact.path in paths:
                yield artifact, size

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The stages of a pipeline, in the manifest's order; none of another model."""
        named = (artifact.member for artifact in self.artifacts)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def after(self, attested: Mapping[Digest, str]) -> "VersionSummary":
        """With the effective states of the artifacts: what later evaluations say of them counts."""
        if not attested or attested.keys().isdisjoint(artifact.digest for artifact in self.artifacts):
            return self
        artifacts = tuple(artifact.after(attested.get(artifact.digest)) for artifact in self.artifacts)
        return self.replace(artifacts=artifacts)


def _own(artifact: ArtifactSummary) -> dict[Digest, int]:
    return {artifact.digest: artifact.size} | {entry.digest: entry.size for entry in artifact.files}


def operator_set(artifact: "Artifact") -> bytes | None:
    """The operator-set blob of an artifact: equal sets of different versions share it.

    None without operators.
    """
    operators = [operator.to_json() for operator in artifact.operators]
    return canonical.encode(operators) if operators else None


def summarize(
    manifest: "Manifest", digest: Digest, size: int, *, every: bool = False, member: str | None = None
) -> VersionSummary:
    """The summary of a manifest. `digest`, `size`: the manifest's.

    Args:
        every: list all artifacts, also those of a family that are not its entry. An index file never does:
            hundreds of heads would not fit.
        member: also list the artifacts of this member of a family, each with its member's name.
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
    """The measured checks on the suite of an artifact's certification, but for the recall of single labels."""
    evidence = artifact.certification.evidence
    suite = None if evidence is None else evidence.suite
    return [
        check
        for check in artifact.checks
        if suite is not None
        and check.dataset == suite
        and check.value is not None
        and not check.name.startswith(RECALL)
    ]


def _winner(manifest: "Manifest") -> str | None:
    """The path of the artifact that a search found; None without a search."""
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
