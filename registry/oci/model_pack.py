"""The documents of a version in an OCI registry. Pure: the same version gives the same bytes anywhere.

| document | content |
|---|---|
| index | one manifest for each artifact that is not refused, then the manifest of the version |
| manifest of an artifact | CNCF ModelPack: its config, its files, and the companions of the version |
| manifest of the version | our manifest, byte for byte, and every file: what `reg pull --output` writes |
| referrer | one statement about the version; its `subject` is the index |
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.summary import ArtifactStates
from onnxreg.schema.manifest.manifest import MEDIA_TYPE, Artifact, FileEntry, Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
VERSION = "application/vnd.onnxreg.version.v1+json"
"""The artifact type of an index that is a version, and of the manifest in it that has the whole version."""
MODEL_PACK = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_CONFIG = b"{}"
WEIGHTS = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
DOC = "application/vnd.cncf.model.doc.v1.raw"
_DOC_ROLES = frozenset({"report", "readme", "license", "golden"})
_TITLE = "org.opencontainers.image.title"
_FILE_PATH = "org.cncf.model.filepath"
TAG = "org.opencontainers.image.version"
WHOLE = "org.onnxreg.manifest"
"""The annotation of the manifest that has the whole version: the digest of our manifest. Every copy of an index keeps it."""


@dataclass(frozen=True)
class OciDocument:
    """A document as it is sent. `about` are annotations of its descriptor."""

    data: bytes
    media_type: str
    artifact_type: str = ""
    about: Mapping[str, str] | None = None

    @property
    def digest(self) -> Digest:
        return Digest.of(self.data)

    def descriptor(self) -> dict[str, Any]:
        value: dict[str, Any] = descriptor(self.media_type, self.digest, len(self.data))
        if self.artifact_type:
            value["artifactType"] = self.artifact_type
        if self.about:
            value["annotations"] = dict(self.about)
        return value


@dataclass(frozen=True)
class PackedVersion:
    """A version as OCI documents: the index, the manifests in it, and the small blobs that they refer to."""

    index: OciDocument
    manifests: tuple[OciDocument, ...]
    blobs: tuple[OciDocument, ...]


def descriptor(media_type: str, digest: Digest, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": str(digest), "size": size}


def pack(manifest: Manifest, data: bytes, version: Version, states: ArtifactStates) -> PackedVersion:
    """Pack a version; `data` are the bytes of its manifest, `states` those of its artifacts now."""
    empty = OciDocument(EMPTY_CONFIG, EMPTY)
    original = OciDocument(data, MEDIA_TYPE)
    state_of = {item.path: item.state for item in states}
    packs, blobs = [], [empty, original]
    for artifact in manifest.artifacts:
        state = state_of[artifact.path]
        if state != "refused":
            config = _config(manifest, artifact, version)
            blobs.append(config)
            packs.append(_model_pack(manifest, artifact, config, version, state))
    files = {file.path: _layer(file) for file in manifest.all_files()}
    layers = [_titled(original.descriptor(), FILENAME), *(files[path] for path in sorted(files))]
    about = {**_about(manifest, version), WHOLE: str(original.digest)}
    version_manifest = _manifest(VERSION, empty.descriptor(), layers, about)
    manifests = (*packs, version_manifest)
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "artifactType": VERSION,
        "manifests": [document.descriptor() for document in manifests],
        "annotations": _about(manifest, version),
    }
    return PackedVersion(
        OciDocument(canonical.encode(index), INDEX, VERSION),
        manifests,
        tuple({blob.digest: blob for blob in blobs}.values()),
    )


def statement_document(
    subject: OciDocument, statement: Digest, size: int, media_type: str, about: Mapping[str, str]
) -> OciDocument:
    """The referrer that brings a statement about a version."""
    layer = descriptor(media_type, statement, size)
    config = OciDocument(EMPTY_CONFIG, EMPTY).descriptor()
    return _manifest(media_type, config, [layer], about, subject)


def referrers_index(descriptors: Iterable[Mapping[str, Any]]) -> bytes:
    """The index of the fallback tag, for registries without the referrers API."""
    return canonical.encode({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(descriptors)})


def _manifest(
    artifact_type: str,
    config: Mapping[str, Any],
    layers: list[dict[str, Any]],
    annotations: Mapping[str, str],
    subject: OciDocument | None = None,
) -> OciDocument:
    value = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": artifact_type,
        "config": config,
        "layers": layers,
        "annotations": dict(annotations),
    }
    if subject is not None:
        value["subject"] = descriptor(subject.media_type, subject.digest, len(subject.data))
    return OciDocument(canonical.encode(value), MANIFEST, artifact_type, annotations)


def _model_pack(
    manifest: Manifest, artifact: Artifact, config: OciDocument, version: Version, state: str
) -> OciDocument:
    about = {
        **_about(manifest, version),
        "org.onnxreg.format": artifact.format,
        "org.onnxreg.precision": artifact.precision,
        "org.onnxreg.certification": state,
        "org.onnxreg.path": artifact.path,
    }
    return _manifest(MODEL_PACK, config.descriptor(), _layers(manifest, artifact), about)


def _layers(manifest: Manifest, artifact: Artifact) -> list[dict[str, Any]]:
    files = {file.path: file for file in (*artifact.all_files(), *manifest.files)}
    return [_layer(file) for file in files.values()]


def _layer(file: FileEntry) -> dict[str, Any]:
    if file.role in ("artifact", "external-data"):
        media_type = WEIGHTS
    else:
        media_type = DOC if file.role in _DOC_ROLES else WEIGHT_CONFIG
    return _titled(descriptor(media_type, file.digest, file.size), file.path)


def _titled(layer: dict[str, Any], path: str) -> dict[str, Any]:
    return {**layer, "annotations": {_TITLE: path, _FILE_PATH: path}}


def _config(manifest: Manifest, artifact: Artifact, version: Version) -> OciDocument:
    about_model: dict[str, Any] = {"name": manifest.name, "version": str(version)}
    if manifest.family:
        about_model["family"] = manifest.family
    if manifest.license:
        about_model["licenses"] = [manifest.license]
    if manifest.description:
        about_model["description"] = manifest.description
    value = {
        "descriptor": about_model,
        "config": {
            "format": "ort" if artifact.format.startswith("ort") else "onnx",
            "precision": artifact.precision,
        },
        "modelfs": {
            "type": "layers",
            "diffIds": [layer["digest"] for layer in _layers(manifest, artifact)],
        },
    }
    return OciDocument(canonical.encode(value), CONFIG)


def _about(manifest: Manifest, version: Version) -> dict[str, str]:
    texts = {"licenses": manifest.license, "description": manifest.description}
    stated = {f"org.opencontainers.image.{key}": text for key, text in texts.items() if text}
    return {_TITLE: manifest.name, TAG: str(version), **stated}
