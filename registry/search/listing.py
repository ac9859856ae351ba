"""The list of versions of a model."""

from collections.abc import Collection
from typing import Any

from onnxreg.registry.log.log import Log
from onnxreg.schema.log.summary import VersionSummary


def versions_json(log: Log) -> dict[str, Any]:
    """The documented shape of `reg ls NAME --json`, newest first."""
    state, versions = log.state, []
    for version, entry in sorted(log.versions.items(), reverse=True):
        summary = state.effective_summary(version)
        artifacts = summary.artifacts if summary else ()
        digests = {artifact.digest for artifact in artifacts}
        attested = {**entry.attested, **{digest: "refused" for digest in state.refused if digest in digests}}
        row = {
            "version": str(version),
            "manifest": str(entry.manifest),
            "size": None if summary is None else total_size(summary, entry.held),
            "state": entry.status(summary),
            "yanked": entry.yanked,
            "held": None if entry.held is None else list(entry.held),
            "states": {artifact.path: artifact.state for artifact in artifacts},
            "attested": {str(digest): word for digest, word in attested.items()},
            "channels": sorted(tag for tag, channel in state.channels.items() if channel.version == version),
        }
        optional = ("size", "states", "attested")
        versions.append({key: row[key] for key in row if key not in optional or row[key] not in (None, {})})
    return {"name": state.name, "registry": state.registry, "versions": versions}


def total_size(summary: VersionSummary, paths: Collection[str] | None) -> int:
    """Bytes of all files of a version that are held, those that are equal counted once."""
    artifacts = [item for item in summary.artifacts if paths is None or item.path in paths]
    sizes = {item.digest: item.size for item in artifacts}
    sizes |= {entry.digest: entry.size for item in artifacts for entry in item.files}
    return sum((sizes | {entry.digest: entry.size for entry in summary.files}).values())
