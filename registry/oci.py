"""Publish versions to OCI registries (Docker Hub, Harbor, ghcr.io, ...) and fetch them from there (docs/oci.md).

An `OciTarget` is a parsed `oci://` URL. An `OciClient` speaks the distribution protocol for one repository, and checks
the digests of all bytes. It finds a credential in the files that docker, skopeo, podman and oras write, in this order:
`$REGISTRY_AUTH_FILE`, `$XDG_RUNTIME_DIR/containers/auth.json`, `~/.config/containers/auth.json`, and `config.json` in
`$DOCKER_CONFIG` or `~/.docker`. A file may name a helper program. In the first file with entries for the repository,
the entry with the longest `host/path` is used.

A version becomes one tagged OCI manifest, a CNCF ModelPack. Its layers are the onnxreg manifest (`openmed-onnx.json`)
and every file, unchanged, with the path as title. The same version always gives the same bytes. Each statement about
the version becomes a referrer: an OCI manifest whose `subject` is the version's OCI manifest.
"""

import base64
import json
import os
import re
import subprocess
import threading
import urllib.error
from collections.abc import Collection, Iterable, Iterator, Mapping
from email.message import Message
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from onnxreg.registry import system
from onnxreg.registry.log.contents import Reference, Release, read_version, set_pushed
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import Log, load, read_blob
from onnxreg.registry.publish import Publisher
from onnxreg.registry.resolution import check_version_trust
from onnxreg.registry.store import requests
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import MissingBlobError, OpenAt, Push, RegistryReader, Sink
from onnxreg.registry.system import read_bounded
from onnxreg.registry.transfer.exchange import BlobMover
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.registry.trust.signatures import RecordedStatement, attestations
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_OCI_BYTES, MAX_REFERRER_BYTES, MAX_REFERRER_PAGES, MAX_STATEMENTS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    HostError,
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
from onnxreg.schema.manifest.manifest import Manifest, StoredFile
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
MAX_FILE_BYTES = 2**20
HELPER_SECONDS = 60.0
DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io", "https://index.docker.io/v1/")
"""The names of Docker Hub in URLs and files of credentials. docker, skopeo and Helm use different ones."""


class Credential(Struct, frozen=True):
    """A user name with a password, or an identity token to be exchanged for access tokens."""

    user: str = ""
    secret: str = ""
    identity_token: str = ""

    @property
    def basic(self) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(f'{self.user}:{self.secret}'.encode()).decode()}"}


def find_credential(host: str, repository: str) -> Credential | None:
    """Return the credential for a repository, or None. A malformed file is an InputError, a failed helper a HostError."""
    parts, hosts = repository.split("/"), DOCKER_HUB if host in DOCKER_HUB else (host,)
    keys = ["/".join([host, *parts[:count]]) for count in range(len(parts), 0, -1)] + [*hosts]
    auth_file, runtime = system.variable("REGISTRY_AUTH_FILE"), system.variable("XDG_RUNTIME_DIR")
    config, docker = system.variable("XDG_CONFIG_HOME"), system.variable("DOCKER_CONFIG")
    for path in (
        *([Path(auth_file)] if auth_file else []),
        *([Path(runtime) / "containers" / "auth.json"] if runtime else []),
        Path(os.path.expanduser(config or "~/.config")) / "containers" / "auth.json",  # noqa: PTH111
        Path(os.path.expanduser(docker or "~/.docker")) / "config.json",  # noqa: PTH111 -- there may be no home
    ):
        try:
            document = json.loads(read_bounded(path.resolve(), MAX_FILE_BYTES))  # in Kubernetes, a link
            helpers, entries = document.get("credHelpers") or {}, document.get("auths") or {}
            # docker login writes URLs, such as https://index.docker.io/v1/: only the host matters
            entries = {re.sub(r"^\w+://([^/]*).*", r"\1", name): value for name, value in entries.items()}
            for key in keys:
                credential = _ask_helper(helpers[key], key) if key in helpers else None
                credential = credential or _of_entry(entries.get(key) or {})
                if credential is not None:
                    return credential
            for key in hosts if (store := document.get("credsStore")) else ():
                if (credential := _ask_helper(store, key)) is not None:
                    return credential
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostError(f"reading {path} failed: {error.strerror}", "check its permissions") from error
        except (ValueError, TypeError, AttributeError, RuntimeError):
            hint = f"log in again: skopeo login {host}"
            raise InputError(f"{path} is not a file of credentials", hint) from None
    return None


