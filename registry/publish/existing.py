"""Find the version that already publishes a manifest. Light: no pydantic on this path."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from onnxreg.registry.log.lookup import all_versions, read_blob, read_consistently, state_of
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import VersionEntry
from onnxreg.schema.log.summary import ArtifactStates, artifact_states, verdicts_of_json


class ExistingVersion(NamedTuple):
    """A complete and usable version, its manifest's bytes, and the states of its artifacts."""

    version: Version
    manifest: bytes
    states: ArtifactStates


def newest(entries: Mapping[Version, VersionEntry]) -> Version:
    """The newest version by SemVer precedence, then by the line that published it, usable or not."""
    return max(entries, key=lambda version: (version.precedence, entries[version].seq))


def find_existing(
    reader: RegistryReader, name: str, manifest: Digest, requested: Version | None
) -> ExistingVersion | None:
    """Find the version that publishing a manifest again would return; None if it would write something.

    Args:
        requested: the version to publish as; None: the next one after the newest, unless that has this
            manifest.
    """
    try:
        return read_consistently(reader, name, partial(_find_existing, reader, name, manifest, requested))
    except NotFoundError:
        return None


def _find_existing(
    reader: RegistryReader, name: str, manifest: Digest, requested: Version | None, index: IndexFile | None
) -> ExistingVersion | None:
    state = state_of(reader, name, index)
    entries = all_versions(reader, state)
    version = newest(entries) if requested is None and entries else requested
    entry = None if version is None else entries.get(version)
    if version is None or entry is None or entry.manifest != manifest or not entry.usable:
        return None
    if entry.held is not None:
        return None
    data = read_blob(reader, manifest)
    verdicts = verdicts_of_json(canonical.decode(data, "manifest"))
    return ExistingVersion(version, data, artifact_states(verdicts, entry.attested, state.refused))
