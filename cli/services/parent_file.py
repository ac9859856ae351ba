"""The quantized file of a parent release, which gives an export its scales."""

from pathlib import Path

from onnxreg.cli.context import Session
from onnxreg.schema.core.errors import InputError, NotFoundError

QUANTIZED = "onnx-int8"
"""The format of files that have scales to take."""


def find_parent_file(session: Session, parent: str) -> Path:
    """The file that `--scales-from` names: a path, or the quantized artifact of a version in the registry.

    Raises NotFoundError if the version or its file is not there, InputError if it has none or several such artifacts.
    """
    if (path := Path(parent)).is_file():
        return path
    registry = session.open()
    published = registry.get(parent)
    artifacts = [item for item in published.manifest.artifacts if item.format == QUANTIZED]
    if not artifacts:
        raise InputError(
            f"{published.ref} has no scales to take: it has no file of the format {QUANTIZED}",
            "name another version: --scales-from NAME:VERSION",
        )
    if len(artifacts) > 1:
        paths = ", ".join(item.path for item in artifacts)
        raise InputError(
            f"{published.ref} has {len(artifacts)} files of the format {QUANTIZED}: {paths}",
            f"pull it and name one: reg pull {published.ref} old, then --scales-from old/{artifacts[0].path}",
        )
    (artifact,) = artifacts
    if not registry.store.has({artifact.digest}):
        raise NotFoundError(
            f"{artifact.path} of {published.ref} is not in this registry",
            f"fetch it: reg pull {published.ref}",
        )
    return registry.store.blob_path(artifact.digest)