def _of_entry(entry: Mapping[str, Any]) -> Credential | None:
    user, secret = str(entry.get("username") or ""), str(entry.get("password") or "")
    if encoded := entry.get("auth"):
        user, separator, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        if not separator:
            raise ValueError("no password")
    if identity := entry.get("identitytoken"):
        return Credential(user, "", str(identity))
    return Credential(user, secret.rstrip("\0")) if user else None


def _ask_helper(helper: str, host: str) -> Credential | None:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", helper):
        raise ValueError("not the name of a credential helper")
    command = [f"docker-credential-{helper}", "get"]
    try:
        completed = subprocess.run(
            command, input=host.encode(), capture_output=True, timeout=HELPER_SECONDS, check=False
        )
        if completed.returncode and b"not found" in completed.stdout + completed.stderr:
            return None
        completed.check_returncode()
        answer = json.loads(completed.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise HostError(f"{command[0]} gave no credential: {error}"[:400], "log in again") from None
    return Credential("", "", secret) if user == "<token>" else Credential(user, secret)


_NEXT_PAGE = re.compile(r"<([^<>]+)>\s*;[^,]*\brel=\"?next\"?", re.IGNORECASE)  # RFC 8288
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^/@\s?#:\[\]]+)"
_URL = re.compile(
    rf"oci://({_HOST}(?::[0-9]{{1,5}})?)/({_PART}(?:/{_PART})*)(?::([A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}))?(?:@(\S+))?"
)


class OciTarget(Struct, frozen=True):
    """A parsed `oci://` URL: a repository, and maybe a tag or digest in it."""

    host: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    @classmethod
    def parse(cls, url: str) -> "OciTarget":
        """Parse oci://host[:port]/repository[:tag|@digest]. Raises InputError for any other URL."""
        match = _URL.fullmatch(url)
        if match is None:
            hint = "write oci://host[:port]/repository:tag, in lower-case letters and digits with single . _ - between"
            raise InputError(f"not the URL of an OCI repository: {url[:80]!r}", hint)
        host, repository, tag, digest = match.groups()
        return cls(host, repository, tag, None if digest is None else Digest.parse(digest))

    @property
    def server(self) -> str:
        scheme = "http" if requests.is_loopback(urlsplit(f"//{self.host}").hostname or "") else "https"
        return f"{scheme}://{'registry-1.docker.io' if self.host in DOCKER_HUB else self.host}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.host}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


class OciDocument(Struct, frozen=True):
    """A manifest or index to be stored in an OCI registry."""

    data: bytes
    media_type: str
    artifact_type: str = ""

    @property
    def digest(self) -> Digest:
        return Digest.of(self.data)

    def descriptor(self) -> dict[str, Any]:
        more = {"artifactType": self.artifact_type} if self.artifact_type else {}
        return descriptor(self.media_type, self.digest, len(self.data)) | more


def descriptor(media_type: str, digest: Digest, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": str(digest), "size": size}


class OciServer(requests.HttpStore):
    """The API of one repository. If the server demands a login, `send` logs in for `actions`, such as "pull,push"."""

    def __init__(self, target: OciTarget, actions: str) -> None:
        super().__init__(f"{target.server}/v2/{target.repository}", {})
        self._target = target
        self._scope = f"repository:{target.repository}:{actions}"
        self._lock = threading.Lock()

    def hint(self, status: int) -> str:
        if status in (401, 403):
            return f"log in: skopeo login {self._target.host}"
        if 300 <= status < 400:
            return "a redirect of an upload is not followed; name the server that it leads to"
        return "does this server take OCI artifacts?"

    def refusal_text(self, error: urllib.error.HTTPError) -> str:
        try:
            data = error.fp.read1(requests.READ_BYTES)  # type: ignore[attr-defined]
            return str(json.loads(data)["errors"][0]["code"])[:60]
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
            return str(error.reason)

    def send(
        self, method: str, key: str, headers: Mapping[str, str], body: requests.Body = None
    ) -> HTTPResponse:
        refused = self.authorization()
        try:
            return super().send(method, key, headers, body)
        except requests.RefusedError as error:
            challenges = error.headers.get_all("WWW-Authenticate", [])
            if error.status != 401 or not self.is_own(key) or not self.log_in(challenges, refused):
                raise
        return super().send(method, key, headers, body)

    def log_in(self, challenges: Iterable[str], refused: Mapping[str, str]) -> bool:
        """Log in by a method of the server's `challenges`, after the server refused a request with headers `refused`.

        Return True if there are new headers, with which the request can be sent again.
        """
        with self._lock:
            if self._authorization != refused:
                return True  # another thread has logged in
            for challenge in challenges:
                scheme = challenge.strip().partition(" ")[0].lower()
                if scheme not in ("basic", "bearer"):
                    continue
                credential = find_credential(self._target.host, self._target.repository)
                if scheme == "bearer":
                    parameters = dict(re.findall(r'([a-zA-Z_]+)="([^"]*)"', challenge))
                    self._authorization = {"Authorization": f"Bearer {self._token(parameters, credential)}"}
                elif credential is not None and not credential.identity_token:
                    self._authorization = credential.basic
                return self._authorization != refused
            return False

    def _token(self, parameters: Mapping[str, str], credential: Credential | None) -> str:
        label = f"the token endpoint of {self._target.host}"
        try:
            realm = requests.next_url(f"{self._target.server}/v2/", parameters.get("realm")).partition("#")[0]
        except RemoteError as error:
            raise RemoteError(f"{label} is not used: {error.message}") from None
        fields = {"scope": self._scope, "service": parameters.get("service", "")}
        authorization, form = {}, b""
        if credential is not None and credential.identity_token:
            grant = {"grant_type": "refresh_token", "refresh_token": credential.identity_token}
            form = urlencode({**fields, **grant, "client_id": "onnxreg"}).encode()
        else:
            realm += f"{'&' if '?' in realm else '?'}{urlencode(fields)}"
            authorization = credential.basic if credential else {}
        endpoint = requests.HttpStore(realm.partition("?")[0], authorization)

        def read(answer: HTTPResponse) -> bytes:
            return requests.read_body(answer, endpoint.url, MAX_OCI_BYTES)

        try:
            method, body = ("POST", lambda: form) if form else ("GET", None)
            value = json.loads(endpoint.ask(method, realm, {}, read, body, tries=False))
            token = value.get("token") or value["access_token"]
        except requests.RefusedError as error:
            if requests.is_passing(error):
                raise
            raise RemoteError(f"{label} answers {error.status}", self.hint(401)) from error
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise RemoteError(f"{label} gave no token") from None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise RemoteError(f"{label} gave a malformed token")
        return token


def _created(answer: HTTPResponse) -> Message:
    if answer.status != 201:
        problem = f"{answer.url.partition('?')[0]} answers {answer.status} to an upload"
        raise RemoteError(problem, "is there a proxy in between?")
    return answer.headers


class OciClient(Sink):
    """Reads and writes one repository of an OCI registry."""

    def __init__(self, target: OciTarget, writes: bool = False) -> None:
        self.url = f"oci://{target.host}/{target.repository}"
        self._server = OciServer(target, "pull,push" if writes else "pull")

    def manifest(self, reference: str) -> bytes:
        """Return the manifest or index with this tag or digest. Raises NotFoundError if it does not exist."""
        if (data := self.find_manifest(reference)) is None:
            raise NotFoundError(f"{self.url} has no {reference}", "check the tag; is the version published?")
        return data

    def find_manifest(self, reference: str) -> bytes | None:
        accept = {"Accept": f"{INDEX}, {MANIFEST}"}
        try:
            data, _ = self._server.fetch(f"manifests/{reference}", accept, MAX_OCI_BYTES)
        except requests.RefusedError as error:
            if error.status in requests.ABSENT_STATUS:
                return None
            raise
        if reference.startswith("sha256:") and str(Digest.of(data)) != reference:
            raise IntegrityError(f"{self.url} sends other bytes than {reference}")
        return data

    def put_manifest(self, document: OciDocument, reference: str | None = None) -> Message:
        """Store a document, after all its blobs. Return the headers. Raises InputError if the document is too large."""
        if len(document.data) > MAX_OCI_BYTES:
            problem = f"a document of this version exceeds the {MAX_OCI_BYTES >> 20} MiB of an OCI manifest"
            raise InputError(problem, "a version of fewer files fits")
        key = f"manifests/{reference or document.digest}"
        headers = {"Content-Type": document.media_type}
        return self._server.ask("PUT", key, headers, _created, lambda: document.data)

    def has(self, digests: Iterable[Digest]) -> set[Digest]:
        keys = {f"blobs/{digest}": digest for digest in digests}
        return {keys[key] for key in self._server.has(keys)}

    def open_blob(self, digest: Digest, start: int = 0) -> BinaryIO:
        stream = self._server.open(f"blobs/{digest}", start)
        if stream is None:
            raise MissingBlobError(digest, self.url)
        return stream

    def fetch(self, digest: Digest, size: int, open_at: OpenAt, path: Path | None = None) -> int:
        def attempt() -> None:
            begin: Any = lambda answer: answer.headers.get("Location")
            address = self._server.ask("POST", "blobs/uploads/", {}, begin, lambda: b"", tries=False)
            url = requests.next_url(f"{self._server.url}/blobs/uploads/", address)
            url += f"{'&' if '?' in url else '?'}{urlencode({'digest': str(digest)})}"
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
            self._server.ask("PUT", url, headers, _created, partial(open_at, 0), tries=False)

        requests.retrying(attempt)  # each attempt opens the blob again
        return size

    def referrers(self, digest: Digest, types: Collection[str]) -> list[Mapping[str, Any]]:
        """Return descriptors of the referrers with these artifact types. Raises RemoteError if they are too many."""
        page, size = f"referrers/{digest}", 0
        descriptors: list[Mapping[str, Any]] = []
        for number in range(MAX_REFERRER_PAGES):
            try:
                data, headers = self._server.fetch(page, {}, MAX_OCI_BYTES)
            except requests.RefusedError as error:
                if error.status != 404 or number:
                    raise
                index = self.find_manifest(fallback_tag(digest))
                return [] if index is None else entries(index, "manifests", self.url, types)
            descriptors += entries(data, "manifests", self.url, types)
            size += len(data)
            match = _NEXT_PAGE.search(headers.get("Link", ""))
            if match is None:
                return descriptors
            if size > MAX_REFERRER_BYTES:
                break
            page = requests.next_url(f"{self._server.url}/referrers/{digest}", match[1])
        limit = f"{MAX_REFERRER_PAGES:,} pages or {MAX_REFERRER_BYTES >> 20} MiB"
        problem = f"the list of referrers of {self.url} is longer than {limit}"
        raise RemoteError(problem, "it may not be the registry that you mean")

    def put_referrer(self, document: OciDocument, subject: Digest) -> None:
        """Store a manifest about `subject`. If the server has no referrers API, add it to a list of referrers too."""
        if self.put_manifest(document).get("OCI-Subject"):
            return
        data = self.find_manifest(fallback_tag(subject))
        before = [] if data is None else entries(data, "manifests", self.url)
        entry = document.descriptor()
        if entry["digest"] not in {item.get("digest") for item in before}:
            with about(f"{self.url} has a malformed list of referrers", IntegrityError):
                value = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*before, entry]}
                index = OciDocument(canonical.encode(value), INDEX)
            self.put_manifest(index, fallback_tag(subject))


