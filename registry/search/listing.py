"""Rows of the list of versions of a model, and what a list of models says of one."""

from collections.abc import Collection, Mapping
from typing import Any

from onnxreg.registry.log import lookup
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.log.summary import VersionSummary


def newest(state: State) -> str | None:
    """The newest version that is neither yanked nor a pre-release."""
    version = state.newest_release()
    return None if version is None else str(version)


def channels(state: State) -> dict[str, str]:
    return {tag: str(channel.version) for tag, channel in sorted(state.channels.items())}


def versions_json(state: State, entries: Mapping[Version, VersionEntry]) -> dict[str, Any]:
    """The documented shape of `reg ls NAME --json`, newest first."""
    versions = []
    for version, entry in sorted(entries.items(), reverse=True):
        summary = lookup.held_summary(state, version)
        states = {artifact.path: artifact.state for artifact in summary.artifacts} if summary else {}
        digests = {artifact.digest for artifact in summary.artifacts} if summary else set[Digest]()
        attested = dict(entry.attested) | dict.fromkeys(
            (item for item in state.refused if item in digests), "refused"
        )
        row: dict[str, Any] = {"version": str(version), "manifest": str(entry.manifest)}
        if summary is not None:
            row["size"] = total_size(summary, entry.held)
        row |= {"state": entry.status(summary), "yanked": entry.yanked}
        row["held"] = None if entry.held is None else list(entry.held)
        if states:
            row["states"] = states
        if attested:
            row["attested"] = {str(key): word for key, word in attested.items()}
        row["channels"] = sorted(tag for tag, channel in state.channels.items() if channel.version == version)
        versions.append(row)
    return {"name": state.name, "registry": state.registry, "versions": versions}


def total_size(summary: VersionSummary, paths: Collection[str] | None) -> int:
    """Bytes of all files of a version that are held, those that are equal counted once."""
    sizes = {entry.digest: entry.size for entry in summary.files}
    for artifact in summary.artifacts:
        if paths is None or artifact.path in paths:
            sizes[artifact.digest] = artifact.size
            for entry in artifact.files:
                sizes[entry.digest] = entry.size
    return sum(sizes.values())
