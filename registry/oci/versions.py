"""Publish versions to an OCI repository, and fetch versions from there.

A version becomes one tagged OCI manifest, a CNCF ModelPack. Its layers are the onnxreg manifest (`openmed-onnx.json`) and
every file, unchanged, with the path as title. The same version always gives the same bytes. Each statement about the version
becomes a referrer: an OCI manifest whose `subject` is the version's OCI manifest.

Publishing sends the blobs, then the tagged manifest, then the statements. Fetching restores the onnxreg manifest, the
files, all checked, and the statements.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

from onnxreg.registry import system
from onnxreg.registry.log.contents import Reference, Release, read_version
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import find, load, read_blob
from onnxreg.registry.oci.client import MANIFEST, OciClient, OciDocument, OciTarget, descriptor, entries
from onnxreg.registry.publish import Publisher
from onnxreg.registry.resolution import check_version_trust
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import Push, RegistryReader
from onnxreg.registry.store.streams import Content, metered
from onnxreg.registry.system import run_parallel
from onnxreg.registry.transfer.exchange import BlobMover
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.signatures import RecordedStatement, attestations
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_OCI_BYTES, MAX_REFERRER_BYTES, MAX_STATEMENTS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    InputError,
    IntegrityError,
    NotFoundError,
    RemoteError,
    about,
)
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import SILENT, Progress, counted
from onnxreg.schema.formats.sbom import bill
from onnxreg.schema.gates.statements import EVALUATION, BenchmarkDocument
from onnxreg.schema.log.events import BENCHMARK
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE

MODEL_PACK = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHTS = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
DOC = "application/vnd.cncf.model.doc.v1.raw"
ROLE_TYPES = dict.fromkeys(("report", "readme", "license", "golden"), DOC)
ROLE_TYPES |= {"artifact": WEIGHTS, "external-data": WEIGHTS}
"""The media type of a layer for each role of a file; files with other roles get `WEIGHT_CONFIG`."""
EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_CONFIG = b"{}"
TITLE, VERSION = "org.opencontainers.image.title", "org.opencontainers.image.version"
WHOLE = "org.onnxreg.manifest"
"""The annotation of a version's OCI manifest with the digest of the onnxreg manifest."""
SBOM = "application/vnd.cyclonedx+json"
STATEMENTS = frozenset({ENVELOPE, EVALUATION})
"""Media types of the statements that `fetch_version` records. A bill of materials is left out: it repeats the manifest."""


def version_documents(manifest: Manifest, data: bytes, version: Version) -> tuple[OciDocument, OciDocument]:
    """Return a version's OCI manifest and config. The config states format and precision if all artifacts have the same."""
    files = {FILENAME: descriptor(WEIGHT_CONFIG, Digest.of(data), len(data))}
    for file in sorted(manifest.all_files(), key=lambda file: file.path):
        files[file.path] = descriptor(ROLE_TYPES.get(file.role, WEIGHT_CONFIG), file.digest, file.size)
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
        value["subject"] = descriptor(subject.media_type, subject.digest, len(subject.data))
    return OciDocument(canonical.encode(value), MANIFEST, artifact_type)


@dataclass
class PublishResult:
    """A published version, its target with tag and digest, the blobs and bytes sent, and the number of its referrers."""

    version: Release
    target: OciTarget
    blobs: int = 0
    size: int = 0
    referrers: int = 0


def publish(
    reader: RegistryReader,
    ref: Ref,
    target: OciTarget,
    progress: Progress = SILENT,
    known_heads: KnownHeads | None = None,
) -> PublishResult:
    """Publish a version; send only blobs that the repository lacks. ConflictError if the tag names another manifest.

    NotFoundError if the version is yanked or files are missing here. GateError if the policy of `ref`'s channel refuses it.
    """
    located = find(reader, ref)
    check_version_trust(reader, ref, located, None, known_heads)
    if located.entry.yanked:
        raise NotFoundError(f"{located.ref} is yanked", "publish another version")
    if located.entry.held is not None:
        hint = f"reg pull {located.ref} fetches the rest"
        raise NotFoundError(f"only some artifacts of {located.ref} are here", hint)
    if target.digest is not None:
        raise InputError(f"{target} names a digest", "name a tag, or none")
    published = read_version(reader, Ref(located.name, str(located.version), located.entry.manifest))
    version, config = version_documents(published.manifest, published.data, published.version)
    tag = target.tag or str(published.version).replace("+", "_")  # OCI tags have no +; Helm writes _ too
    client = OciClient(target, writes=True)
    before = client.find_manifest(tag)
    if before is not None and Digest.of(before) != version.digest:
        problem = f"{client.url}:{tag} is another manifest, {Digest.of(before).short}..."
        raise ConflictError(problem, "what is published never changes: publish under another tag")
    result = PublishResult(published, OciTarget(target.host, target.repository, tag, version.digest))

    if before is None:
        blobs = [
            Content(file.path, file.size, file.digest, partial(reader.open_blob, file.digest))
            for file in published.manifest.all_files()
        ]
        blobs += [Content.of("config", config.data), Content.of("manifest", published.data)]
        _send(client, blobs, progress, result)
        client.put_manifest(version, tag)
    present = {str(entry["digest"]) for entry in client.referrers(version.digest, {*STATEMENTS, SBOM})}
    missing: list[tuple[OciDocument, Content]] = []
    for blob, annotations in _statements(reader, published):
        layer, empty = descriptor(blob.label, blob.digest, blob.size), OciDocument(EMPTY_CONFIG, EMPTY)
        referrer = _manifest(blob.label, empty, [layer], annotations, version)
        result.referrers += 1
        if str(referrer.digest) not in present:
            missing.append((referrer, blob))
    if missing:
        _send(client, [Content.of("empty", EMPTY_CONFIG), *(blob for _, blob in missing)], progress, result)
    for referrer, _ in missing:
        client.put_referrer(referrer, version.digest)
    return result


