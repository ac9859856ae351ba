"""Find the version that already publishes a manifest. Light: no pydantic on this path."""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from onnxreg.registry.log.commit import read_ledger
from onnxreg.registry.log.lookup import all_versions, read_blob, read_consistently, state_of
from onnxreg.registry.log.yanked_bytes import yank_of
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Yank
from onnxreg.schema.log.state import VersionEntry
from onnxreg.schema.log.summary import ArtifactStates, artifact_states, verdicts_of_json


class ExistingVersion(NamedTuple):
    """A complete version, its manifest's bytes, the states of its artifacts, its yank, and the newest version if that
    is another one."""

    version: Version
    manifest: bytes
    states: ArtifactStates
    yank: Yank | None
    newer: Version | None


def published_as(entries: Mapping[Version, VersionEntry], manifest: Digest) -> Version | None:
    """The newest version with a manifest whose files are here, if there is one."""
    return newest({v: e for v, e in entries.items() if e.manifest == manifest and e.gone is None})


def newest(entries: Mapping[Version, VersionEntry]) -> Version | None:
    """The newest version by SemVer precedence, then by the line that published it, usable or not."""
    return max(entries, key=lambda version: (version.precedence, entries[version].seq), default=None)


def find_existing(
    reader: RegistryReader, name: str, manifest: Digest, requested: Version | None
) -> ExistingVersion | None:
    """Find the version that publishing a manifest again would return; None if it would write something.

    Args:
        requested: the version to publish as; None: the next one after the newest, unless a version has this
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
    version = published_as(entries, manifest) if requested is None else requested
    entry = None if version is None else entries.get(version)
    if version is None or entry is None or entry.manifest != manifest or entry.gone is not None:
        return None
    if entry.held is not None:
        return None
    yank = yank_of(read_ledger(reader, name, index), version) if entry.yanked else None
    data = read_blob(reader, manifest)
    verdicts = verdicts_of_json(canonical.decode(data, "manifest"))
    states, latest = artifact_states(verdicts, entry.attested, state.refused), newest(entries)
    return ExistingVersion(version, data, states, yank, None if latest == version else latest)
