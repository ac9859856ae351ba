"""Whether publishing a manifest would change anything. Light: no pydantic on this path."""

from collections.abc import Mapping
from functools import partial

from onnxreg.registry.log.lookup import all_versions, state_of
from onnxreg.registry.store.blobs import read_blob, steady
from onnxreg.registry.store.protocol import IndexFile, RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.state import VersionEntry

Standing = tuple[Version, bytes]
"""A version that is whole and usable, and its manifest's bytes."""


def newest(entries: Mapping[Version, VersionEntry]) -> Version:
    """The newest version by SemVer precedence, then by the line that published it, usable or not."""
    return max(entries, key=lambda version: (version.precedence, entries[version].seq))


def standing(remote: RegistryReader, name: str, manifest: Digest, asked: Version | None) -> Standing | None:
    """The version that publishing a manifest again would give back; None where it would write something.

    Args:
        asked: the version to publish as; absent, the next one after the newest, unless that is this very manifest.
    """
    try:
        return steady(remote, name, partial(_standing, remote, name, manifest, asked))
    except NotFoundError:
        return None


def _standing(
    remote: RegistryReader, name: str, manifest: Digest, asked: Version | None, index: IndexFile | None
) -> Standing | None:
    entries = all_versions(remote, state_of(remote, name, index))
    version = newest(entries) if asked is None and entries else asked
    entry = None if version is None else entries.get(version)
    if version is None or entry is None or entry.manifest != manifest or not entry.usable:
        return None
    return None if entry.held is not None else (version, read_blob(remote, manifest))