def _send(client: OciClient, blobs: Iterable[Content], progress: Progress, result: PublishResult) -> None:
    """Send the blobs that the repository lacks, several at a time, the largest first. Count them in `result`."""

    def send(blob: Content) -> None:
        sent = 0

        def advance(count: int) -> None:
            nonlocal sent
            sent += count
            show(count)

        with progress.file(blob.label, blob.size) as show:

            def body() -> BinaryIO:
                advance(-sent)  # a broken upload begins again
                return metered(blob.open(), advance, f"reading {blob.label}", blob.size)

            client.upload(blob.digest, blob.size, body)

    distinct = {blob.digest: blob for blob in blobs}
    present = client.has(distinct)
    missing = [blob for digest, blob in distinct.items() if digest not in present]
    missing.sort(key=lambda blob: -blob.size)
    progress.plan(len(missing), sum(blob.size for blob in missing))
    run_parallel(send, missing)
    result.blobs += len(missing)
    result.size += sum(blob.size for blob in missing)


def _statements(reader: RegistryReader, published: Release) -> Iterator[tuple[Content, Mapping[str, str]]]:
    """Yield each attested statement, then the bill of materials, with the annotations of the OCI manifest for it."""
    ledger = load(reader, published.name)
    for event in attestations(ledger, published.digest, published.manifest):
        about = {"org.onnxreg.artifact": str(event.artifact)} if event.artifact else {}
        yield Content.of(event.media_type, read_blob(reader, event.statement)), about
    materials = bill(published.manifest, published.digest, published.version, published.states)
    yield Content.of(SBOM, canonical.encode(materials)), {}


def fetch_version(
    publisher: Publisher,
    url: str,
    name: str | None = None,
    progress: Progress = SILENT,
    statements: bool | None = None,
) -> Release:
    """Fetch a version that `reg push` published at an `oci://` URL, and publish it here, by default under the same version.

    `statements`: record the statements too. None also records them, but raises InputError if the user's key would sign their
    log lines. InputError if the OCI manifest is not a version of onnxreg, or its model is not `name`; IntegrityError for
    wrong bytes; RemoteError for more than `MAX_STATEMENTS` statements.
    """
    target = OciTarget.parse(url)
    DirectoryRegistry.create(publisher.store.root, publisher.store.disk)
    client = OciClient(target)
    reference = str(target.digest) if target.digest else target.tag
    if reference is None:
        raise InputError(f"{target} names no version", "name a tag: oci://host/repository:1.2.0")
    document = client.manifest(reference)
    try:
        about = json.loads(document).get("annotations") or {}
        digest = Digest.parse(about[WHOLE]) if WHOLE in about else None
        version = Version.parse(about[VERSION]) if digest else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        raise IntegrityError(f"{client.url} sends a malformed manifest of a version") from None
    if digest is None:
        hint = "read it with oras, and import the files: reg import DIRECTORY --name NAME"
        raise InputError(f"{client.url} has no version of onnxreg there", hint)
    data = read_blob(client, digest)
    manifest = Manifest.decode(data)
    if name is not None and manifest.name != name:
        raise InputError(f"{target} is {manifest.name}, not {name}", f"write --name {manifest.name}")
    attested = [] if statements is False else list(_read_statements(client, Digest.of(document)))
    if attested and statements is None and system.variable("REG_SIGNING_KEY"):
        raise InputError(
            f"{target} has {counted(len(attested), 'statement')}, and your key would sign a line for each",
            "add --statements to record and sign them, or --no-statements to leave them out",
        )

    def bring(push: Push, manifest: Manifest, missing: Collection[Digest]) -> None:
        files = {file.digest: file for file in manifest.all_files() if file.digest in missing}
        refs = (Reference(file.digest, file.size, f"{manifest.name} {file.path}") for file in files.values())
        BlobMover(client, progress).move(push, {reference.digest: reference for reference in refs})

    published = replace(publisher, version=publisher.version or version).add_fetched(data, bring)
    decisions = Decisions(publisher.store, publisher.actor)
    for statement, media_type, verdict in attested:
        decisions.attest(published.ref, statement, media_type, None, verdict)
    return published


def _read_statements(
    client: OciClient, subject: Digest
) -> Iterator[tuple[bytes, str, tuple[Digest, str] | None]]:
    """Yield each statement, its type, an evaluation's artifact and verdict. RemoteError or IntegrityError if malformed."""
    referrers, size = client.referrers(subject, STATEMENTS), 0
    for entry in referrers:
        layers = entries(client.manifest(str(entry["digest"])), "layers", client.url)
        if len(referrers) > MAX_STATEMENTS or size > MAX_REFERRER_BYTES or len(layers) != 1:
            raise RemoteError(
                f"{client.url} has more than {MAX_STATEMENTS} statements about this version, or odd ones",
                "add --no-statements to leave them out",
            )
        statement, media_type = Digest.parse(layers[0]["digest"]), str(layers[0].get("mediaType"))
        data = read_blob(client, statement, MAX_OCI_BYTES)
        size += len(data)
        hint = "add --no-statements to leave the statements out"
        with about(f"{client.url} has a malformed statement {statement.short}", IntegrityError, hint):
            evaluation = RecordedStatement.decode(media_type, data).report("evaluation")
            if media_type == BENCHMARK:
                _ = BenchmarkDocument.decode(data, "the benchmark").speeds  # to check them
        yield data, media_type, (evaluation.artifact, evaluation.state) if evaluation else None
