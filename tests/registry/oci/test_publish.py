"""Versions in a real OCI registry: what is sent, what other programs read, what comes back."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from support.registries import owner
from support.registries.gated import refusal
from support.servers.docker_registry import OciServer, docker_registry
from support.servers.oci import send

from onnxreg.registry.log.lookup import load
from onnxreg.registry.oci.client import OciClient, OciTarget
from onnxreg.registry.oci.versions import MODEL_PACK, fetch_version
from onnxreg.registry.signing import generate
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.trust.known_heads import load_trust
from onnxreg.registry.trust.signatures import signed_statements as signatures_of
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, GateError, IntegrityError, NotFoundError, RemoteError


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
    assert owner.verify(other).damages == []
    signatures = list(signatures_of(load(other.store, "acme/pii"), load_trust()))
    assert len(signatures) == 1
    assert not fetch_version(other.publisher(), f"{url}@{result.target.digest}").new


def test_nothing_is_hashed_again_the_server_checks_each_blob(filled, server):
    digest = filled.get("acme/pii").manifest.artifacts[0].digest
    blob = filled.store.root / blob_path(digest)
    blob.chmod(0o644)
    blob.write_bytes(b"\0" * blob.stat().st_size)
    with pytest.raises(RemoteError, match="DIGEST_INVALID"):
        send(filled, server.url("damaged/pii"))
    assert OciClient(OciTarget.parse(server.url("damaged/pii"))).find_manifest("1.0.0") is None


def test_a_second_publish_sends_nothing_and_a_tag_never_changes(filled, make_draft, server):
    url = server.url("twice/pii:latest")
    send(filled, url)
    before = len(server.requests())
    again = send(filled, url)
    assert (again.blobs, again.size) == (0, 0)
    assert {method for method, _ in server.requests()[before:]} == {"GET"}
    filled.add(make_draft(seed="b"), "2.0.0")
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
    states = [[item.state for item in place.get(ref).states] for place in (other, gated)]
    assert states[0] == states[1] and "refused" in states[0]


def test_a_governed_channel_is_judged(gated, server):
    owner.promote(gated, "acme/pii:1.1.0", "stable")
    url = server.url("gates/stable")
    assert send(gated, url, "acme/pii:stable").target.tag == "1.1.0"
    owner.attest(gated, "acme/pii:1.1.0", refusal(gated, "1.1.0"))
    with pytest.raises(GateError):
        send(gated, url, "acme/pii:stable")


def test_a_killed_publish_is_finished_by_the_next(registry, other, make_draft, server):
    registry.add(make_draft(size=8_000_000), "1.0.0")
    url = server.url("killed/pii")
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", str(registry.store.root)]
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
