"""Manifests out of a store: bytes already checked, content not trusted."""

from typing import Any

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.log.summary import known_summary, summarize
from onnxreg.schema.manifest import dispatch
from onnxreg.schema.manifest.manifest import Manifest


def read_manifest(data: bytes, digest: Digest, name: str) -> Manifest:
    """Decode the manifest of a model. IntegrityError where it is none, another model's, or of an unknown version."""
    what = f"manifest {digest.short}... of {name}"
    try:
        manifest = dispatch.read_manifest(data, what)
    except InputError as error:
        raise IntegrityError(error.message, error.hint) from error
    if not isinstance(manifest, Manifest) or manifest.name != name:
        other = manifest.name if isinstance(manifest, Manifest) else "no model: it has format version 1"
        raise IntegrityError(
            f"{what} is the manifest of {other}", "the registry was tampered with or damaged"
        )
    return manifest


def check_summary(held: Any, data: bytes, digest: Digest, name: str) -> None:
    """IntegrityError where an index file's summary of a version says other things than its manifest, whose bytes are given.

    Keys of the summary that this build does not know are not compared.
    """
    try:
        known = known_summary(held)
    except InputError:
        known = None
    if known != summarize(read_manifest(data, digest, name), digest, len(data)):
        raise IntegrityError(
            f"the index of {name} says other things of manifest {digest.short}... than the manifest itself",
            "the index file was tampered with or damaged: run `reg verify` where it lies",
        )
