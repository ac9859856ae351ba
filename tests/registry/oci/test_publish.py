"""Versions in a real OCI registry: what is sent, what other programs read, what comes back, and with whose credentials."""

import base64
import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from support.registries import owner
from support.registries.gated import refusal
from support.servers import http
from support.servers.docker_registry import OciServer, docker_registry
from support.servers.oci import send

from onnxreg.registry import Registry
from onnxreg.registry.log.log import load
from onnxreg.registry.oci import MODEL_PACK, Credential, OciClient, OciTarget, fetch_version, find_credential
from onnxreg.registry.signing import generate
from onnxreg.registry.store.protocol import blob_path
from onnxreg.registry.trust.known_heads import load_trust
from onnxreg.registry.trust.signatures import signed_statements as signatures_of
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    GateError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[OciServer]:
    with docker_registry(tmp_path_factory.mktemp("oci")) as running:
        yield running


def test_an_import_has_the_same_manifest_and_the_same_statements(filled, other, server):
    url = server.url("same/pii")
    owner.sign(filled, "acme/pii:1.0.0", generate("ed25519"))
    result = send(filled, url)
    assert (result.target.tag, result.referrers) == ("1.0.0", 2)
    fetched = fetch_version(other.publisher(), f"{url}:1.0.0")
    assert (fetched.digest, str(fetched.version)) == (filled.get("acme/pii").digest, "1.0.0")
    other.check()
    assert len([*signatures_of(load(other.store, "acme/pii"), load_trust())]) == 1
    assert not fetch_version(other.publisher(), f"{url}@{result.target.digest}").new
    with pytest.raises(ConflictError, match="known to other registries"):
        owner.drop(filled, "acme/pii:1.0.0")


def test_nothing_is_hashed_again_the_server_checks_each_blob(filled, server):
    digest = filled.get("acme/pii").manifest.artifacts[0].digest
    blob = filled.store.root / blob_path(digest)
    blob.chmod(0o644)
    blob.write_bytes(b"\0" * blob.stat().st_size)
    with pytest.raises(RemoteError, match="DIGEST_INVALID"):
        send(filled, server.url("damaged/pii"))
    assert OciClient(OciTarget.parse(server.url("damaged/pii"))).find_manifest("1.0.0") is None


def test_a_second_publish_sends_nothing_and_a_tag_never_changes(filled, server):
    url = server.url("twice/pii:latest")
    send(filled, url)
    before = len(server.requests())
    again = send(filled, url)
    assert (again.blobs, again.size) == (0, 0)
    assert {method for method, _ in server.requests()[before:]} == {"GET"}
    filled.make("2.0.0", seed="b")
    with pytest.raises(ConflictError, match="is another manifest"):
        send(filled, url)


def test_a_yanked_version_is_not_published(filled, server):
    filled.yank("acme/pii:1.0.0", "bad")
    (entry,) = filled.state("acme/pii").versions.values()
    with pytest.raises(NotFoundError, match="yanked"):
        send(filled, server.url("yanked/pii"), f"acme/pii@{entry.manifest}")


def test_a_refused_artifact_says_so(gated, server):
    url = server.url("gates/pii")
    send(gated, url, "acme/pii:1.2.0")
    layers = json.loads(OciClient(OciTarget.parse(url)).manifest("1.2.0"))["layers"]
    states = [layer["annotations"].get("org.onnxreg.certification") for layer in layers]
    stated = [item.certification.state for item in gated.get("acme/pii:1.2.0").manifest.artifacts]
    assert "refused" in stated and sorted(filter(None, states)) == sorted(stated)


def test_a_later_evaluation_is_one_more_referrer_and_comes_back(gated, other, server):
    """The documents of a version never change."""
    url, ref = server.url("gates/later"), "acme/pii:1.0.0"
    first = send(gated, url, ref)
    owner.attest(gated, ref, refusal(gated, "1.0.0"))
    second = send(gated, url, ref)
    assert (second.target, second.referrers) == (first.target, first.referrers + 1)
    fetch_version(other.publisher(), f"{url}:1.0.0")
    states = [[item.state for item in place.get(ref).states.values()] for place in (other, gated)]
    assert states[0] == states[1] and "refused" in states[0]


def test_a_governed_channel_is_judged(gated, server):
    owner.promote(gated, "acme/pii:1.1.0", "stable")
    url = server.url("gates/stable")
    assert send(gated, url, "acme/pii:stable").target.tag == "1.1.0"
    owner.attest(gated, "acme/pii:1.1.0", refusal(gated, "1.1.0"))
    with pytest.raises(GateError):
        send(gated, url, "acme/pii:stable")


