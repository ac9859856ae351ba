"""Unpack an artifact into a temporary directory, every byte verified."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from onnxreg.registry.deliver.resolution import Resolution
from onnxreg.registry.log.contents import ArtifactPaths, download_files
from onnxreg.registry.store.blobs import read_blob, read_manifest
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.export_files import fill, materialize
from onnxreg.schema.core.errors import Advice, NotFoundError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.manifest.manifest import Artifact, Manifest


@dataclass(frozen=True)
class UnpackedArtifact:
    """Files of one artifact, and the companions that it needs, below `root`."""

    root: Path
    manifest: Manifest
    artifact: Artifact

    @property
    def main(self) -> Path:
        return self.root / self.artifact.path

    def sidecar(self, role: str) -> Path | None:
        """The artifact's own file of a role."""
        return next((self.root / file.path for file in self.artifact.files if file.role == role), None)


@contextmanager
def unpacked(
    reader: RegistryReader, resolution: Resolution, progress: Progress = SILENT
) -> Iterator[UnpackedArtifact]:
    """Unpack the files of a resolution from the registry that gave it. IntegrityError if one is damaged."""
    digest = resolution.located.entry.manifest
    data = read_blob(reader, digest)
    manifest = read_manifest(data, digest, resolution.located.name)
    artifact = next(item for item in manifest.artifacts if item.path == resolution.artifact.path)
    with TemporaryDirectory(prefix="onnxreg-") as scratch:
        root = Path(scratch) / "files"
        materialize(reader, download_files(manifest, artifact), data, root, progress)
        yield UnpackedArtifact(root, manifest, artifact)


@contextmanager
def fetched(
    reader: RegistryReader,
    artifact: Artifact,
    present: ArtifactPaths = None,
    progress: Progress = SILENT,
) -> Iterator[Path]:
    """Fetch the main file of one artifact into a temporary directory, with only its external data beside it,
    verified.

    `present`: the paths of the artifacts that the registry holds, see `PublishedVersion.held`; NotFoundError
    if this artifact is not one of them.
    """
    if present is not None and artifact.path not in present:
        raise NotFoundError(f"{artifact.path} is not held in {reader.url}", Advice("pull-artifact"))
    parts = [file for file in artifact.all_files() if file.role in ("artifact", "external-data")]
    with TemporaryDirectory(prefix="onnxreg-") as scratch:
        fill(reader, parts, Path(scratch), progress)
        yield Path(scratch) / artifact.path
