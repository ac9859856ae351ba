"""Credentials as docker, skopeo and oras keep them, against a real registry with Basic and with Bearer tokens."""

import base64
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from support.servers import http
from support.servers.docker_registry import OciServer, docker_registry
from support.servers.oci import send

from onnxreg.registry import Registry
from onnxreg.registry.oci.client import Credential, OciClient, OciTarget, find_credential
from onnxreg.registry.oci.versions import fetch_version
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError, RegError, RemoteError

BCRYPT = "$2b$04$Lkhz2vv7SrV9MExcF0xd3.kIt1sDseHZe4mnXD0OCcgSTgGgFRpH."
"""Of the password `secret`."""


def encoded(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


ME = encoded("me", "secret")
BASIC = f"Basic {ME['auth']}"


def test_the_entry_for_the_longest_part_counts(auth_file):
    entries = {"host": "a", "host/x": "b", "https://old.example/v1/": "c"}
    auth_file.write_text(
        json.dumps({"auths": {place: encoded(user, "1") for place, user in entries.items()}})
    )
    for host, repository, user in (
        *(("host", "y/z", "a"), ("host", "x/y/z", "b"), ("host", "xy", "a")),
        *(("old.example", "any", "c"), ("other", "x", None)),
    ):
        assert find_credential(host, repository) == (user and Credential(user, "1"))


def test_helper_programs_are_asked(auth_file, tmp_path, monkeypatch):
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
    auth_file.write_text("{")
    with pytest.raises(InputError, match=r"auth\.json is not a file of credentials"):
        find_credential("host", "x")


def is_fetched(filled: Registry, other: Registry, server: OciServer) -> bool:
    found = fetch_version(other.publisher(), server.url("acme/pii:1.0.0"))
    return found.digest == filled.get("acme/pii").digest


def test_basic(filled, other, tmp_path, auth_file):
    (tmp_path / "htpasswd").write_text(f"me:{BCRYPT}\n")
    auth = f"auth: {{htpasswd: {{realm: test, path: {tmp_path / 'htpasswd'}}}}}"
    with docker_registry(tmp_path / "oci", auth) as server:
        with pytest.raises(RemoteError, match="401 UNAUTHORIZED"):
            send(filled, server.url("acme/pii"))
        auth_file.write_text(json.dumps({"auths": {server.host: ME}}))
        send(filled, server.url("acme/pii"))
        assert is_fetched(filled, other, server)


class Tokens:
    """Gives tokens that `docker-registry` accepts, signed by a key of its own, each valid for `seconds`, or one less."""

    def __init__(self, directory: Path, seconds: int) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        self.key, self.seconds, day = ec.generate_private_key(ec.SECP256R1()), seconds, timedelta(days=1)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
        made = x509.CertificateBuilder(name, name, self.key.public_key(), 1)
        made = made.not_valid_before(datetime.now(UTC) - day).not_valid_after(datetime.now(UTC) + day)
        certificate = made.sign(self.key, hashes.SHA256())
        self.path = directory / "token.crt"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        self.der = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
        self.requests: list[tuple[str, list[str]]] = []

    def token(self, scopes: list[str]) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        def part(value: object) -> str:
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

        now, asked = int(time.time()), [scope.split(":") for scope in scopes]
        access = [{"type": kind, "name": name, "actions": acts.split(",")} for kind, name, acts in asked]
        claims = {"iss": "test", "aud": "registry", "sub": "me", "nbf": now - 120, "access": access}
        header = {"typ": "JWT", "alg": "ES256", "x5c": [self.der]}
        signed = f"{part(header)}.{part({**claims, 'exp': now - 60 + self.seconds})}"
        r, s = decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{part(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def answer(self, handler: http.Handler) -> None:
        form = handler.body.decode() if handler.command == "POST" else urlsplit(handler.path).query
        query = parse_qs(form)
        scopes = [scope for value in query.get("scope", []) for scope in value.split()]
        self.requests.append((handler.command, scopes))
        if handler.headers.get("Authorization") != BASIC and query.get("refresh_token") != ["identity"]:
            return handler.reply(401)
        handler.reply(200, json.dumps({"token": self.token(scopes)}).encode())


@contextmanager
def guarded(tokens: Tokens, directory: Path) -> Iterator[OciServer]:
    """A registry that wants these tokens."""
    with http.serving(answer=lambda handler: tokens.answer(handler)) as url:
        auth = f"auth: {{token: {{realm: '{url}/token', service: registry, issuer: test,"
        with docker_registry(directory, f"{auth} rootcertbundle: {tokens.path}}}}}") as server:
            yield server


@pytest.mark.parametrize(("method", "entry"), [("GET", ME), ("POST", {"identitytoken": "identity"})])
def test_bearer_tokens(method, entry, filled, other, tmp_path, auth_file):
    tokens = Tokens(tmp_path, 3600)
    with guarded(tokens, tmp_path / "oci") as server:
        with pytest.raises(RegError, match="401"):
            send(filled, server.url("acme/pii"))
        auth_file.write_text(json.dumps({"auths": {f"{server.host}/acme": entry}}))
        tokens.requests.clear()
        send(filled, server.url("acme/pii"))
        assert tokens.requests == [(method, ["repository:acme/pii:pull,push"])]
        assert is_fetched(filled, other, server)


def test_an_expired_token_is_renewed(tmp_path, auth_file):
    tokens, digest = Tokens(tmp_path, 2), Digest.of(b"data")
    with guarded(tokens, tmp_path / "oci") as server:
        auth_file.write_text(json.dumps({"auths": {server.host: ME}}))
        client = OciClient(OciTarget.parse(server.url("acme/pii")), writes=True)
        client.upload(digest, 4, lambda: io.BytesIO(b"data"))
        tokens.seconds = 60
        time.sleep(2.1)
        assert client.open_blob(digest).read() == b"data"
        assert len(tokens.requests) == 2
        with pytest.raises(NotFoundError):
            client.open_blob(Digest.of(b"absent"))


def test_an_upload_to_another_server_gets_no_password(auth_file):
    """Nor is an upload that is sent again without it; the server asks for a password, and says where uploads go."""
    uploads: list[str | None] = []
    elsewhere, failures = [""], [0]

    def answer(handler: http.Handler) -> None:
        authorization = handler.headers.get("Authorization")
        if handler.command == "PUT":
            uploads.append(authorization)
            failures[0] -= 1
            return handler.reply(503 if failures[0] >= 0 else 201)
        headers = {"WWW-Authenticate": 'Basic realm="test"', "Location": f"{elsewhere[0]}/upload?id=1"}
        handler.reply(202 if authorization else 401, headers=headers)

    with http.serving(answer=answer) as store, http.serving(answer=answer) as url:
        host = url.removeprefix("http://")
        auth_file.write_text(json.dumps({"auths": {host: ME}}))
        client = OciClient(OciTarget.parse(f"oci://{host}/a"))
        for elsewhere[0], failures[0] in ((store, 0), (url, 0), (url, 2)):
            client.upload(Digest.of(b"data"), 4, lambda: io.BytesIO(b"data"))
    assert uploads == [None, *[BASIC] * 4]
