"""One version as it was published: its manifest, and the log that it stands in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.selection import Held
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.manifests import read_manifest
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref, check_name
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.manifest.manifest import Manifest


@dataclass(frozen=True)
class PublishedVersion:
    """A version in the registry: its document, the document's exact bytes, and whether this call made it.

    `held` are the paths of the artifacts that are there, where these are not all; `attested` is what later evaluations say
    of artifacts, by their digest.
    """

    name: str
    version: Version
    digest: Digest
    manifest: Manifest
    data: bytes
    new: bool = False
    held: Held = None
    attested: Mapping[Digest, str] = field(default_factory=dict)

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


def read_version(place: RegistryReader, ref: Ref) -> PublishedVersion:
    """A version's manifest, verified; of one that expired too. NotFoundError, IntegrityError."""
    found, state = lookup.find_with_state(place, ref, gone=True)
    data = read_blob(place, found.entry.manifest)
    manifest = read_manifest(data, found.entry.manifest, found.name)
    entry = found.entry
    artifacts = {artifact.digest for artifact in manifest.artifacts}
    verdicts = {digest: word for digest, word in state.verdicts(entry).items() if digest in artifacts}
    return PublishedVersion(
        found.name, found.version, entry.manifest, manifest, data, False, entry.held, verdicts
    )


def read_log(place: RegistryReader, name: str) -> list[LogLine]:
    """A model's whole log, its chain verified. NotFoundError where the model is unknown."""
    ledger, index = load(place, check_name(name))
    if index is None:
        raise lookup.unknown(name, place)
    return list(ledger.lines())
