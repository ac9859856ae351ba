"""Versions to and from an OCI repository.

To publish one sends blobs, then manifests, then the tag, then the statements about it. To fetch one brings back the
same manifest, every file checked, and the statements.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any

from onnxreg.registry.deliver.resolution import check_version_trust
from onnxreg.registry.gates.gate_history import attestations, read_attested
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.contents import Reference
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.oci.client import MAX_LIST_BYTES, MAX_MANIFEST_BYTES, OciClient, entries
from onnxreg.registry.oci.model_pack import (
    EMPTY,
    EMPTY_CONFIG,
    MODEL_PACK,
    TAG,
    WHOLE,
    OciDocument,
    PackedVersion,
    pack,
    statement_document,
)
from onnxreg.registry.oci.target import Login, OciTarget, tag_of
from onnxreg.registry.publish.add import Publisher
from onnxreg.registry.read.versions import PublishedVersion, read_version
from onnxreg.registry.signing import line_signer
from onnxreg.registry.store.protocol import Push, RegistryReader
from onnxreg.registry.store.streams import metered
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.registry.transfer.copy import BlobMover
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    Advice,
    ConflictError,
    InputError,
    IntegrityError,
    NotFoundError,
    RemoteError,
)
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import counted
from onnxreg.schema.formats.sbom import BomSubject, bill
from onnxreg.schema.gates.evaluation import EVALUATION, RECALL_DELTA
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE

SBOM = "application/vnd.cyclonedx+json"
STATEMENTS = frozenset({ENVELOPE, EVALUATION, RECALL_DELTA})
"""The media types of the statements that an import records. The bill of materials follows from the manifest."""
MAX_STATEMENTS = 64
"""Statements about a version that an import records. Whoever may write to the repository may add some."""


@dataclass(frozen=True)
class PublishResult:
    """A version in an OCI repository: its target with tag and digest of the index, and what was sent."""

    version: PublishedVersion
    target: OciTarget
    artifacts: tuple[tuple[str, Digest], ...]
    """The path of each artifact that is not refused, with the digest of its manifest."""
    all_files: Digest
    """The manifest that has every file of the version."""
    blobs: int
    size: int
    mounted: int
    referrers: int
    """The statements about the version there."""


@dataclass(frozen=True)
class _Blob:
    """A blob to send: bytes in memory, or else those of the registry."""

    path: str
    digest: Digest
    size: int
    data: bytes | None = None


def publish(
    reader: RegistryReader,
    ref: Ref,
    target: OciTarget,
    mount_from: str | None = None,
    progress: Progress = SILENT,
    known_heads: KnownHeads | None = None,
) -> PublishResult:
    """Publish a version. Blobs that the repository has are not sent; those of `mount_from` there are mounted.

    ConflictError if the tag names another index. NotFoundError for a yanked version, and if some files of the
    version are not here. GateError if the ref names a governed channel whose version fails the policy.
    """
    published = _complete_version(reader, ref, known_heads)
    if target.digest is not None:
        raise InputError(f"{target} names a digest", "name a tag, or none")
    packed = pack(published.manifest, published.data, published.version, published.states)
    tag = target.tag or tag_of(published.version)
    client = OciClient(target, Login(target, True, (mount_from,) if mount_from else ()))
    index = packed.index
    before = client.find_manifest(tag)
    if before is not None and Digest.of(before) != index.digest:
        raise ConflictError(
            f"{client.url}:{tag} is another index, {Digest.of(before).short}...",
            "what is published never changes: publish under another tag",
        )
    sender = _Sender(client, reader, progress, mount_from)
    if before is None:
        sender.send(_version_blobs(published, packed))
        for document in packed.manifests:
            client.put_manifest(document)
        client.put_manifest(index, tag)
    count = _publish_statements(client, sender, reader, published, index)
    packs = [document for document in packed.manifests if document.artifact_type == MODEL_PACK]
    return PublishResult(
        published,
        OciTarget(target.host, target.repository, tag, index.digest),
        tuple(((document.about or {})["org.onnxreg.path"], document.digest) for document in packs),
        packed.manifests[-1].digest,
        sender.sent,
        sender.size,
        sender.mounted,
        count,
    )


def _complete_version(reader: RegistryReader, ref: Ref, known_heads: KnownHeads | None) -> PublishedVersion:
    """NotFoundError if the version is yanked, also if its digest is named, or incomplete; else as `check_version_trust`."""
    located = lookup.find(reader, ref)
    check_version_trust(reader, ref, located, None, known_heads)
    if located.entry.yanked:
        raise NotFoundError(f"{located.ref} is yanked", "publish another version")
    if located.entry.held is not None:
        raise NotFoundError(
            f"only some artifacts of {located.ref} are here", Advice("pull-rest", ref=str(located.ref))
        )
    return read_version(reader, Ref(located.name, str(located.version), located.entry.manifest))


def _version_blobs(published: PublishedVersion, packed: PackedVersion) -> list[_Blob]:
    files = [_Blob(file.path, file.digest, file.size) for file in published.manifest.all_files()]
    documents = [_Blob(blob.media_type, blob.digest, len(blob.data), blob.data) for blob in packed.blobs]
    return list({blob.digest: blob for blob in (*files, *documents)}.values())


@dataclass
class _Sender:
    """Sends the blobs that a repository lacks, several at a time, the large ones first."""

    client: OciClient
    reader: RegistryReader
    progress: Progress
    mount_from: str | None
    sent: int = 0
    size: int = 0
    mounted: int = 0

    def send(self, blobs: list[_Blob]) -> None:
        present = run_parallel(lambda blob: self.client.has_blob(blob.digest), blobs)
        missing = [blob for blob, is_there in zip(blobs, present, strict=True) if not is_there]
        missing.sort(key=lambda blob: -blob.size)
        self.progress.plan(len(missing), sum(blob.size for blob in missing))
        is_sent = run_parallel(self._send, missing)
        sizes = [blob.size for blob, sent in zip(missing, is_sent, strict=True) if sent]
        self.sent += len(sizes)
        self.size += sum(sizes)
        self.mounted += len(missing) - len(sizes)

    def _send(self, blob: _Blob) -> bool:
        with self.progress.file(blob.path, blob.size) as advance:
            moved = 0

            def count(size: int) -> None:
                nonlocal moved
                moved += size
                advance(size)

            def body() -> Any:
                count(-moved)  # what an earlier try sent
                stream = BytesIO(blob.data) if blob.data is not None else self.reader.open_blob(blob.digest)
                return metered(stream, count, f"reading {blob.path}", blob.size)

            return self.client.upload(blob.digest, blob.size, body, self.mount_from)


def _publish_statements(
    client: OciClient,
    sender: _Sender,
    reader: RegistryReader,
    published: PublishedVersion,
    index: OciDocument,
) -> int:
    """Send the statements that are not there, and the bill of materials; return how many there are."""
    statements = list(_statements(reader, published))
    present = {str(entry["digest"]) for entry in client.referrers(index.digest, {*STATEMENTS, SBOM})}
    documents = [
        (statement_document(index, blob.digest, blob.size, blob.path, about), blob)
        for blob, about in statements
    ]
    missing = [(document, blob) for document, blob in documents if str(document.digest) not in present]
    if missing:
        empty = _Blob(EMPTY, Digest.of(EMPTY_CONFIG), len(EMPTY_CONFIG), EMPTY_CONFIG)
        blobs = {blob.digest: blob for blob in (empty, *(blob for _, blob in missing))}
        sender.send(list(blobs.values()))
    for document, _ in missing:
        client.put_referrer(document, index.digest)
    return len(documents)


def _statements(
    reader: RegistryReader, published: PublishedVersion
) -> Iterator[tuple[_Blob, Mapping[str, str]]]:
    """Every attested statement about the version, then its bill of materials. The path is the media type."""
    ledger, _ = load(reader, published.name)
    for event in attestations(ledger, published.digest, published.manifest):
        data = read_blob(reader, event.statement)
        about = {"org.onnxreg.artifact": str(event.artifact)} if event.artifact else {}
        yield _Blob(event.media_type, event.statement, len(data), data), about
    subject = BomSubject(published.manifest, published.digest, published.version, published.states)
    value = bill(subject)
    data = canonical.encode(value)
    yield _Blob(SBOM, Digest.of(data), len(data), data), {}


def fetch(
    target: OciTarget,
    publisher: Publisher,
    name: str | None = None,
    progress: Progress = SILENT,
    statements: bool | None = None,
) -> PublishedVersion:
    """Publish here what `reg publish` published there, under the version that its index states.

    Args:
        statements: record the statements about the version, too. None: unless a key here would sign their lines.

    InputError if it is not a version of onnxreg, or of another model than `name`, or if a key would sign lines of statements
    and nobody said so. IntegrityError if bytes are not those of their digests. RemoteError for more than
    `MAX_STATEMENTS` statements.
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

    attested = [] if statements is False else list(_read_statements(client, Digest.of(index)))
    if attested and statements is None and line_signer() is not None:
        raise InputError(
            f"{target} has {counted(len(attested), 'statement')}, and your key would sign a line for each",
            "add --statements to record and sign them, or --no-statements to leave them out",
        )

    def bring(push: Push, manifest: Manifest, missing: Collection[Digest]) -> None:
        files = {
            file.digest: Reference(file.digest, file.size, f"{manifest.name} {file.path}", file.spans())
            for file in manifest.all_files()
            if file.digest in missing
        }
        BlobMover(client, progress).move(push, files)

    published = replace(publisher, version=publisher.version or version).add_fetched(data, bring)
    decisions = Decisions(publisher.store, publisher.actor)
    for statement, media_type, verdict in attested:
        decisions.attest(published.ref, statement, media_type, None, verdict)
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


