"""Credentials as docker, skopeo and oras keep them, against a real registry with Basic and with Bearer tokens."""

import base64
import io
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from support.servers.docker_registry import docker_registry

from onnxreg.registry import Registry
from onnxreg.registry.oci.client import Credential, OciClient, OciTarget, find_credential
from onnxreg.registry.oci.versions import fetch_version, publish
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, RegError, RemoteError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]
BCRYPT = "$2b$04$Lkhz2vv7SrV9MExcF0xd3.kIt1sDseHZe4mnXD0OCcgSTgGgFRpH."
"""Of the password `secret`."""


def encoded(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture(autouse=True)
def auth_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only file of credentials, which does not exist yet."""
    path = tmp_path / "auth.json"
    for variable in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        monkeypatch.setenv(variable, str(tmp_path / "none"))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(path))
    return path


def test_the_entry_for_the_longest_part_counts(auth_file: Path) -> None:
    hosts = {
        "host": encoded("a", "1"),
        "host/x": encoded("b", "2"),
        "https://old.example/v1/": encoded("c", "3"),
    }
    auth_file.write_text(json.dumps({"auths": hosts}))
    assert find_credential("host", "y/z") == Credential("a", "1")
    assert find_credential("host", "x/y/z") == Credential("b", "2")
    assert find_credential("host", "xy") == Credential("a", "1")
    assert find_credential("old.example", "any") == Credential("c", "3")
    assert find_credential("other", "x") is None


def test_helper_programs_are_asked(auth_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        "#!/bin/sh\nread host\n"
        'case $host in known*) echo \'{"Username": "<token>", "Secret": "t"}\';;'
        " *) echo credentials not found in native keychain; exit 1;; esac\n"
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    auth_file.write_text(json.dumps({"credsStore": "test", "auths": {"known": {}}}))
    assert find_credential("known", "x") == Credential("", "", "t")
    assert find_credential("unknown", "x") is None
    auth_file.write_text(json.dumps({"credHelpers": {"known/x": "test"}}))
    assert find_credential("known", "x/y") == Credential("", "", "t")
    assert find_credential("known", "y") is None


def test_a_malformed_file_is_named(auth_file: Path) -> None:
    auth_file.write_text("{")
    with pytest.raises(InputError, match=r"auth\.json is not a file of credentials"):
        find_credential("host", "x")


def push(registry: Registry, url: str) -> None:
    publish(registry.store, Ref.parse("acme/pii"), OciTarget.parse(url))


def test_basic(
    registry: Registry, other: Registry, make_draft: MakeDraft, tmp_path: Path, auth_file: Path
) -> None:
    registry.add(make_draft(), "1.0.0")
    (tmp_path / "htpasswd").write_text(f"me:{BCRYPT}\n")
    auth = f"auth: {{htpasswd: {{realm: test, path: {tmp_path / 'htpasswd'}}}}}"
    with docker_registry(tmp_path / "oci", auth) as server:
        with pytest.raises(RemoteError, match="401 UNAUTHORIZED"):
            push(registry, server.url("acme/pii"))
        auth_file.write_text(json.dumps({"auths": {server.host: encoded("me", "secret")}}))
        push(registry, server.url("acme/pii"))
        assert (
            fetch_version(other.publisher(), server.url("acme/pii:1.0.0")).digest
            == registry.get("acme/pii").digest
        )


class TokenServer:
    """Gives tokens that `docker-registry` accepts, signed by a key of its own, each valid for `seconds`, or one less."""

    def __init__(self, directory: Path, seconds: int) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self._key, self.seconds = ec.generate_private_key(ec.SECP256R1()), seconds
        name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")]), datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = directory / "token.crt"
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self._der = certificate.public_bytes(serialization.Encoding.DER)
        self.requests: list[tuple[str, list[str], str | None]] = []

    def token(self, scopes: list[str]) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        def part(data: bytes) -> str:
            return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

        now = int(time.time())
        access = [
            {"type": kind, "name": name, "actions": actions.split(",")}
            for kind, name, actions in (scope.split(":") for scope in scopes)
        ]
        header = {"typ": "JWT", "alg": "ES256", "x5c": [base64.b64encode(self._der).decode()]}
        claims = {
            "iss": "test",
            "aud": "registry",
            "sub": "me",
            "nbf": now - 120,
            "exp": now - 60 + self.seconds,
            "access": access,
        }
        signed = f"{part(json.dumps(header).encode())}.{part(json.dumps(claims).encode())}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{part(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    @contextmanager
    def serving(self) -> Iterator[str]:
        tokens = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, text: str) -> None:
                query = parse_qs(text)
                scopes = [scope for value in query.get("scope", []) for scope in value.split()]
                tokens.requests.append((self.command, scopes, self.headers.get("Authorization")))
                refresh = query.get("refresh_token", [None])[0]
                allowed = self.headers.get("Authorization") == f"Basic {encoded('me', 'secret')['auth']}"
                if not allowed and refresh != "identity":
                    self.send_error(401)
                    return
                data = json.dumps({"token": tokens.token(scopes)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                self._answer(urlsplit(self.path).query)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}/token"
            finally:
                server.shutdown()


@pytest.mark.parametrize("kind", ["password", "identity"])
def test_bearer_tokens(
    kind: str, registry: Registry, other: Registry, make_draft: MakeDraft, tmp_path: Path, auth_file: Path
) -> None:
    pytest.importorskip("cryptography")
    registry.add(make_draft(), "1.0.0")
    tokens = TokenServer(tmp_path, 3600)
    with tokens.serving() as realm:
        auth = (
            f"auth: {{token: {{realm: '{realm}', service: registry, issuer: test,"
            f" rootcertbundle: {tokens.certificate}}}}}"
        )
        with docker_registry(tmp_path / "oci", auth) as server:
            with pytest.raises(RegError, match="401"):
                push(registry, server.url("acme/pii"))
            entry = encoded("me", "secret") if kind == "password" else {"identitytoken": "identity"}
            auth_file.write_text(json.dumps({"auths": {f"{server.host}/acme": entry}}))
            tokens.requests.clear()
            push(registry, server.url("acme/pii"))
            method = "GET" if kind == "password" else "POST"
            assert [(way, scopes) for way, scopes, _ in tokens.requests] == [
                (method, ["repository:acme/pii:pull,push"])
            ]
            fetched = fetch_version(other.publisher(), server.url("acme/pii:1.0.0"))
            assert fetched.digest == registry.get("acme/pii").digest


def test_an_expired_token_is_renewed(tmp_path: Path, auth_file: Path) -> None:
    pytest.importorskip("cryptography")
    tokens = TokenServer(tmp_path, 2)
    with tokens.serving() as realm:
        auth = (
            f"auth: {{token: {{realm: '{realm}', service: registry, issuer: test,"
            f" rootcertbundle: {tokens.certificate}}}}}"
        )
        with docker_registry(tmp_path / "oci", auth) as server:
            auth_file.write_text(json.dumps({"auths": {server.host: encoded("me", "secret")}}))
            target, digest = OciTarget.parse(server.url("acme/pii")), Digest.of(b"data")
            client = OciClient(target, writes=True)
            client.upload(digest, 4, lambda: io.BytesIO(b"data"))
            tokens.seconds = 60
            time.sleep(2.1)
            assert client.open_blob(digest).read() == b"data"
            assert len(tokens.requests) == 2


class UploadElsewhere(BaseHTTPRequestHandler):
    """Asks for a password, and sends uploads to `elsewhere`; `authorizations` has that of each upload."""

    elsewhere = ""
    failures = 0
    authorizations: list[str | None]

    def do_POST(self) -> None:
        has_password = self.headers.get("Authorization") is not None
        self.send_response(202 if has_password else 401)
        self.send_header("WWW-Authenticate", 'Basic realm="test"')
        self.send_header("Location", f"{self.elsewhere}/upload?id=1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_PUT(self) -> None:
        self.authorizations.append(self.headers.get("Authorization"))
        self.rfile.read(int(self.headers["Content-Length"]))
        UploadElsewhere.failures -= 1
        self.send_response(503 if UploadElsewhere.failures >= 0 else 201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_an_upload_to_another_server_gets_no_password(auth_file: Path) -> None:
    authorizations: list[str | None] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), UploadElsewhere) as store:
        UploadElsewhere.authorizations = authorizations
        UploadElsewhere.elsewhere = f"http://127.0.0.1:{store.server_address[1]}"
        with ThreadingHTTPServer(("127.0.0.1", 0), UploadElsewhere) as server:
            for each_server in (store, server):
                Thread(target=each_server.serve_forever, daemon=True).start()
            host = f"127.0.0.1:{server.server_address[1]}"
            auth_file.write_text(json.dumps({"auths": {host: encoded("me", "secret")}}))
            client = OciClient(OciTarget.parse(f"oci://{host}/a"))
            client.upload(Digest.of(b"data"), 4, lambda: io.BytesIO(b"data"))
            UploadElsewhere.elsewhere = f"http://{host}"
            client.upload(Digest.of(b"data"), 4, lambda: io.BytesIO(b"data"))
            UploadElsewhere.failures = 2
            client.upload(Digest.of(b"data"), 4, lambda: io.BytesIO(b"data"))
            for each_server in (store, server):
                each_server.shutdown()
    assert authorizations == [None, *[f"Basic {encoded('me', 'secret')['auth']}"] * 4]