def fallback_tag(digest: Digest) -> str:
    """Return the tag of a manifest's list of referrers, for registries without the referrers API."""
    return f"sha256-{digest.hex}"


def entries(
    data: bytes, key: str, label: str, types: Collection[str] | None = None
) -> list[Mapping[str, Any]]:
    """Return the descriptors (with `types`: of these types) in a document's list `key`, or raise IntegrityError."""
    try:
        descriptors = json.loads(data)[key]
        if types is not None:
            descriptors = [entry for entry in descriptors if entry.get("artifactType") in types]
        for entry in descriptors:
            Digest.parse(entry["digest"])
        return list(descriptors)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        raise IntegrityError(f"{label} sends a document without valid {key}") from None


MODEL_PACK = "application/vnd.cncf.model.manifest.v1+json"
CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHTS = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
DOC = "application/vnd.cncf.model.doc.v1.raw"
ROLE_TYPES = dict.fromkeys(("report", "readme", "license", "golden"), DOC)
ROLE_TYPES |= {"artifact": WEIGHTS, "external-data": WEIGHTS}
"""The media type of a file's layer, by the role of the file. Other roles get `WEIGHT_CONFIG`."""
EMPTY = "application/vnd.oci.empty.v1+json"
EMPTY_CONFIG = b"{}"
TITLE, VERSION = "org.opencontainers.image.title", "org.opencontainers.image.version"
MANIFEST_DIGEST = "org.onnxreg.manifest"
"""The annotation in a version's OCI manifest that states the digest of the onnxreg manifest."""
SBOM = "application/vnd.cyclonedx+json"
STATEMENTS = frozenset({ENVELOPE, EVALUATION})
"""The types of statements that `fetch_version` records. A bill of materials is left out: it repeats the manifest."""


