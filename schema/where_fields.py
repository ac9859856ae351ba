"""The fields that an expression may ask about: what each of them is, and where a candidate has it from.

A candidate is one artifact of one version of one model, as a mapping from field to value. A value that nobody knows (an
opset that was not recorded, the recall of a label that was not measured) is None or absent. `docs/query.md` is the
specification.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onnxreg.schema.state import Entry
    from onnxreg.schema.summary import ArtifactSummary, VersionSummary
    from onnxreg.schema.version import Version

Candidate = Mapping[str, Any]


class Kind(Enum):
    """What a field holds; the value says what may be written beside it."""

    TEXT = "a text, such as onnx-int8 or 'two words'"
    VERSION = "a version, such as 1.4.0"
    SIZE = "a size, such as 30MB, 28MiB or a number of bytes"
    COUNT = "a number, such as 18"
    SHARE = "a share from 0 to 1, such as 0.95"
    FLAG = "nothing: it is true or false by itself"
    LIST = "nothing: write 'stable' in channels"


FIELDS: Final[dict[str, Kind]] = {
    "name": Kind.TEXT,
    "version": Kind.VERSION,
    "manifest": Kind.TEXT,
    "channels": Kind.LIST,
    "newest": Kind.FLAG,
    "prerelease": Kind.FLAG,
    "yanked": Kind.FLAG,
    "pinned": Kind.FLAG,
    "task": Kind.TEXT,
    "family": Kind.TEXT,
    "license": Kind.TEXT,
    "format": Kind.TEXT,
    "precision": Kind.TEXT,
    "path": Kind.TEXT,
    "digest": Kind.TEXT,
    "size": Kind.SIZE,
    "download_size": Kind.SIZE,
    "state": Kind.TEXT,
    "certified": Kind.FLAG,
    "opset": Kind.COUNT,
    "ort_format": Kind.COUNT,
    "providers": Kind.LIST,
    "recall": Kind.SHARE,
    "min_recall": Kind.SHARE,
}
"""Every field. `recall` maps a label to its share, and is asked with one: `recall.PHONE`."""


def candidate(
    name: str,
    version: "Version",
    entry: "Entry",
    summary: "VersionSummary",
    artifact: "ArtifactSummary",
    channels: Collection[str] = (),
    newest: bool = False,
) -> dict[str, Any]:
    """The fields of one artifact. `channels` hold this version; `newest`: it is the model's newest release."""
    return {
        "name": name,
        "version": str(version),
        "manifest": str(entry.manifest),
        "channels": list(channels),
        "newest": newest,
        "prerelease": version.is_prerelease,
        "yanked": entry.yanked,
        "pinned": entry.pinned,
        "task": summary.task,
        "family": summary.family,
        "license": summary.license,
        "format": artifact.format,
        "precision": artifact.precision,
        "path": artifact.path,
        "digest": str(artifact.digest),
        "size": artifact.size,
        "download_size": artifact.download_size,
        "state": artifact.state,
        "certified": artifact.state == "certified",
        "opset": artifact.opset,
        "ort_format": artifact.ort_format,
        "providers": list(artifact.providers),
        "recall": artifact.recall,
        "min_recall": min(artifact.recall.values(), default=None),
    }
