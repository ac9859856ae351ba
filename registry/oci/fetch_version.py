"""Bring a version back from an OCI repository: the same manifest, every file checked, and the statements about it."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from onnxreg.registry.delta.routes import DeltaRoutes
from onnxreg.registry.gates.gate_history import read_attested
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.oci.client import OciClient, entries
from onnxreg.registry.oci.model_pack import TAG, VERSION
from onnxreg.registry.oci.target import OciTarget
from onnxreg.registry.publish.add import Publisher
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.protocol import Push
from onnxreg.registry.transfer.copy import BlobMover
from onnxreg.registry.transfer.plan import PlannedFile
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.version import Version
from onnxreg.schema.gates.evaluation import EVALUATION, RECALL_DELTA
from onnxreg.schema.manifest.manifest import MEDIA_TYPE, Manifest
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE

STATEMENTS = frozenset({ENVELOPE, EVALUATION, RECALL_DELTA})
"""The media types of the statements that an import records. The bill of materials follows from the manifest."""


def fetch(
    target: OciTarget, publisher: Publisher, name: str | None = None, progress: Progress = SILENT
) -> PublishedVersion:
    """Publish here what `reg publish` published there, under the version that its index states.

    InputError if it is not a version of onnxreg, or of another model than `name`. IntegrityError if bytes are
    not those of their digests.
    """
    client = OciClient(target)
    reference = str(target.digest) if target.digest else target.tag
    if reference is None:
        raise InputError(f"{target} names no version", "name a tag: oci://host/repository:1.2.0")
    index = client.manifest(reference)
    digest, version = _version_of(client, index)
    data = read_blob(client, digest)
    manifest = Manifest.decode(data)
    if name is not None and manifest.name != name:
        raise InputError(
            f"{target} is {manifest.name}, not {name}", f"leave --name away, or write {manifest.name}"
        )

    def bring(push: Push, manifest: Manifest, missing: Collection[Digest]) -> None:
        files = {
            file.digest: PlannedFile(file.path, file.size, file.spans())
            for file in manifest.all_files()
            if file.digest in missing
        }
        BlobMover(client, DeltaRoutes(), progress).move(push, files)

    published = Publisher(
        publisher.store, publisher.actor, publisher.look, publisher.version or version
    ).add_fetched(data, bring)
    _record_statements(client, Digest.of(index), published, Decisions(publisher.store, publisher.actor))
    return published


def _version_of(client: OciClient, index: bytes) -> tuple[Digest, Version]:
    """The digest of our manifest, and the version that the index states."""
    whole = [entry for entry in _manifests(client, index) if entry.get("artifactType") == VERSION]
    if len(whole) != 1:
        raise InputError(
            f"{client.url} has no version that reg published there",
            "read it with oras, and `reg import` the files",
        )
    manifest = client.manifest(str(whole[0]["digest"]))
    layers = [
        layer for layer in entries(manifest, "layers", client.url) if layer.get("mediaType") == MEDIA_TYPE
    ]
    try:
        text = json.loads(index)["annotations"][TAG]
        if len(layers) != 1 or not isinstance(text, str):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise IntegrityError(f"{client.url} sends a malformed index of a version") from None
    return Digest.parse(layers[0]["digest"]), Version.parse(text)


def _manifests(client: OciClient, index: bytes) -> Iterator[Mapping[str, Any]]:
    try:
        if "manifests" not in json.loads(index):
            return
    except (ValueError, TypeError, RecursionError):
        pass
    yield from entries(index, "manifests", client.url)


def _record_statements(
    client: OciClient, index: Digest, published: PublishedVersion, decisions: Decisions
) -> None:
    """Attest here what was attested there. An evaluation is read from its statement, never from annotations."""
    for entry in client.referrers(index):
        if entry.get("artifactType") not in STATEMENTS:
            continue
        document = client.manifest(str(entry["digest"]))
        for layer in entries(document, "layers", client.url):
            data = read_blob(client, Digest.parse(layer["digest"]))
            media_type = str(layer["mediaType"])
            evaluation = read_attested(media_type, data)
            verdict = (evaluation.artifact, evaluation.state) if evaluation else None
            decisions.attest(published.ref, data, media_type, None, verdict)