def version_documents(manifest: Manifest, data: bytes, version: Version) -> tuple[OciDocument, OciDocument]:
    """Return a version's OCI manifest and config. The config states a format or precision that all artifacts share."""
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
    about = {TITLE: manifest.name, VERSION: str(version), MANIFEST_DIGEST: str(Digest.of(data))}
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


class PublishResult(Struct):
    """A published version with its tag and digest (`target`). `blobs` and `size` count the sent blobs and bytes."""

    version: Release
    target: OciTarget
    blobs: int = 0
    size: int = 0
    referrers: int = 0  # including those that were there before


def publish(
    reader: RegistryReader,
    ref: Ref,
    target: OciTarget,
    progress: Progress = SILENT,
    known_heads: KnownHeads | None = None,
) -> PublishResult:
    """Publish a version. Only blobs that the repository lacks are sent.

    Raises ConflictError if the tag names another manifest. Raises NotFoundError if the version is yanked or lacks files
    here. Raises GateError if `ref` names a channel, and the version fails the channel's policy.
    """
    log = load(reader, ref.name)
    located = log.find(ref)
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
    set_pushed(reader, log, [published.version])
    if before is None:
        documents = {config.digest: config.data, published.digest: published.data}
        _send(client, BlobMover(reader, progress, documents), published.manifest.all_files(), result)
        client.put_manifest(version, tag)
    present = {str(entry["digest"]) for entry in client.referrers(version.digest, {*STATEMENTS, SBOM})}
    missing, empty = list[OciDocument](), OciDocument(EMPTY_CONFIG, EMPTY)
    documents = {empty.digest: empty.data}
    for media_type, data, annotations in _statements(log, published):
        layer = descriptor(media_type, Digest.of(data), len(data))
        referrer = _manifest(media_type, empty, [layer], annotations, version)
        result.referrers += 1
        if str(referrer.digest) not in present:
            missing.append(referrer)
            documents[Digest.of(data)] = data
    if missing:
        _send(client, BlobMover(reader, progress, documents), (), result)
    for referrer in missing:
        client.put_referrer(referrer, version.digest)
    return result


