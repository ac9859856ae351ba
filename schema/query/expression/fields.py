"""The fields of an expression: the kind of each, and its source in a candidate.

A candidate is one artifact of one version of one model, as a mapping from field to value. A value that nobody knows (an
opset that was not recorded, the recall of a label that was not measured) is None or absent. `docs/query.md` is the
specification.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onnxreg.schema.core.version import Version
    from onnxreg.schema.log.state import VersionEntry
    from onnxreg.schema.log.summary import ArtifactSummary, VersionSummary
    from onnxreg.schema.query.expression.evaluate import Columns

Candidate = Mapping[str, Any]


class FieldKind(Enum):
    """The kind of a field's value; the enum's value describes the literals that it is compared with."""

    TEXT = "a text, such as onnx-int8 or 'two words'"
    VERSION = "a version, such as 1.4.0"
    SIZE = "a size, such as 30MB, 28MiB or a number of bytes"
    COUNT = "a number, such as 18"
    SHARE = "a share from 0 to 1, such as 0.95"
    FLAG = "nothing: it is true or false by itself"
    LIST = "nothing: write 'stable' in channels"


FIELDS: Final[dict[str, FieldKind]] = {
    "name": FieldKind.TEXT,
    "version": FieldKind.VERSION,
    "manifest": FieldKind.TEXT,
    "channels": FieldKind.LIST,
    "newest": FieldKind.FLAG,
    "prerelease": FieldKind.FLAG,
    "yanked": FieldKind.FLAG,
    "pinned": FieldKind.FLAG,
    "task": FieldKind.TEXT,
    "family": FieldKind.TEXT,
    "license": FieldKind.TEXT,
    "profile": FieldKind.TEXT,
    "format": FieldKind.TEXT,
    "precision": FieldKind.TEXT,
    "path": FieldKind.TEXT,
    "digest": FieldKind.TEXT,
    "size": FieldKind.SIZE,
    "download_size": FieldKind.SIZE,
    "state": FieldKind.TEXT,
    "certified": FieldKind.FLAG,
    "opset": FieldKind.COUNT,
    "ort_format": FieldKind.COUNT,
    "providers": FieldKind.LIST,
    "recall": FieldKind.SHARE,
    "min_recall": FieldKind.SHARE,
}
"""Every field. `recall` maps a label to its share, and is asked with one: `recall.PHONE`."""


def candidate(
    name: str,
    version: "Version",
    entry: "VersionEntry",
    summary: "VersionSummary",
    index: int,
    channels: Collection[str] = (),
    newest: bool = False,
) -> dict[str, Any]:
    """The fields of the artifact at an index. `channels` point to this version; `newest`: it is the model's newest release."""
    return {**standing(name, version, entry, channels, newest), **contents(summary, index)}


def standing(
    name: str, version: "Version", entry: "VersionEntry", channels: Collection[str], newest: bool
) -> dict[str, Any]:
    """The fields of a version's present status in its model."""
    return {
        "name": name,
        "version": str(version),
        "manifest": str(entry.manifest),
        "channels": sorted(channels),
        "newest": newest,
        "prerelease": version.is_prerelease,
        "yanked": entry.yanked,
        "pinned": entry.pinned,
    }


def contents(summary: "VersionSummary", index: int) -> dict[str, Any]:
    """The fields that the manifest decides for ever."""
    return _shared(summary) | {name: column(summary, name)[index] for name in OF_ARTIFACTS}


def columns(standing: Mapping[str, Any], summary: "VersionSummary") -> "Columns":
    """The artifacts of a version, field by field, as `Expression.select` wants them."""
    from onnxreg.schema.query.expression.evaluate import ConstantColumn

    same = {**standing, **_shared(summary)}
    return lambda name: ConstantColumn(same[name]) if name in same else column(summary, name)


def _shared(summary: "VersionSummary") -> dict[str, Any]:
    return {
        "task": summary.task,
        "family": summary.family,
        "license": summary.license,
        "profile": summary.profile,
    }


def column(summary: "VersionSummary", name: str) -> Sequence[Any]:
    """The values of a field of all artifacts of a version; made once."""
    values = summary.columns.get(name)
    if values is None:
        values = summary.columns[name] = OF_ARTIFACTS[name](summary)
    return values


def _each(value: "Callable[[ArtifactSummary], Any]") -> "Column":
    return lambda summary: list(map(value, summary.artifacts))


Column = Callable[["VersionSummary"], Sequence[Any]]
OF_ARTIFACTS: Final[dict[str, Column]] = {
    "format": _each(attrgetter("format")),
    "precision": _each(attrgetter("precision")),
    "path": _each(attrgetter("path")),
    "digest": _each(lambda artifact: str(artifact.digest)),
    "size": _each(attrgetter("size")),
    "download_size": attrgetter("download_sizes"),
    "state": _each(attrgetter("state")),
    "certified": _each(lambda artifact: artifact.state == "certified"),
    "opset": _each(attrgetter("opset")),
    "ort_format": _each(attrgetter("ort_format")),
    "providers": _each(lambda artifact: list(artifact.providers)),
    "recall": _each(attrgetter("recall")),
    "min_recall": _each(lambda artifact: min(artifact.recall.values(), default=None)),
}
"""The fields in which the artifacts of a version differ, for all of them at once."""
