"""The summary of a version in the index file, so that one small request answers a query.

A summary is derived from the manifest by `summarize` and holds nothing else; `reg verify` compares the two.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.schema.core import canonical
from onnxreg.schema.core.codec import count, items, mapping, number, optional, path, pick, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.log.artifact_state import effective_state

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest


class FileSummary(NamedTuple):
    role: str
    path: str
    digest: Digest
    size: int

    @classmethod
    def read(cls, value: Any) -> "FileSummary":
        value = mapping(value)
        return cls(
            text(required(value, "role")),
            path(required(value, "path")),
            Digest.parse(required(value, "digest")),
            count(required(value, "size")),
        )


@dataclass(frozen=True, slots=True)
class ArtifactSummary:
    """One artifact: what a device must know before it downloads.

    `operators` is the digest of the operator-set blob: the canonical JSON of the manifest's `operators`;
    `domains` are those of the operators, but for `ai.onnx`. `ir_version` is that of the ONNX file. `recall`
    maps a label to its measured recall. `stated` is what the manifest says, if a later evaluation refused
    the artifact: then `state` is `refused`. It is not part of the index file's summary. `member` is the stage
    of a pipeline that the artifact is of.
    """

    format: str
    precision: str
    path: str
    digest: Digest
    size: int
    state: str
    files: tuple[FileSummary, ...] = ()
    opset: int | None = None
    ort_format: int | None = None
    operators: Digest | None = None
    providers: tuple[str, ...] = ()
    recall: dict[str, float] = field(default_factory=dict)
    ir_version: int | None = None
    domains: tuple[str, ...] = ()
    stated: str | None = None
    member: str | None = None

    def after(self, verdict: str | None) -> "ArtifactSummary":
        """With what a later evaluation says of it."""
        state = effective_state(self.state, verdict)
        return self if state == self.state else replace(self, state=state, stated=self.state)

    @classmethod
    def read(cls, value: Any) -> "ArtifactSummary":
        """Read what `summarize` wrote; InputError if it is anything else."""
        value = mapping(value)
        recall = mapping(value.get("recall", {}))
        return cls(
            text(required(value, "format")),
            text(required(value, "precision")),
            path(required(value, "path")),
            Digest.parse(required(value, "digest")),
            count(required(value, "size")),
            text(required(value, "state")),
            items(value.get("files", []), FileSummary.read),
            optional(value.get("opset"), count),
            optional(value.get("ort_format"), count),
            optional(value.get("operators"), Digest.parse),
            items(value.get("providers", []), text),
            {label: number(share) for label, share in recall.items()},
            optional(value.get("ir_version"), count),
            items(value.get("domains", []), text),
            member=optional(value.get("member"), text),
        )


@dataclass(frozen=True)
class VersionSummary:
    """One version: its manifest, its artifacts, and the companions they share.

    `profile` is that of the recipe. It is not part of the index file's summary: see `lookup.read_summary`.
    """

    manifest: Digest
    size: int
    artifacts: tuple[ArtifactSummary, ...]
    files: tuple[FileSummary, ...]
    task: str | None = None
    family: str | None = None
    license: str | None = None
    profile: str | None = None

    @cached_property
    def download_sizes(self) -> tuple[int, ...]:
        """For each artifact the bytes that a device must fetch: its files and the companions, equal ones
        once."""
        shared = {entry.digest: entry.size for entry in self.files}
        total = sum(shared.values())
        return tuple(
            total + sum(size for digest, size in _own(artifact).items() if digest not in shared)
            for artifact in self.artifacts
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
        if attested.keys().isdisjoint(artifact.digest for artifact in self.artifacts):
            return self
        artifacts = tuple(artifact.after(attested.get(artifact.digest)) for artifact in self.artifacts)
        return replace(self, artifacts=artifacts)

    @classmethod
    def read(cls, value: Any) -> "VersionSummary":
        """Read what `summarize` wrote; InputError if it is anything else."""
        value = mapping(value)
        return cls(
            Digest.parse(required(value, "manifest")),
            count(required(value, "size")),
            items(required(value, "artifacts"), ArtifactSummary.read),
            items(required(value, "files"), FileSummary.read),
            *(optional(value.get(key), text) for key in ("task", "family", "license")),
        )


SUMMARY_KEYS = frozenset(item.name for item in fields(VersionSummary)) - {"profile"}
ARTIFACT_KEYS = frozenset(item.name for item in fields(ArtifactSummary)) - {"stated"}


def known_summary(value: Any) -> dict[str, Any]:
    """A summary without the keys that this build does not know. Raise InputError if it is malformed."""
    artifacts = items(mapping(value).get("artifacts"), lambda artifact: pick(artifact, ARTIFACT_KEYS))
    return pick(value, SUMMARY_KEYS) | {"artifacts": list(artifacts)}


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
) -> dict[str, Any]:
    """The summary of a manifest, as the JSON in the state line. `digest`, `size`: the manifest's.

    Args:
        every: list all artifacts, also those of a family that are not its entry. An index file never does:
            hundreds of heads would not fit.
        member: also list the artifacts of this member of a family, each with its member's name.
    """
    stages = manifest.stages if member is None else manifest.members
    first = {artifact.path for artifact in manifest.entry_artifacts}
    artifacts = [
        artifact
        for artifact in manifest.artifacts
        if every or artifact.path in first or (member is not None and stages.get(artifact.path) == member)
    ]
    value: dict[str, Any] = {
        "manifest": str(digest),
        "size": size,
        "artifacts": [_artifact(artifact, stages.get(artifact.path)) for artifact in artifacts],
        "files": [_file(entry) for entry in manifest.files],
    }
    optional = {"task": manifest.task, "family": manifest.family, "license": manifest.license}
    return value | {key: item for key, item in optional.items() if item is not None}


def _file(entry: "FileEntry") -> dict[str, Any]:
    return {"role": entry.role, "path": entry.path, "digest": str(entry.digest), "size": entry.size}


def _artifact(artifact: "Artifact", member: str | None) -> dict[str, Any]:
    operators = operator_set(artifact)
    recall = {
        check.name.partition("/")[2]: check.value
        for check in artifact.checks
        if check.name.startswith("character_recall/") and check.value is not None
    }
    value: dict[str, Any] = {
        "format": artifact.format,
        "precision": artifact.precision,
        "path": artifact.path,
        "digest": str(artifact.digest),
        "size": artifact.size,
        "state": artifact.certification.state,
    }
    optional = {
        "files": [_file(entry) for entry in artifact.files],
        "opset": artifact.metadata.opset,
        "ort_format": artifact.ort_format,
        "operators": None if operators is None else str(Digest.of(operators)),
        "providers": list(artifact.metadata.execution_providers),
        "recall": recall,
        "ir_version": artifact.ir_version,
        "domains": sorted({operator.domain for operator in artifact.operators} - {"ai.onnx"}),
        "member": member,
    }
    return value | {key: item for key, item in optional.items() if item not in (None, [], {})}
