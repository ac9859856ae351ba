"""Bring a version back from an OCI repository: the same manifest, every file checked, and the statements about it."""

import json
from collections.abc import Collection

from onnxreg.registry.delta import DeltaRoutes
from onnxreg.registry.gates.gate_history import read_attested
from onnxreg.registry.log.contents import Reference
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.oci.client import OciClient, entries
from onnxreg.registry.oci.model_pack import TAG, WHOLE
from onnxreg.registry.oci.target import OciTarget
from onnxreg.registry.publish.add import Publisher
from onnxreg.registry.read.versions import PublishedVersion
from onnxreg.registry.store.blobs import read_blob
from onnxreg.registry.store.protocol import Push
from onnxreg.registry.transfer.copy import BlobMover
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import Version
from onnxreg.schema.gates.evaluation import EVALUATION, RECALL_DELTA
from onnxreg.schema.manifest.manifest import Manifest
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
            f"{target} is {manifest.name}, not {name}", Advice("import-name", name=manifest.name)
        )

    def bring(push: Push, manifest: Manifest, missing: Collection[Digest]) -> None:
        files = {
            file.digest: Reference(file.digest, file.size, f"{manifest.name} {file.path}", file.spans())
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
    """The digest of our manifest, and the version, as the index states them."""
    try:
        value = json.loads(index)
        annotations = [entry.get("annotations") or {} for entry in value.get("manifests") or ()]
        digests = [about[WHOLE] for about in annotations if WHOLE in about]
        if len(digests) == 1:
            return Digest.parse(digests[0]), Version.parse(value["annotations"][TAG])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        raise IntegrityError(f"{client.url} sends a malformed index of a version") from None
    raise InputError(f"{client.url} has no version of onnxreg there", Advice("import-files"))


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
            media_type = str(layer.get("mediaType"))
            evaluation = read_attested(media_type, data)
            verdict = (evaluation.artifact, evaluation.state) if evaluation else None
            decisions.attest(published.ref, data, media_type, None, verdict)
