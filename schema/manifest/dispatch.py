"""Dispatch of a manifest to the class that reads it, by `format` and `format_version`."""

from typing import TYPE_CHECKING

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import FILENAME, Manifest

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest_v1 import ManifestV1

FORMAT = "openmed-onnx"
VERSIONS = (1, 2)


def read_manifest(data: bytes, label: str = FILENAME) -> "Manifest | ManifestV1":
    """Read a manifest of any version this build knows; InputError for another version or another document."""
    value = canonical.decode(data, label)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InputError(
            f"{label} is not a manifest: its format is not {FORMAT!r}", "expected an openmed-onnx.json"
        )
    version = value.get("format_version")
    if version == 1 and version is not True:
        from onnxreg.schema.manifest.manifest_v1 import ManifestV1

        return ManifestV1.decode(data, label)
    if version == 2:
        return Manifest.decode(data, label)
    readable = " and ".join(map(str, VERSIONS))
    raise InputError(
        f"{label} has format_version {str(version)[:40]!r}; this build reads {readable}",
        "upgrade onnxreg to read a newer version: pip install --upgrade onnxreg",
    )
