"""Manifests out of a store: bytes already checked, content not trusted. Light until one is validated."""

from typing import TYPE_CHECKING, Any

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.log.summary import completed, summarize

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
        raise IntegrityError(error.message, error.advice) from error
    if not isinstance(manifest, Manifest) or manifest.name != name:
        actual_name = manifest.name if isinstance(manifest, Manifest) else "no model: it has format version 1"
        raise IntegrityError(
            f"{label} is the manifest of {actual_name}", "the registry was tampered with or damaged"
        )
    return manifest


def read_plain_manifest(data: bytes, digest: Digest, name: str) -> "Manifest":
    """The same for a verb that prints it: a tenth of a second earlier; see `plain_manifest`."""
    from onnxreg.schema.manifest.plain_manifest import plain_manifest

    try:
        manifest = plain_manifest(data)
    except (InputError, ValueError):
        return read_manifest(data, digest, name)
    return manifest if manifest.name == name else read_manifest(data, digest, name)


def check_summary(summary: Any, data: bytes, digest: Digest, name: str) -> None:
    """Compare the summary in an index file with the manifest's bytes. IntegrityError if they differ.

    Keys of the summary that this build does not know are not compared, nor those that an older build did not write.
    """
    derived = summarize(read_manifest(data, digest, name), digest, len(data))
    try:
        is_same = completed(summary, derived) == derived
    except InputError:
        is_same = False
    if not is_same:
        raise IntegrityError(
            f"the index of {name} says other things of manifest {digest.short}... than the manifest itself",
            Advice("verify-index"),
        )
