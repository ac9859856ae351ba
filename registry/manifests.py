"""Manifests out of a store: bytes already checked, content not trusted."""

from onnxreg.schema import documents
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import InputError, IntegrityError
from onnxreg.schema.manifest import Manifest


def read_manifest(data: bytes, digest: Digest, name: str) -> Manifest:
    """Decode the manifest of a model. IntegrityError where it is none, another model's, or of an unknown version."""
    what = f"manifest {digest.short}... of {name}"
    try:
        manifest = documents.read_manifest(data, what)
    except InputError as error:
        raise IntegrityError(error.message, error.hint) from error
    if not isinstance(manifest, Manifest) or manifest.name != name:
        other = manifest.name if isinstance(manifest, Manifest) else "no model: it has format version 1"
        raise IntegrityError(
            f"{what} is the manifest of {other}", "the registry was tampered with or damaged"
        )
    return manifest
