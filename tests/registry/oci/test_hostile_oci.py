"""OCI registries that answer what they like: bounded, in an error of their family, and nothing of it in our name."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.registries import owner
from support.sampling import sampled
from support.servers.oci import Handler, Oci, send

from onnxreg.registry import Registry, oci
from onnxreg.registry.log.log import load
from onnxreg.registry.oci import OciClient, OciServer, OciTarget, fetch_version, publish
from onnxreg.registry.signing import Keystore, generate
from onnxreg.registry.store import requests
from onnxreg.registry.trust.known_heads import load_trust
from onnxreg.registry.trust.signatures import signed_statements as signatures_of
from onnxreg.schema.core.bounds import MAX_OCI_BYTES, MAX_STATEMENTS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError, RemoteError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.units import Advance, Progress
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE


@pytest.fixture
def index(filled, server) -> str:
    """The digest of a published version."""
    return str(send(filled, server.url("acme/pii")).target.digest)


def envelope(number: int) -> bytes:
    signatures = [{"keyid": "0" * 64, "sig": "AA=="}]
    value = {"payloadType": "x", "payload": "", "signatures": signatures, "number": number}
    return json.dumps(value).encode()


def kinds(registry: Registry) -> list[str]:
    return [line.event.kind for line in registry.log("acme/pii")]


def fetch(other: Registry, server: Oci, statements: bool | None = None) -> bool:
    return fetch_version(other.publisher(), server.url("acme/pii:1.0.0"), statements=statements).new


def client(server: Oci) -> OciClient:
    return OciClient(OciTarget.parse(server.url("acme/pii")))


@pytest.mark.parametrize("has_referrers", [True, False])
def test_signatures_and_their_version_come_back(filled, other, server, has_referrers):
    """A registry with the referrers API, which has many pages of them here, gets no fallback tag."""
    server.has_referrers, server.page = has_referrers, 2
    for number in range(3):
        owner.sign(filled, "acme/pii:1.0.0", generate("ed25519"))
        result = send(filled, server.url("acme/pii"))
        assert result.referrers == number + 2
    assert send(filled, server.url("acme/pii")).blobs == 0
    digest = result.target.digest
    assert digest is not None
    assert len(client(server).referrers(digest, {*oci.STATEMENTS, oci.SBOM})) == 4
    assert (client(server).find_manifest(oci.fallback_tag(digest)) is None) == has_referrers
    fetch(other, server)
    assert other.get("acme/pii").digest == filled.get("acme/pii").digest
    assert len(list(signatures_of(load(other.store, "acme/pii"), load_trust()))) == 3


MANY = range(MAX_STATEMENTS + 1)
EXCESS = {
    "statements": [[n] for n in MANY],
    "layers of one referrer": [list(MANY)],
    "referrers without a statement": [[] for _ in MANY],
}


@pytest.mark.parametrize("layers", EXCESS.values(), ids=EXCESS)
def test_statements_beyond_the_limit_are_refused_and_nothing_is_published(server, index, other, layers):
    for numbers in layers:
        server.refer(index, ENVELOPE, *map(envelope, numbers))
    with pytest.raises(RemoteError, match="statements"):
        fetch(other, server)
    assert other.names() == []
    fetch(other, server, statements=False)
    assert kinds(other) == ["publish"]


def test_statements_are_signed_only_if_asked(server, index, other, monkeypatch, tmp_path):
    server.refer(index, ENVELOPE, envelope(1))
    for name, value in {"KEYS": str(tmp_path / "keys"), "KEY_PASSPHRASE": "pw", "SIGNING_KEY": "ci"}.items():
        monkeypatch.setenv(f"REG_{name}", value)
    Keystore().new("ci", "ed25519", "pw")
    with pytest.raises(InputError):
        fetch(other, server)
    assert other.names() == []
    fetch(other, server, statements=True)
    assert kinds(other) == ["publish", "attest"]


def test_a_list_of_referrers_is_bounded(server, index, monkeypatch):
    monkeypatch.setattr(oci, "MAX_REFERRER_BYTES", 10_000)
    page = json.dumps({"manifests": [{"artifactType": "other", "digest": 1}] * 100}).encode()
    sent = []

    def endless(handler: Handler) -> bool:
        sent.append(len(page))
        handler.reply(200, page, {"Link": f'</v2/acme/pii/referrers/x?n={len(sent)}>; rel="next"'})
        return True

    server.hook = endless
    with pytest.raises(RemoteError):
        client(server).referrers(Digest.parse(index), oci.STATEMENTS)
    assert sum(sent) < 10_000 + 2 * len(page)


def answering(server: Oci, part: str, status: int, data: bytes = b"", **headers: str) -> list[str]:
    """From now on a request with this in its method and path is answered so; returns these requests."""
    met: list[str] = []

    def answer(handler: Handler) -> bool:
        line = f"{handler.command} {handler.path}"
        if part not in line:
            return False
        met.append(line)
        handler.reply(status, data, {name.replace("_", "-"): value for name, value in headers.items()})
        return True

    server.hook = answer
    return met


def manifest(document: bytes) -> Callable[[Oci, str], object]:
    return lambda server, index: server.manifests.update({"1.0.0": (document, "")})


def statement(data: bytes) -> Callable[[Oci, str], object]:
    return lambda server, index: server.refer(index, ENVELOPE, data)


def document(part: str) -> Callable[[Oci, str], object]:
    """Each answer to such a request is more than 4 MiB."""
    data = b'{"manifests": [], "x": "' + b"a" * MAX_OCI_BYTES + b'"}'
    return lambda server, index: answering(server, part, 200, data)


MALFORMED = {
    "manifest: list": (manifest(b"[]"), IntegrityError),
    "manifest: annotation": (manifest(b'{"annotations": [1]}'), InputError),
    "manifest: digest": (manifest(b'{"annotations": {"org.onnxreg.manifest": "sha256:x"}}'), IntegrityError),
    "manifest: annotations": (manifest(b'{"annotations": ["org.onnxreg.manifest"]}'), IntegrityError),
    "statement: size": (statement(b" " * (MAX_OCI_BYTES + 1)), IntegrityError),
    "statement: end": (statement(b"{"), IntegrityError),
    "statement: depth": (statement(b"[" * 60_000), IntegrityError),
    "statement: bytes": (statement(b"\xff"), IntegrityError),
    "manifest: size": (document("/manifests/"), RemoteError),
    "referrers: size": (document("/referrers/"), RemoteError),
}


@pytest.mark.parametrize("case", sampled(MALFORMED, 2))
def test_malformed_documents_are_refused_and_nothing_is_published(server, index, other, case):
    spoil, family = MALFORMED[case]
    spoil(server, index)
    with pytest.raises(family):
        fetch(other, server)
    assert other.names() == []
    if case.startswith("statement"):
        assert fetch(other, server, statements=False)


BROKEN = ["http://[::1", "http://127.0.0.1:x/", "http://127.0.0.1/a\x01b", "http://h\u00e9/", ""]
UPLOADS = [
    (method, status, "/elsewhere") for method in ("POST", "PUT") for status in (301, 302, 303, 307, 308)
]


@pytest.mark.parametrize(("method", "status", "location"), UPLOADS + [("POST", 202, url) for url in BROKEN])
def test_a_redirected_or_broken_upload_is_an_error_of_the_remote(filled, server, method, status, location):
    answering(server, f"{method} ", status, Location=location)
    with pytest.raises(RemoteError):
        send(filled, server.url("acme/pii"))


def test_an_upload_that_is_repeated_is_counted_once(filled, server, monkeypatch):
    monkeypatch.setattr(requests, "MAX_WAIT_SECONDS", 0.01)
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
    result = publish(filled.store, Ref.parse("acme/pii"), OciTarget.parse(server.url("acme/pii")), counted)
    assert failed and counted.moved == result.size


REALMS = ["http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1/a\x01b c", "file:///etc/passwd", ""]
REALMS += ["ftp://x/", "http://127.0.0.1:9/token#part"]


@pytest.mark.parametrize(
    ("realm", "status"), [*((realm, 200) for realm in REALMS), *((None, n) for n in (301, 302, 307, 308))]
)
def test_a_broken_realm_or_a_redirected_token_is_an_error(server, index, realm, status, auth_file):
    auth_file.write_text(json.dumps({"auths": {server.host: {"identitytoken": "refresh"}}}))

    def challenge(handler: Handler) -> bool:
        if handler.path.startswith("/token"):
            handler.reply(status, b"{}", {} if status == 200 else {"Location": "/token2x"})
        elif "Authorization" not in handler.headers:
            asked = f"{server.base}/token" if realm is None else realm
            handler.reply(401, headers={"WWW-Authenticate": f'Bearer realm="{asked}"'})
        else:
            return False
        return True

    server.hook = challenge
    with pytest.raises(RegError if realm is None else RemoteError):
        client(server).find_manifest("1.0.0")


@pytest.mark.parametrize(
    "realm", ["http://HOST/any?delete=all", "http://localhost:1/", "https://10.0.0.1/", "https://HOST/"]
)
def test_a_realm_keeps_the_rules_of_redirects(server, realm):
    api = OciServer(OciTarget.parse("oci://registry.example.com/some/repo"), [])
    with pytest.raises(RemoteError):
        api.log_in([f'Bearer realm="{realm.replace("HOST", server.host)}"'], {})
    assert server.requests == []


@pytest.mark.parametrize("value", [b"1e999", b'"\\ud800"', b"99999999999999999999"])
def test_a_list_of_referrers_that_cannot_be_written_again(filled, server, value):
    server.has_referrers = False
    digest = send(filled, server.url("acme/pii")).target.digest
    assert digest is not None
    entry = b'{"digest": "sha256:%s", "x": %s}' % (b"0" * 64, value)
    tag = oci.fallback_tag(digest)
    server.manifests[tag] = b'{"manifests": [%s]}' % entry, server.manifests[tag][1]
    with pytest.raises(IntegrityError):
        send(filled, server.url("acme/pii"))


def test_a_version_too_large_for_a_manifest_is_not_published(filled, server, monkeypatch):
    monkeypatch.setattr(oci, "MAX_OCI_BYTES", 500)
    with pytest.raises(InputError):
        send(filled, server.url("acme/pii"))
    assert "1.0.0" not in server.manifests