def _send(client: OciClient, mover: BlobMover, files: Iterable[StoredFile], result: PublishResult) -> None:
    name = result.version.name
    blobs = {file.digest: Reference(file.digest, file.size, f"{name} {file.path}") for file in files}
    for digest, data in mover.documents.items():
        blobs[digest] = Reference(digest, len(data), f"{name} document")
    present = client.has(blobs)
    missing = {digest: blob for digest, blob in blobs.items() if digest not in present}
    mover.move(client, missing)
    result.blobs += len(missing)
    result.size += sum(blob.size or 0 for blob in missing.values())


def _statements(log: Log, published: Release) -> Iterator[tuple[str, bytes, Mapping[str, str]]]:
    """Yield (media type, bytes, annotations) for each statement about a version, and then for its bill of materials."""
    for event in attestations(log, published.digest, published.manifest):
        about = {"org.onnxreg.artifact": str(event.artifact)} if event.artifact else {}
        yield event.media_type, log.fetch(event.statement), about
    materials = bill(published.manifest, published.digest, published.version, published.states)
    yield SBOM, canonical.encode(materials), {}


def fetch_version(
    publisher: Publisher,
    url: str,
    name: str | None = None,
    progress: Progress = SILENT,
    statements: bool | None = None,
) -> Release:
    """Fetch a version that `reg push` published at an `oci://` URL, and publish it here.

    The version keeps its number if `publisher.version` is not set. If `statements` is not False, the statements about
    the version are recorded too. A configured signing key would sign a line for each. Therefore InputError is raised if
    there are statements and a key, but `statements` is None. Also raises InputError if onnxreg did not write the OCI
    manifest, or if it is about another model than `name`. Raises IntegrityError if bytes are wrong, and RemoteError if
    there are more than `MAX_STATEMENTS` statements.
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
        digest = Digest.parse(about[MANIFEST_DIGEST]) if MANIFEST_DIGEST in about else None
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
    attested = [] if statements is False else list(_read_statements(client, Digest.of(document), manifest))
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
    client: OciClient, subject: Digest, manifest: Manifest
) -> Iterator[tuple[bytes, str, tuple[Digest, str] | None]]:
    """Yield the bytes, the media type and the verdict of each statement. The verdict is (artifact, state) or None."""
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
            if evaluation and evaluation.state != "refused":
                manifest.check_weights(evaluation.external_data)
        yield data, media_type, (evaluation.artifact, evaluation.state) if evaluation else None
