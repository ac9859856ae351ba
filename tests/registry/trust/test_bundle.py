"""Bundles, judged by OpenSSF's own tool where it can be had: it lives in an environment of its own."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.registries.home import Home
from support.trust.world import MODEL

from onnxreg.cli.commands.decide import write_bundle
from onnxreg.registry.signing import generate, is_valid
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.signing.dsse import Envelope

CACHE = Path(__file__).parents[3] / ".cache" / "bench" / "model-signing" / "bin" / "model_signing"
"""`python -m venv` and `pip install model-signing==1.1.1 pyOpenSSL` make it."""


@pytest.fixture
def model_signing() -> str:
    found = str(CACHE) if CACHE.exists() else shutil.which("model_signing")
    if not found:
        pytest.skip("model_signing is not installed")
    return found


def test_the_tool_accepts_a_pulled_directory_and_nothing_else(world, tmp_path, model_signing):
    registry, key = Home(world.tree), generate("ecdsa-p256")
    out, bundle, public = tmp_path / "pii", tmp_path / "pii.sig", tmp_path / "key.pub"
    registry.write_out(MODEL, out)
    write_bundle(bundle, registry.get(MODEL), key)
    public.write_text(key.public.pem)

    def accepted(public: Path) -> bool:
        words = [model_signing, "verify", "key", "--public_key", public, "--signature", bundle, out]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
        )
        return done.returncode == 0

    assert accepted(public)
    other = tmp_path / "other.pub"
    other.write_text(generate("ecdsa-p256").public.pem)
    assert not accepted(other)
    weights = out / "model.onnx"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes() + b"x")
    assert not accepted(public)


def test_a_bundle_lists_every_file(world, tmp_path):
    registry, key = Home(world.tree), generate("ecdsa-p256")
    registry.write_out(MODEL, tmp_path / "out")
    write_bundle(tmp_path / "sig", registry.get(MODEL), key)
    envelope = Envelope.decode(
        json.dumps(json.loads((tmp_path / "sig").read_bytes())["dsseEnvelope"]).encode()
    )
    listed = [item["name"] for item in json.loads(envelope.payload)["predicate"]["resources"]]
    written = [path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*")]
    assert listed == sorted(written)
    assert is_valid(key.public, envelope.signatures[0].sig, envelope.signed)


def test_a_bundle_wants_p256(world, tmp_path):
    with pytest.raises(InputError) as error:
        write_bundle(tmp_path / "sig", Home(world.tree).get(MODEL), world.release)
    assert "ecdsa-p256" in error.value.hint
    assert not (tmp_path / "sig").exists()
