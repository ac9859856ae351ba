"""The fields that expressions test: the kind of each, and its value for an artifact. docs/query.md is the
specification.

An unknown value, such as a metric that was not measured, is None or absent.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onnxreg.schema.core.ref import Version
    from onnxreg.schema.log.state import ArtifactSummary, State, VersionEntry, VersionSummary

FieldValues = Mapping[str, Any]


class FieldKind(Enum):
    """The kind of a field. Its text is for error messages, and says how to write a value."""

    TEXT = "a text, such as onnx-int8 or 'two words'"
    VERSION = "a version, such as 1.4.0"
    SIZE = "a size, such as 30MB, 28MiB or a number of bytes"
    COUNT = "a number, such as 18"
    NUMBER = "a number, such as 0.82"
    SHARE = "a share from 0 to 1, such as 0.95"
    FLAG = "nothing: it is true or false by itself"
    LIST = "nothing: write 'stable' in channels"


FIELDS: Final[dict[str, FieldKind]] = {
    "name": FieldKind.TEXT,
    "version": FieldKind.VERSION,
    "manifest": FieldKind.TEXT,
    "channels": FieldKind.LIST,
    **dict.fromkeys(("newest", "prerelease", "yanked", "pinned"), FieldKind.FLAG),
    "latency": FieldKind.NUMBER,
    **dict.fromkeys(("task", "family", "license", "profile"), FieldKind.TEXT),
    **dict.fromkeys(("format", "precision", "path", "digest"), FieldKind.TEXT),
    **dict.fromkeys(("size", "download_size"), FieldKind.SIZE),
    "state": FieldKind.TEXT,
    "certified": FieldKind.FLAG,
    **dict.fromkeys(("opset", "ort_format"), FieldKind.COUNT),
    "providers": FieldKind.LIST,
    **dict.fromkeys(("recall", "min_recall"), FieldKind.SHARE),
    "metric": FieldKind.NUMBER,
}
# These follow from the manifest and never change. The others follow from the log.
ARTIFACT_FIELDS: Final = tuple(FIELDS)[tuple(FIELDS).index("task") :]
# The fields with labels, as in `recall.PHONE`. The texts are for messages: what a label is, and a hint.
LABELLED: Final = {
    "recall": (
        "the label whose recall is meant",
        "write recall.PHONE, recall['FIRST NAME'], or min_recall for the lowest of all",
    ),
    "metric": (
        "the name of the metric",
        "write metric['sts/spearman'], with the name of a check of the version",
    ),
}


def version_values(state: "State", version: "Version", entry: "VersionEntry") -> dict[str, Any]:
    """Return the fields of a version that depend on the log, such as `{"yanked": False}`."""
    return {
        "name": state.name,
        "version": str(version),
        "manifest": str(entry.manifest),
        "channels": sorted(tag for tag, channel in state.channels.items() if channel.version == version),
        "newest": state.newest_release() == version,
        "prerelease": version.is_prerelease,
        "yanked": entry.yanked,
        "pinned": entry.pinned,
    }


def artifact_values(summary: "VersionSummary", artifact: "ArtifactSummary", download: int) -> dict[str, Any]:
    """Return an artifact's fields, such as `{"format": "onnx-int8"}`. `download` is its download size in bytes."""
    return {
        "task": summary.task,
        "family": summary.family,
        "license": summary.license,
        "profile": summary.profile,
        "format": artifact.format,
        "precision": artifact.precision,
        "path": artifact.path,
        "digest": str(artifact.digest),
        "size": artifact.size,
        "download_size": download,
        "state": artifact.state,
        "certified": artifact.state == "certified",
        "opset": artifact.opset,
        "ort_format": artifact.ort_format,
        "providers": list(artifact.providers),
        "recall": artifact.recall,
        "min_recall": min(artifact.recall.values(), default=None),
        "metric": artifact.metrics,
        "latency": max((speed.ratio for speed in artifact.speeds), default=None),
    }