def test_a_killed_publish_is_finished_by_the_next(registry, other, server):
    registry.make("1.0.0", size=8_000_000)
    url = server.url("killed/pii")
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", registry.place]
    process = subprocess.Popen([*command, "push", "acme/pii", url], stderr=subprocess.DEVNULL)
    while not any("killed/pii/blobs/uploads" in uri for _, uri in server.requests()):
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    process.wait()
    with pytest.raises(NotFoundError):
        fetch_version(other.publisher(), f"{url}:1.0.0")
    send(registry, url)
    assert fetch_version(other.publisher(), f"{url}:1.0.0").digest == registry.get("acme/pii").digest


def test_garbled_bytes_are_refused(filled, other, server):
    url = server.url("garbled/pii")
    send(filled, url)
    digest = filled.get("acme/pii").manifest.artifacts[0].digest
    file = server.blob(digest.hex)
    good = file.read_bytes()
    file.write_bytes(b"x" * len(good))
    try:
        with pytest.raises(IntegrityError):
            fetch_version(other.publisher(), f"{url}:1.0.0")
    finally:
        file.write_bytes(good)
    assert other.names() == []
    assert fetch_version(other.publisher(), f"{url}:1.0.0").new


def test_skopeo_reads_and_copies_the_version(filled, other, server, tmp_path):
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("skopeo is not installed: apt-get install skopeo")
    send(filled, server.url("skopeo/pii"))
    docker_url = f"docker://{server.host}/skopeo/pii:1.0.0"
    inspect = [skopeo, "inspect", "--raw", "--tls-verify=false", docker_url]
    document = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)
    assert document["artifactType"] == MODEL_PACK
    options = ["--insecure-policy", "copy", "--src-tls-verify=false"]
    copy_place = f"docker://{server.host}/skopeo/copy:1.0.0"
    subprocess.run([skopeo, *options, "--dest-tls-verify=false", docker_url, copy_place], check=True)
    copied = fetch_version(other.publisher(), server.url("skopeo/copy:1.0.0"))
    assert copied.digest == filled.get("acme/pii").digest
    subprocess.run([skopeo, *options, docker_url, f"dir:{tmp_path / 'dir'}"], check=True)
    for file in filled.get("acme/pii").manifest.all_files():
        assert Digest.of((tmp_path / "dir" / file.digest.hex).read_bytes()) == file.digest


BCRYPT = "$2b$04$Lkhz2vv7SrV9MExcF0xd3.kIt1sDseHZe4mnXD0OCcgSTgGgFRpH."
"""Of the password `secret`."""


def encoded(user: str, password: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


ME = encoded("me", "secret")
BASIC = f"Basic {ME['auth']}"


def test_the_entry_for_the_longest_part_counts(auth_file, monkeypatch):
    entries = {"host": "a", "host/x": "b", "https://old.example/v1/": "c", "https://index.docker.io/v1/": "d"}
    document = {"auths": {place: encoded(user, "1") for place, user in entries.items()}}
    auth_file.with_name("data").write_text(json.dumps(document))
    auth_file.symlink_to("data")  # as Kubernetes mounts a secret
    monkeypatch.setenv("DOCKER_CONFIG", "~unknown/x")  # as for an account without a home directory
    for host, repository, user in (
        *(("host", "y/z", "a"), ("host", "x/y/z", "b"), ("host", "xy", "a")),
        *(("old.example", "any", "c"), ("other", "x", None), ("registry-1.docker.io", "x", "d")),
    ):
        assert find_credential(host, repository) == (user and Credential(user, "1"))


def test_helper_programs_are_asked(auth_file, tmp_path, monkeypatch):
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        "#!/bin/sh\nread host\n"
        'case $host in known*|https://index.docker.io/v1/) echo \'{"Username": "<token>", "Secret": "t"}\';;'
        " *) echo credentials not found in native keychain; exit 1;; esac\n"
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    auth_file.write_text(json.dumps({"credsStore": "test", "auths": {"known": {}}}))
    assert find_credential("known", "x") == Credential("", "", "t")
    assert find_credential("unknown", "x") is None
    assert find_credential("docker.io", "x/y") == Credential("", "", "t")
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
        client.fetch(digest, 4, lambda start: io.BytesIO(b"data"))
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
            client.fetch(Digest.of(b"data"), 4, lambda start: io.BytesIO(b"data"))
    assert uploads == [None, *[BASIC] * 4]
