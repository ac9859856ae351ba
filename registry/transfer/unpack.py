"""An artifact as files for a moment: every byte verified, in a directory that is gone afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from onnxreg.registry.log.selection import Held
from onnxreg.registry.read.resolution import Resolution
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.manifests import read_manifest
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.transfer.copy import Progress
from onnxreg.registry.transfer.export_files import fill, materialize
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.manifest.manifest import Artifact, Manifest


@dataclass(frozen=True)
class UnpackedArtifact:
    """The files of one artifact, and those that all artifacts share, below `root`."""

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
    place: RegistryReader, found: Resolution, progress: Progress | None = None
) -> Iterator[UnpackedArtifact]:
    """The files that a resolution names, read from the place that gave it. IntegrityError where one is damaged."""
    digest = found.found.entry.manifest
    data = read_blob(place, digest)
    manifest = read_manifest(data, digest, found.found.name)
    artifact = next(item for item in manifest.artifacts if item.path == found.artifact.path)
    with TemporaryDirectory(prefix="onnxreg-") as scratch:
        root = Path(scratch) / "files"
        materialize(place, manifest, data, root, progress, (artifact.path,))
        yield UnpackedArtifact(root, manifest, artifact)


@contextmanager
def fetched(
    place: RegistryReader, artifact: Artifact, held: Held = None, progress: Progress | None = None
) -> Iterator[Path]:
    """The main file of one artifact, with its external data beside it and nothing else, verified; gone afterwards.

    `held`: the paths of the artifacts that are held there, see `Published.held`; NotFoundError where this is none of them.
    """
    if held is not None and artifact.path not in held:
        raise NotFoundError(f"{artifact.path} is not held in {place.url}", "`reg pull` fetches the rest")
    parts = [file for file in artifact.all_files() if file.role in ("artifact", "external-data")]
    with TemporaryDirectory(prefix="onnxreg-") as scratch:
        fill(place, parts, Path(scratch), progress or Progress())
        yield Path(scratch) / artifact.path
