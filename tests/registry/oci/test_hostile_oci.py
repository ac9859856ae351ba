"""OCI registries that answer what they like: bounded, in an error of their family, and nothing of it in our name."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.registries import owner
from support.servers import oci
from support.servers.oci import Handler, Oci

from onnxreg.registry import Registry
from onnxreg.registry.log.lookup import load
from onnxreg.registry.oci import client as oci_client
from onnxreg.registry.oci.client import OciClient, OciServer, OciTarget, fallback_tag
from onnxreg.registry.oci.versions import STATEMENTS, fetch_version, publish
from onnxreg.registry.signing import Keystore, generate
from onnxreg.registry.store import requests
from onnxreg.registry.trust.signatures import signed_statements as signatures_of
from onnxreg.registry.trust.trust_file import load_trust
from onnxreg.schema.core.bounds import MAX_OCI_BYTES, MAX_STATEMENTS
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError, RemoteError
from onnxreg.schema.core.progress import Advance, Progress
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE

MakeDraft = Callable[..., Draft]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Oci]:
    for variable in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    with oci.running() as found:
        yield found


@pytest.fixture
def index(registry: Registry, make_draft: MakeDraft, server: Oci) -> str:
    """The digest of a published version."""
    registry.add(make_draft(), "1.0.0")
    return str(send(registry, server))


def send(registry: Registry, server: Oci) -> Digest | None:
    return publish(
        registry.store, Ref.parse("acme/pii"), OciTarget.parse(server.url("acme/pii"))
    ).target.digest


def envelope(number: int) -> bytes:
    signatures = [{"keyid": "0" * 64, "sig": "AA=="}]
    value = {"payloadType": "x", "payload": "", "signatures": signatures, "number": number}
    return json.dumps(value).encode()


def kinds(registry: Registry) -> list[str]:
    return [line.event.kind for line in registry.log("acme/pii")]


@pytest.mark.parametrize("has_referrers", [True, False])
def test_signatures_and_their_version_come_back(
    registry: Registry, other: Registry, make_draft: MakeDraft, server: Oci, has_referrers: bool
) -> None:
    server.has_referrers = has_referrers
    registry.add(make_draft(), "1.0.0")
    for _ in range(3):
        owner.sign(registry, "acme/pii:1.0.0", generate("ed25519"))
        send(registry, server)
    fetch_version(other.publisher(), server.url("acme/pii:1.0.0"))
    assert other.get("acme/pii").digest == registry.get("acme/pii").digest
    signatures = list(signatures_of(load(other.store, "acme/pii"), load_trust()))
    assert len(signatures) == 3


MANY = range(MAX_STATEMENTS + 1)
EXCESS = {
    "statements": [[n] for n in MANY],
    "layers of one referrer": [list(MANY)],
    "referrers without a statement": [[] for _ in MANY],
}


@pytest.mark.parametrize("layers", EXCESS.values(), ids=EXCESS)
def test_statements_beyond_the_limit_are_refused_and_nothing_is_published(
    server: Oci, index: str, other: Registry, layers: list[list[int]]
) -> None:
    for number, statements in enumerate(layers):
        digests = [server.put(envelope(item)) for item in statements]
        value = [{"mediaType": ENVELOPE, "digest": digest, "size": 1} for digest in digests]
        data = json.dumps({"layers": value, "number": number}).encode()
        server.manifests[oci.digest_of(data)] = data, ""
        descriptor = {"digest": oci.digest_of(data), "artifactType": ENVELOPE}
        server.referrers.setdefault(index, []).append(descriptor)
    with pytest.raises(RemoteError, match="statements"):
        fetch_version(other.publisher(), server.url("acme/pii:1.0.0"))
    assert other.names() == []
    fetch_version(other.publisher(), server.url("acme/pii:1.0.0"), statements=False)
    assert kinds(other) == ["publish"]


def test_statements_are_signed_only_if_asked(
    server: Oci, index: str, other: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.refer(index, envelope(1), ENVELOPE)
    monkeypatch.setenv("REG_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "pw")
    Keystore().new("ci", "ed25519", "pw")
    monkeypatch.setenv("REG_SIGNING_KEY", "ci")
    url = server.url("acme/pii:1.0.0")
    with pytest.raises(InputError):
        fetch_version(other.publisher(), url)
    assert other.names() == []
    fetch_version(other.publisher(), url, statements=True)
    assert kinds(other) == ["publish", "attest"]


def client(server: Oci) -> OciClient:
    return OciClient(OciTarget.parse(server.url("acme/pii")))


def test_a_list_of_referrers_is_bounded(server: Oci, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oci_client, "MAX_REFERRER_BYTES", 10_000)
    page = json.dumps({"manifests": [{"artifactType": "other", "digest": 1}] * 100}).encode()
    sent = []

    def endless(handler: Handler) -> bool:
        if "/referrers/" not in handler.path:
            return False
        sent.append(len(page))
        handler.reply(200, page, Link=f'</v2/acme/pii/referrers/x?n={len(sent)}>; rel="next"')
        return True

    server.hook = endless
    with pytest.raises(RemoteError):
        client(server).referrers(Digest.parse(index), STATEMENTS)
    assert sum(sent) < 10_000 + 2 * len(page)


@pytest.mark.parametrize("part", ["/manifests/", "/referrers/"])
def test_a_document_is_at_most_4_mib(server: Oci, index: str, other: Registry, part: str) -> None:
    def large(handler: Handler) -> bool:
        if part not in handler.path:
            return False
        handler.reply(200, b'{"manifests": [], "x": "' + b"a" * MAX_OCI_BYTES + b'"}')
        return True

    server.hook = large
    with pytest.raises(RemoteError):
        fetch_version(other.publisher(), server.url("acme/pii:1.0.0"))
    assert other.names() == []


BROKEN = ["http://[::1", "http://127.0.0.1:x/", "http://127.0.0.1/a\x01b", "http://h\u00e9/", ""]
UPLOADS = [
    (method, status, "/elsewhere") for method in ("POST", "PUT") for status in (301, 302, 303, 307, 308)
]


@pytest.mark.parametrize(("method", "status", "location"), UPLOADS + [("POST", 202, url) for url in BROKEN])
def test_a_redirected_or_broken_upload_is_an_error_of_the_remote(
    registry: Registry, make_draft: MakeDraft, server: Oci, method: str, status: int, location: str
) -> None:
    registry.add(make_draft(), "1.0.0")

    def answer(handler: Handler) -> bool:
        if handler.command == method:
            handler.reply(status, Location=location)
        return handler.command == method

    server.hook = answer
    with pytest.raises(RemoteError):
        send(registry, server)


def test_an_upload_that_is_repeated_is_counted_once(
    registry: Registry, make_draft: MakeDraft, server: Oci, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_WAIT_SECONDS", 0.01)
    registry.add(make_draft(), "1.0.0")
    failed: list[str] = []

    def busy(handler: Handler) -> bool:
        if handler.command != "PUT" or "/uploads/" not in handler.path or failed:
            return False
        failed.append(handler.path)
        handler.reply(503)
        return True

    class Counted(Progress):
        moved = 0

        @contextmanager
        def file(self, path: str, size: int | None) -> Iterator[Advance]:
            yield self.advance

        def advance(self, count: int) -> None:
            self.moved += count

    server.hook, counted = busy, Counted()
    result = publish(registry.store, Ref.parse("acme/pii"), OciTarget.parse(server.url("acme/pii")), counted)
    assert failed and counted.moved == result.size


def challenged(server: Oci, realm: str, token: Callable[[Handler], None]) -> None:
    def answer(handler: Handler) -> bool:
        if handler.path.startswith("/token"):
            token(handler)
        elif "Authorization" not in handler.headers:
            handler.reply(401, WWW_Authenticate=f'Bearer realm="{realm}"')
        else:
            return False
        return True

    server.hook = answer


@pytest.mark.parametrize(
    "realm",
    [
        "http://[::1",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1/a\x01b c",
        "file:///etc/passwd",
        "",
        "ftp://x/",
        "http://127.0.0.1:9/token#part",
    ],
)
def test_a_broken_realm_is_an_error_of_the_remote(server: Oci, index: str, realm: str) -> None:
    challenged(server, realm, lambda handler: handler.reply(200, b"{}"))
    with pytest.raises(RemoteError):
        client(server).find_manifest("1.0.0")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirected_request_for_a_token_is_an_error_of_the_remote(
    server: Oci, index: str, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    host = f"127.0.0.1:{server.server_port}"
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {host: {"identitytoken": "refresh"}}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    challenged(server, f"{server.base}/token", lambda handler: handler.reply(status, Location="/token2x"))
    with pytest.raises(RegError):
        client(server).find_manifest("1.0.0")


@pytest.mark.parametrize("value", [b"1e999", b'"\\ud800"', b"99999999999999999999"])
def test_a_list_of_referrers_that_cannot_be_written_again(
    registry: Registry, make_draft: MakeDraft, server: Oci, value: bytes
) -> None:
    server.has_referrers = False
    registry.add(make_draft(), "1.0.0")
    digest = send(registry, server)
    assert digest is not None
    entry = b'{"digest": "sha256:%s", "x": %s}' % (b"0" * 64, value)
    tag = fallback_tag(digest)
    server.manifests[tag] = b'{"manifests": [%s]}' % entry, server.manifests[tag][1]
    with pytest.raises(IntegrityError):
        send(registry, server)


@pytest.mark.parametrize(
    "realm",
    [
        "http://127.0.0.1:{port}/any?delete=all",
        "http://localhost:{port}/",
        "https://10.0.0.1/",
        "https://127.0.0.1:{port}/",
    ],
)
def test_a_realm_keeps_the_rules_of_redirects(server: Oci, realm: str) -> None:
    api = OciServer(OciTarget.parse("oci://registry.example.com/some/repo"), [])
    with pytest.raises(RemoteError):
        api.log_in([f'Bearer realm="{realm.format(port=server.server_port)}"'], {})
    assert server.requests == []


def test_a_version_too_large_for_a_manifest_is_not_published(
    registry: Registry, make_draft: MakeDraft, server: Oci, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(make_draft(), "1.0.0")
    monkeypatch.setattr(oci_client, "MAX_OCI_BYTES", 500)
    with pytest.raises(InputError):
        send(registry, server)
    assert "1.0.0" not in server.manifests


@pytest.mark.parametrize("statement", [b" " * (MAX_OCI_BYTES + 1), b"{", b"[" * 60_000, b"\xff"])
def test_a_malformed_statement_stops_the_import(
    server: Oci, index: str, other: Registry, statement: bytes
) -> None:
    server.refer(index, statement, ENVELOPE)
    with pytest.raises(IntegrityError):
        fetch_version(other.publisher(), server.url("acme/pii:1.0.0"))
    assert other.names() == []
    assert fetch_version(other.publisher(), server.url("acme/pii:1.0.0"), statements=False).new
