"""The documents of a version in an OCI registry. Pure: the same version gives the same bytes anywhere.

One manifest, under the tag, is the version: a CNCF ModelPack whose layers are `openmed-onnx.json` and every file, each as
it is, titled by its path. A referrer is a manifest with one statement about the version; its `subject` is that manifest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MODEL_PACK = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHTS = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
DOC = "application/vnd.cncf.model.doc.v1.raw"
ROLE_TYPES = {"artifact": WEIGHTS, "external-data": WEIGHTS} | dict.fromkeys(
    ("report", "readme", "license", "golden"), DOC
)
"""The media type of a file by its role; `WEIGHT_CONFIG` for every other one."""
EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_CONFIG = b"{}"
TITLE, VERSION = "org.opencontainers.image.title", "org.opencontainers.image.version"
WHOLE = "org.onnxreg.manifest"
"""The annotation of a version: the digest of our manifest."""


@dataclass(frozen=True)
class OciDocument:
    """A manifest, index or config as it is sent."""

    data: bytes
    media_type: str
    artifact_type: str = ""

    @property
    def digest(self) -> Digest:
        return Digest.of(self.data)

    def descriptor(self) -> dict[str, Any]:
        more = {"artifactType": self.artifact_type} if self.artifact_type else {}
        return _descriptor(self.media_type, self.digest, len(self.data)) | more


def _descriptor(media_type: str, digest: Digest, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": str(digest), "size": size}


def version_documents(manifest: Manifest, data: bytes, version: Version) -> tuple[OciDocument, OciDocument]:
    """The OCI manifest of a version, and its config. `data` are the bytes of our manifest.

    The config states a format or precision only if all artifacts have the same.
    """
    files = {FILENAME: _descriptor(WEIGHT_CONFIG, Digest.of(data), len(data))}
    for file in sorted(manifest.all_files(), key=lambda file: file.path):
        files[file.path] = _descriptor(ROLE_TYPES.get(file.role, WEIGHT_CONFIG), file.digest, file.size)
    for path, layer in files.items():
        layer["annotations"] = {TITLE: path, "org.cncf.model.filepath": path}
    for artifact in manifest.artifacts:
        files[artifact.path]["annotations"] |= {
            "org.onnxreg.format": artifact.format,
            "org.onnxreg.precision": artifact.precision,
            "org.onnxreg.certification": artifact.certification.state,
        }
    about = {TITLE: manifest.name, VERSION: str(version), WHOLE: str(Digest.of(data))}
    texts = {"licenses": manifest.license, "description": manifest.description}
    about |= {f"org.opencontainers.image.{key}": text for key, text in texts.items() if text}
    model: dict[str, Any] = {"name": manifest.name, "version": str(version)}
    model |= {key: text for key in ("family", "description") if (text := getattr(manifest, key))}
    model |= {"licenses": [manifest.license]} if manifest.license else {}
    formats = {"ort" if item.format.startswith("ort") else "onnx" for item in manifest.artifacts}
    facts = {"format": formats, "precision": {item.precision for item in manifest.artifacts}}
    value = {
        "descriptor": model,
        "config": {key: next(iter(values)) for key, values in facts.items() if len(values) == 1},
        "modelfs": {"type": "layers", "diffIds": [layer["digest"] for layer in files.values()]},
    }
    config = OciDocument(canonical.encode(value), CONFIG)
    return _manifest(MODEL_PACK, config, [*files.values()], about), config


def statement_document(
    subject: OciDocument, statement: Digest, size: int, media_type: str, about: Mapping[str, str]
) -> OciDocument:
    """The referrer that brings a statement about a version."""
    layer = _descriptor(media_type, statement, size)
    return _manifest(media_type, OciDocument(EMPTY_CONFIG, EMPTY), [layer], about, subject)


def referrers_index(descriptors: Iterable[Mapping[str, Any]]) -> OciDocument:
    """The index of the fallback tag, for registries without the referrers API."""
    value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(descriptors)}
    return OciDocument(canonical.encode(value), INDEX)


def _manifest(
    artifact_type: str,
    config: OciDocument,
    layers: list[dict[str, Any]],
    annotations: Mapping[str, str],
    subject: OciDocument | None = None,
) -> OciDocument:
    value = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": artifact_type,
        "config": config.descriptor(),
        "layers": layers,
        "annotations": dict(annotations),
    }
    if subject is not None:
        value["subject"] = _descriptor(subject.media_type, subject.digest, len(subject.data))
    return OciDocument(canonical.encode(value), MANIFEST, artifact_type)