def _read_statements(
    client: OciClient, index: Digest
) -> Iterator[tuple[bytes, str, tuple[Digest, str] | None]]:
    """Each statement about a version, its media type, and the verdict of an evaluation, which is never read from annotations.

    RemoteError if there are too many, IntegrityError for a malformed one.
    """
    too_many = RemoteError(
        f"{client.url} has more than {MAX_STATEMENTS} statements, or {MAX_LIST_BYTES >> 20} MiB of them, about this version",
        "add --no-statements to leave them out",
    )
    count = size = 0
    for entry in client.referrers(index, STATEMENTS):
        layers = entries(client.manifest(str(entry["digest"])), "layers", client.url)
        count += max(1, len(layers))  # a manifest without a statement costs a request as well
        if count > MAX_STATEMENTS:
            raise too_many
        for layer in layers:
            if size > MAX_LIST_BYTES:
                raise too_many
            statement, media_type = Digest.parse(layer["digest"]), str(layer.get("mediaType"))
            data = read_blob(client, statement, MAX_MANIFEST_BYTES)
            size += len(data)
            try:
                evaluation = read_attested(media_type, data)
            except InputError as error:
                raise IntegrityError(
                    f"{client.url} has a malformed statement {statement.short}: {error.message}",
                    "add --no-statements to leave the statements out",
                ) from error
            yield data, media_type, (evaluation.artifact, evaluation.state) if evaluation else None
