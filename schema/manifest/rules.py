"""The rules of a manifest that join two fields, and its derived properties: light, without the documents' pydantic.

A document and the plain object of the same JSON (`plain_manifest`) share these classes. `check_rules` raises ValueError
with the rule that is broken.

The version 1 keys that repeat a verdict are checked against the verdict:

    certified            true: an artifact is certified, and none is refused; false: not all that were judged are certified
    quant_recall_delta   the value of the check of that name; beside `certified` at most the limit

They are at the top of a manifest, in `quantization`, and beside each artifact in `metadata`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Literal

from onnxreg.schema.core.descriptor import Piece, Pieces
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.paths import check_distinct
from onnxreg.schema.core.units import MAX_SIZE_BYTES
from onnxreg.schema.manifest.family_rules import Graph, Tensor, check_artifacts

if TYPE_CHECKING:
    from onnxreg.schema.manifest.family import ModelFamily
    from onnxreg.schema.manifest.manifest import Artifact, ArtifactMetadata, Dim, FileEntry, PieceDigests
    from onnxreg.schema.manifest.parts import ArtifactCertification, Check, Evidence

FILENAME = "openmed-onnx.json"
ASIDE = ("golden", "operator-config")
"""Roles of sidecars that no runtime loads: one tests it, one builds it."""
UNJUDGED = ("not evaluated",)
"""The reasons of a certification without an evaluation."""
CHANNELS = {"RGB": 3, "BGR": 3, "L": 1}
"""The number of channels of each colour order; `L` is luminance alone."""
LOSS = "quant_recall_delta"
"""The check whose value is the largest loss of recall of any label against the full-precision parent."""
LIMIT = 0.005
"""The most that a certified artifact may lose, if nothing names another limit: that of the gate G4."""
Place = tuple[str, Mapping[str, Any], Collection[Any]]
"""The path of the keys, their values, and the artifacts that they are about."""


class PieceDigestsRules:
    """The rules and properties of `manifest.PieceDigests`."""

    if TYPE_CHECKING:
        size: int
        digests: tuple[Digest, ...]

    def fits(self, total: int) -> bool:
        """True if a file of so many bytes has so many pieces."""
        return -(-total // self.size) == len(self.digests)


class FileEntryRules:
    """The rules and properties of `manifest.FileEntry`."""

    if TYPE_CHECKING:
        size: int
        pieces: PieceDigests | None

    def check_rules(self) -> None:
        if self.pieces is not None and not self.pieces.fits(self.size):
            raise ValueError("pieces are not as many as the size asks for")

    def spans(self) -> tuple[Piece, ...]:
        """The pieces in order; none if their digests are not known."""
        return Pieces(self.pieces.size, self.pieces.digests).spans(self.size) if self.pieces else ()


class DimRules:
    """The rules and properties of `manifest.Dim`."""

    if TYPE_CHECKING:
        kind: Literal["dynamic", "static"]
        name: str | None
        value: int | None

    def check_rules(self) -> None:
        if (self.kind == "static") != (self.value is not None):
            raise ValueError("a static axis has a value, a dynamic axis has none")

    @property
    def text(self) -> str:
        """The length of a static axis, the name of a dynamic one, `?` if it has none."""
        return str(self.value) if self.kind == "static" else self.name or "?"


class TensorSpecRules:
    """The rules and properties of `manifest.TensorSpec`."""

    if TYPE_CHECKING:
        dtype: str
        axes: tuple[str, ...]
        shape: tuple[Dim, ...]

    def check_rules(self) -> None:
        if self.axes and len(self.axes) != len(self.shape):
            raise ValueError(f"{len(self.axes)} axes are named, the shape has {len(self.shape)}")

    @property
    def tensor(self) -> Tensor:
        return self.dtype, tuple(dim.value for dim in self.shape)

    @property
    def shape_text(self) -> str:
        """`[batch, 384]`"""
        return f"[{', '.join(dim.text for dim in self.shape)}]"


class WeightCountRules:
    """The rules and properties of `manifest.WeightCount`."""

    if TYPE_CHECKING:
        weights_quantized: int
        weights_total: int
        bytes_quantized: int
        bytes_total: int

    def check_rules(self) -> None:
        if self.weights_quantized > self.weights_total or self.bytes_quantized > self.bytes_total:
            raise ValueError("more is quantized than there is")


class ArtifactRules:
    """The rules and properties of `manifest.Artifact`."""

    if TYPE_CHECKING:
        path: str
        digest: Digest
        size: int
        pieces: PieceDigests | None
        files: tuple[FileEntry, ...]
        metadata: ArtifactMetadata
        checks: tuple[Check, ...]
        certification: ArtifactCertification

    def check_rules(self) -> None:
        evidence = self.certification.evidence
        if evidence is not None and evidence.artifact != self.digest:
            raise ValueError("certification.evidence.artifact is about other bytes than digest")
        if self.pieces is not None and not self.pieces.fits(self.size):
            raise ValueError("pieces are not as many as the size asks for")
        failed = any(check.name == LOSS and check.verdict == "fail" for check in self.checks)
        if failed and self.certification.state == "certified":
            raise ValueError(f"certified, and the verdict of its check {LOSS} is fail")

    @property
    def reaches_limit(self) -> bool:
        """True if it is certified, and the interval of a loss reaches the limit."""
        return self.certification.state == "certified" and any(
            check.interval is not None and check.limit is not None and check.interval[1] >= check.limit
            for check in self.checks
        )

    @property
    def own_size(self) -> int:
        """Bytes of what a runtime loads: the main file and its sidecars, such as external data, but those in `ASIDE`.

        At most the largest size that a document can have.
        """
        size = self.size + sum(entry.size for entry in self.files if entry.role not in ASIDE)
        return min(size, MAX_SIZE_BYTES)

    @property
    def graph(self) -> Graph:
        """The part of it that a family needs."""
        sides = (self.metadata.inputs, self.metadata.outputs)
        inputs, outputs = ({spec.name: spec.tensor for spec in side} for side in sides)
        return Graph(self.digest, inputs, outputs)


class ManifestRules:
    """The rules and properties of `manifest.Manifest`."""

    if TYPE_CHECKING:
        formats: tuple[str, ...]
        artifacts: tuple[Artifact, ...]
        files: tuple[FileEntry, ...]
        model_family: ModelFamily | None

    def check_rules(self) -> None:
        if sorted(self.formats) != sorted({artifact.format for artifact in self.artifacts}):
            raise ValueError("formats does not list exactly the formats of artifacts, each once")
        self._check_files()
        self._check_artifacts()
        check_mirrored(self)
        if self.model_family is not None:
            graphs = {artifact.path: artifact.graph for artifact in self.artifacts}
            check_artifacts(self.model_family, graphs, {entry.path for entry in self.files})

    def _check_files(self) -> None:
        by_path: dict[str, tuple[Digest, int]] = {}
        files: list[Artifact | FileEntry] = []
        for artifact in self.artifacts:
            files += [artifact, *artifact.files]
        for entry in (*files, *self.files):
            if by_path.setdefault(entry.path, (entry.digest, entry.size)) != (entry.digest, entry.size):
                raise ValueError(f"path {entry.path[:80]!r} names two different files")
        check_distinct([FILENAME, *by_path])

    def _check_artifacts(self) -> None:
        parents: dict[Digest, set[Digest]] = {artifact.digest: set() for artifact in self.artifacts}
        keys: set[tuple[str, str, str]] = set()
        for index, artifact in enumerate(self.artifacts):
            key = (artifact.format, artifact.precision, artifact.path)
            if key in keys:
                raise ValueError(f"artifacts.{index} repeats format, precision and path of another artifact")
            keys.add(key)
            if artifact.parent is not None:
                if artifact.parent not in parents:
                    raise ValueError(f"artifacts.{index}.parent is not an artifact of this manifest")
                parents[artifact.digest].add(artifact.parent)
        try:
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            raise ValueError("artifacts are each other's parents") from error

    def ancestors(self, artifact: Artifact) -> list[Artifact]:
        """The artifacts of the version that one was made from, the nearest first."""
        by_digest = {item.digest: item for item in self.artifacts}
        lineage: list[Artifact] = []
        while artifact.parent is not None:
            artifact = by_digest[artifact.parent]
            lineage.append(artifact)
        return lineage

    @property
    def entry_artifacts(self) -> tuple[Artifact, ...]:
        """The artifacts that an app loads first: of a family those of its backbone or its stages, else all."""
        if self.model_family is None:
            return self.artifacts
        first = {path for member in self.model_family.entries for path in member.artifacts}
        return tuple(artifact for artifact in self.artifacts if artifact.path in first)

    @property
    def heads(self) -> frozenset[str]:
        """The paths of the heads of a family."""
        members = self.model_family.of_role("head") if self.model_family else ()
        return frozenset(path for member in members for path in member.artifacts)

    @property
    def stages(self) -> dict[str, str]:
        """The member of each artifact of a pipeline, by path."""
        members = self.model_family.stages if self.model_family else ()
        return {path: member.name for member in members for path in member.artifacts}

    @property
    def members(self) -> dict[str, str]:
        """The member of each artifact of a family, also of a pipeline, by path."""
        members = self.model_family.members if self.model_family else ()
        return {path: member.name for member in members for path in member.artifacts}


class CheckRules:
    """The rules and properties of `evidence.Check`."""

    if TYPE_CHECKING:
        name: str
        metric: str
        value: float | None
        verdict: str
        limit: float | None
        interval: tuple[float, float] | None
        direction: str | None

    def check_rules(self) -> None:
        if self.interval is not None and self.interval[0] > self.interval[1]:
            raise ValueError("the interval ends before it begins")
        if self.name == LOSS and self.verdict == "pass" and self.exceeds:
            raise ValueError(
                f"{LOSS} is {self.value:g}, its limit is {self.limit:g}, and its verdict is pass"
            )

    @property
    def label(self) -> str:
        """The name, with the metric unless the name has it: each check with a direction names its metric."""
        is_named = self.direction is not None or self.name.startswith(self.metric)
        return self.name if is_named else f"{self.name}/{self.metric}"

    @property
    def exceeds(self) -> bool:
        """True if the value of a loss is above its limit."""
        return self.value is not None and self.limit is not None and self.value > self.limit


class ArtifactCertificationRules:
    """The rules and properties of `evidence.ArtifactCertification`."""

    if TYPE_CHECKING:
        state: str
        evidence: Evidence | None

    def check_rules(self) -> None:
        if self.state == "certified":
            for key in ("artifact", "parent", "suite"):
                if getattr(self.evidence, key, None) is None:
                    raise ValueError(f"certified without evidence of the {key}")


class PreprocessingRules:
    """The rules and properties of `preprocessing.Preprocessing`."""

    if TYPE_CHECKING:
        size: tuple[int, int]
        mean: tuple[float, ...]
        std: tuple[float, ...]
        color: Literal["RGB", "BGR", "L"]
        resize: int | None

    def check_rules(self) -> None:
        channels = CHANNELS[self.color]
        if (len(self.mean), len(self.std)) != (channels, channels):
            raise ValueError(f"{self.color} has {channels} channels: mean and std need one value for each")
        if self.resize is not None and self.resize < max(self.size):
            raise ValueError("size cannot be cut out of an image whose shorter edge is smaller")


def check_mirrored(manifest: Any) -> None:
    """ValueError if a manifest says one thing of its artifacts and another of their verdicts."""
    limit = (manifest.certification or {}).get("limit")
    for path, keys, artifacts in _places(manifest):
        _check_certified(
            path, keys.get("certified"), [artifact.certification.state for artifact in artifacts]
        )
        _check_loss(path, keys, artifacts, keys.get("certification_limit", limit))


def _places(manifest: Any) -> Iterator[Place]:
    top = {key: getattr(manifest, key) for key in ("certified", LOSS)}
    yield "", top, manifest.artifacts
    yield "quantization.", manifest.quantization or {}, manifest.artifacts
    for index, artifact in enumerate(manifest.artifacts):
        metadata = artifact.metadata.model_extra or {}
        yield f"artifacts.{index}.metadata.", metadata, (artifact,)
        if isinstance(quantization := metadata.get("quantization"), Mapping):
            yield f"artifacts.{index}.metadata.quantization.", quantization, (artifact,)


def _check_certified(path: str, value: Any, states: Collection[str]) -> None:
    if value is None:
        return
    if value not in (True, False) or not isinstance(value, bool):
        raise ValueError(f"{path}certified is neither true nor false")
    proven = "certified" in states and "refused" not in states
    if value and not proven:
        raise ValueError(
            f"{path}certified is true, and certification.state of the artifacts is not certified"
        )
    if not value and proven and "unknown" not in states:
        raise ValueError(f"{path}certified is false, and certification.state of the artifacts is certified")


def _check_loss(path: str, keys: Mapping[str, Any], artifacts: Collection[Any], limit: Any) -> None:
    loss = keys.get(LOSS)
    if loss is None:
        return
    if not is_number(loss):
        raise ValueError(f"{path}{LOSS} is not a number")
    measured = {check.value for artifact in artifacts for check in artifact.checks if check.name == LOSS}
    if measured and loss not in measured:
        raise ValueError(f"{path}{LOSS} is {loss:g}, and no check of that name has this value")
    most = limit if is_number(limit) else LIMIT
    if keys.get("certified") is True and loss > most:
        raise ValueError(f"{path}{LOSS} is {loss:g} beside certified, and the limit is {most:g}")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
