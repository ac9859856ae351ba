"""The manifests that a log names: read, and compared with the summaries of them. Pydantic is imported on demand."""

from typing import TYPE_CHECKING

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.log.summary import VersionSummary, summarize

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Manifest


def read_manifest(data: bytes, digest: Digest, name: str) -> "Manifest":
    """Decode the manifest of a model. IntegrityError if it is not a manifest, of another model, or of an unknown version."""
    from onnxreg.schema.manifest.manifest import Manifest
    from onnxreg.schema.manifest.manifest import read_manifest as read_any_manifest

    label = f"manifest {digest.short}... of {name}"
    try:
        manifest = read_any_manifest(data, label)
    except InputError as error:
        raise IntegrityError(error.message, error.hint) from error
    if not isinstance(manifest, Manifest) or manifest.name != name:
        actual_name = manifest.name if isinstance(manifest, Manifest) else "no model: it has format version 1"
        raise IntegrityError(
            f"{label} is the manifest of {actual_name}", "the registry was tampered with or damaged"
        )
    return manifest


def check_summary(summary: VersionSummary, data: bytes, digest: Digest, name: str) -> None:
    """Compare the summary in an index file with the manifest's bytes. IntegrityError if they differ."""
    if summary != summarize(read_manifest(data, digest, name), digest, len(data)):
        raise IntegrityError(
            f"the index of {name} says other things of manifest {digest.short}... than the manifest itself",
            "the index file was tampered with or damaged: run `reg verify` on it",
        )
