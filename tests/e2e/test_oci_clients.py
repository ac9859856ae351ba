"""Other people's programs read what `reg push` sent: oras pulls, olot parses, OpenSSF's model_signing verifies."""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.conftest import CACHE, python_of
from support.registries.drafts import write_draft
from support.servers.docker_registry import OciServer, docker_registry

from onnxreg.cli.commands.decide import write_bundle
from onnxreg.registry import Registry
from onnxreg.registry.oci import OciTarget, PublishResult, publish
from onnxreg.registry.signing import generate
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.ref import Ref

MODEL_SIGNING = CACHE / "bench" / "model-signing" / "bin" / "model_signing"
PULL = """
import sys
from oras.client import OrasClient
OrasClient(insecure=True).pull(target=sys.argv[1], outdir=sys.argv[2])
"""
PARSE = """
import sys
from olot.modelpack.model_config import Model
model = Model.model_validate_json(sys.stdin.read())
print(model.descriptor.name, model.descriptor.version, model.config.format, len(model.modelfs.diffIds))
"""
pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    directory = tmp_path_factory.mktemp("registry")
    registry = Registry(directory / "home")
    registry.add(write_draft(directory / "files", "acme/pii", "a", 100_000), "1.0.0")
    return registry


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    with docker_registry(tmp_path_factory.mktemp("oci")) as running:
        yield running


@pytest.fixture(scope="module")
def published(registry: Registry, server: OciServer) -> PublishResult:
    return publish(registry.store, Ref.parse("acme/pii"), OciTarget.parse(server.url("acme/pii")))


def pull(server: OciServer, target: Path) -> list[str]:
    """The paths that oras wrote."""
    image = f"{server.host}/acme/pii:1.0.0"
    subprocess.run([python_of("oras"), "-c", PULL, image, target], check=True, capture_output=True)
    return sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())


def test_oras_pulls_what_reg_pull_writes(registry, server, published, tmp_path):
    registry_files = {file.path: file.digest for file in published.version.manifest.all_files()}
    assert pull(server, tmp_path) == sorted(["openmed-onnx.json", *registry_files])
    for path, digest in registry_files.items():
        assert Digest.of((tmp_path / path).read_bytes()) == digest


def test_olot_parses_the_config(server, published):
    def get(kind: str, digest: str) -> bytes:
        url = f"http://{server.host}/v2/acme/pii/{kind}/{digest}"
        headers = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return bytes(answer.read())

    manifest = json.loads(get("manifests", "1.0.0"))
    config = get("blobs", manifest["config"]["digest"])
    command = [python_of("olot"), "-c", PARSE]
    parsed = subprocess.run(command, input=config, capture_output=True, check=True).stdout
    assert parsed.decode().split() == ["acme/pii", "1.0.0", "onnx", str(len(manifest["layers"]))]


def test_model_signing_verifies_what_oras_pulled(registry, server, published, tmp_path):
    program = str(MODEL_SIGNING) if MODEL_SIGNING.exists() else shutil.which("model_signing")
    if program is None:
        pytest.skip("model_signing is not installed")
    files, bundle, public = tmp_path / "pii", tmp_path / "pii.sig", tmp_path / "key.pub"
    assert "openmed-onnx.json" in pull(server, files)
    key = generate("ecdsa-p256")
    write_bundle(bundle, registry.get("acme/pii"), key)
    public.write_text(key.public.pem)
    command = [program, "verify", "key", "--public_key", public, "--signature", bundle, files]

    def status() -> int:
        environment = {"PATH": os.environ["PATH"]}
        return subprocess.run(command, capture_output=True, check=False, env=environment).returncode

    assert status() == 0
    (files / "config.json").write_bytes(b"changed")
    assert status() != 0
