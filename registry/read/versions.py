"""One version as it was published: its manifest, and its log."""

from dataclasses import dataclass

from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.selection import ArtifactPaths
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.manifests import read_manifest
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref, check_name
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.summary import ArtifactStates, artifact_states, verdicts_of
from onnxreg.schema.manifest.manifest import Manifest


@dataclass(frozen=True)
class PublishedVersion:
    """A version in the registry: its manifest, the manifest's exact bytes, and if this call created it
    (`new`).

    `held` are the paths of the artifacts that the registry has, if not all; `states` has one for each
    artifact.
    """

    name: str
    version: Version
    digest: Digest
    manifest: Manifest
    data: bytes
    new: bool = False
    held: ArtifactPaths = None
    states: ArtifactStates = ()

    @property
    def ref(self) -> Ref:
        return Ref(self.name, str(self.version))


def read_version(reader: RegistryReader, ref: Ref) -> PublishedVersion:
    """Read a version's manifest, verified; an expired version too. NotFoundError, IntegrityError."""
    located, state = lookup.find_with_state(reader, ref, gone=True)
    data = read_blob(reader, located.entry.manifest)
    manifest = read_manifest(data, located.entry.manifest, located.name)
    entry = located.entry
    states = artifact_states(verdicts_of(manifest), entry.attested, state.refused)
    return PublishedVersion(
        located.name, located.version, entry.manifest, manifest, data, False, entry.held, states
    )


def read_log(reader: RegistryReader, name: str) -> list[LogLine]:
    """Read a model's whole log and verify its chain. NotFoundError if the model is unknown."""
    ledger, index = load(reader, check_name(name))
    if index is None:
        raise lookup.unknown_model(name, reader)
    return list(ledger.lines())
