"""Rows of the list of models, and of the list of versions of a model."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from onnxreg.registry.log import lookup
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.log.summary import VersionSummary


class ModelListing(NamedTuple):
    """One model: its newest release, if any, how many versions it has, and which version each channel holds."""

    name: str
    newest: str | None
    versions: int
    channels: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "versions": self.versions,
            "newest": self.newest,
            "channels": self.channels,
        }


def read_model(remote: RegistryReader, name: str) -> ModelListing:
    """Read one model from its index file. IntegrityError, NotFoundError or HostError if that cannot be read."""
    return listing_of(*lookup.read_versions(remote, name))


def read_models(reader: RegistryReader, names: Iterable[str]) -> tuple[list[ModelListing], list[str]]:
    """Read models from their index files; also return what is wrong with those that cannot be read."""
    models: list[ModelListing] = []
    damages: list[str] = []
    for name in names:
        try:
            models.append(read_model(reader, name))
        except (IntegrityError, NotFoundError, HostError) as damage:
            damages.append(damage.message)
    return models, damages


def listing_of(state: State, versions: Collection[Version]) -> ModelListing:
    """The row of a model with these versions."""
    return ModelListing(state.name, newest(state), len(versions), channels(state))


def newest(state: State) -> str | None:
    """The newest version that is neither yanked nor a pre-release."""
    version = state.newest_release()
    return None if version is None else str(version)


def channels(state: State) -> dict[str, str]:
    return {tag: str(channel.version) for tag, channel in sorted(state.channels.items())}


def versions_json(state: State, entries: Mapping[Version, VersionEntry]) -> dict[str, Any]:
    """The documented shape of `reg ls NAME --json`, newest first."""
    versions = [_version(state, version, entry) for version, entry in sorted(entries.items(), reverse=True)]
    return {"name": state.name, "registry": state.registry, "versions": versions}


def _version(state: State, version: Version, entry: VersionEntry) -> dict[str, Any]:
    summary = lookup.held_summary(state, version)
    verdicts = _verdicts(state, entry, summary)
    states = {artifact.path: artifact.state for artifact in summary.artifacts} if summary else {}
    return {
        "version": str(version),
        "manifest": str(entry.manifest),
        **({} if summary is None else {"size": total_size(summary, entry.held)}),
        "state": entry.status(summary),
        "yanked": entry.yanked,
        "held": None if entry.held is None else list(entry.held),
        **({"states": states} if states else {}),
        **({"attested": {str(key): word for key, word in verdicts.items()}} if verdicts else {}),
        "channels": sorted(tag for tag, channel in state.channels.items() if channel.version == version),
    }


def _verdicts(state: State, entry: VersionEntry, summary: VersionSummary | None) -> Mapping[Digest, str]:
    """Verdicts of later evaluations on a version's artifacts, and refusals of the same bytes in other
    versions.
    """
    artifacts = {artifact.digest for artifact in summary.artifacts} if summary else set()
    refused = dict.fromkeys((digest for digest in state.refused if digest in artifacts), "refused")
    return {**entry.attested, **refused}


def total_size(summary: VersionSummary, paths: Collection[str] | None) -> int:
    """Bytes of all files of a version that are held, those that are equal counted once."""
    sizes = {entry.digest: entry.size for entry in summary.files}
    for artifact in summary.artifacts:
        if paths is None or artifact.path in paths:
            sizes[artifact.digest] = artifact.size
            for entry in artifact.files:
                sizes[entry.digest] = entry.size
    return sum(sizes.values())
