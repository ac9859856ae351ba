"""What the index file says of a version, so that one small request answers a query.

A summary is derived from the manifest by `summarize` and holds nothing else; `reg verify` compares the two.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from onnxreg.schema import canonical
from onnxreg.schema.digest import Digest

if TYPE_CHECKING:
    from onnxreg.schema.manifest import Artifact, FileEntry, Manifest


@dataclass(frozen=True, slots=True)
class FileSummary:
    role: str
    path: str
    digest: Digest
    size: int

    @classmethod
    def read(cls, value: dict[str, Any]) -> "FileSummary":
        return cls(value["role"], value["path"], Digest.parse(value["digest"]), value["size"])


@dataclass(frozen=True, slots=True)
class ArtifactSummary:
    """One artifact: what a device must know before it downloads.

    `operators` is the digest of the operator-set blob: the canonical JSON of the manifest's `operators`.
    `recall` maps a label to its measured recall.
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

    @property
    def download_size(self) -> int:
        return self.size + sum(entry.size for entry in self.files)

    @classmethod
    def read(cls, value: dict[str, Any]) -> "ArtifactSummary":
        operators = value.get("operators")
        return cls(
            value["format"],
            value["precision"],
            value["path"],
            Digest.parse(value["digest"]),
            value["size"],
            value["state"],
            tuple(FileSummary.read(entry) for entry in value.get("files", ())),
            value.get("opset"),
            value.get("ort_format"),
            None if operators is None else Digest.parse(operators),
            tuple(value.get("providers", ())),
            value.get("recall", {}),
        )


@dataclass(frozen=True, slots=True)
class VersionSummary:
    """One version: its manifest, its artifacts, and the companions they share."""

    manifest: Digest
    size: int
    artifacts: tuple[ArtifactSummary, ...]
    files: tuple[FileSummary, ...]

    @classmethod
    def read(cls, value: dict[str, Any]) -> "VersionSummary":
        return cls(
            Digest.parse(value["manifest"]),
            value["size"],
            tuple(ArtifactSummary.read(artifact) for artifact in value["artifacts"]),
            tuple(FileSummary.read(entry) for entry in value["files"]),
        )


def operator_set(artifact: "Artifact") -> bytes | None:
    """The operator-set blob of an artifact: equal sets of different versions share it. None without operators."""
    operators = [operator.to_json() for operator in artifact.operators]
    return canonical.encode(operators) if operators else None


def summarize(manifest: "Manifest", digest: Digest, size: int) -> dict[str, Any]:
    """The summary of a manifest, as the JSON that stands in the state line. `digest`, `size`: the manifest's."""
    value: dict[str, Any] = {
        "manifest": str(digest),
        "size": size,
        "artifacts": [_artifact(artifact) for artifact in manifest.artifacts],
        "files": [_file(entry) for entry in manifest.files],
    }
    optional = {"task": manifest.task, "family": manifest.family, "license": manifest.license}
    return value | {key: item for key, item in optional.items() if item is not None}


def _file(entry: "FileEntry") -> dict[str, Any]:
    return {"role": entry.role, "path": entry.path, "digest": str(entry.digest), "size": entry.size}


def _artifact(artifact: "Artifact") -> dict[str, Any]:
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
    }
    return value | {key: item for key, item in optional.items() if item not in (None, [], {})}
