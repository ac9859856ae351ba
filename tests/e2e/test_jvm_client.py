"""The client in examples/jvm-client against real servers, and killed; its files in ONNX Runtime; its API from Kotlin."""

import importlib.util
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support import jvm
from support.registries.for_devices import publish
from support.servers import s3servers, static
from support.servers.faults import proxy
from support.servers.regserve import running
from support.servers.web_client import Call

from onnxreg.converters.runtime.golden import self_test
from onnxreg.registry.server.settings import Settings

NAME = "acme/pii"
pytestmark = [pytest.mark.more, pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)]


@pytest.fixture(scope="module")
def client() -> Iterator[Call]:
    with jvm.running("-Xmx32m") as call:
        yield call


def test_a_fetched_model_meets_its_golden_vectors(client, export, tmp_path):
    """A real export behind `reg serve`: each file that a device gets, run by ONNX Runtime."""
    with running(export.home) as site:
        for formats in (["onnx-int8"], ["ort-android"]):
            store = tmp_path / formats[0]
            question = {"query": {"formats": formats}, "device": {"ort": "1.23.2"}}
            outcome = client(site.url, store, "update", "acme/tiny", question)
            client(site.url, store, "extract", "acme/tiny", str(store / "files"))
            assert outcome["files"] == {
                path: f"sha256:{sha256((store / 'files' / path).read_bytes()).hexdigest()}"
                for path in outcome["files"]
            }
            golden = next(path for path in outcome["files"] if path.endswith(".golden.json"))
            vectors = (store / "files" / golden).read_bytes()
            comparisons = self_test(store / "files" / outcome["artifact"], vectors, golden)
            assert len(comparisons) == 2
            assert all(comparison.passed for comparison in comparisons)


def test_reg_serve_with_a_token(client, registry, tmp_path):
    """A file of 20 MB, with a memory of 32 MB."""
    files = publish(registry, tmp_path / "1", "1.0.0", 20_000_000)
    with running(registry.store.root, Settings(token="secret")) as site:
        refused = client(site.url, tmp_path / "store", "update", NAME)
        assert (refused["error"], "needs a token" in refused["message"]) == ("remote", True)
        assert client(site.url, tmp_path / "store", "update", NAME, token="other")["error"] == "remote"
        assert client(site.url, tmp_path / "store", "update", NAME, token="secret")["files"] == files


def test_https_with_a_certificate_that_is_trusted_or_not(client, registry, tmp_path):
    files = publish(registry, tmp_path / "1", "1.0.0")
    certificate = s3servers.certificate(tmp_path)
    trusted = tmp_path / "trusted.p12"
    import_it = ["-importcert", "-noprompt", "-file", tmp_path / "cert.pem", "-alias", "here"]
    keystore = ["-keystore", trusted, "-storetype", "PKCS12", "-storepass", "secret"]
    subprocess.run(["keytool", *import_it, *keystore], check=True, capture_output=True)
    store = [f"-Djavax.net.ssl.trustStore={trusted}", "-Djavax.net.ssl.trustStorePassword=secret"]
    with (
        static.serve(registry.store.root) as url,
        proxy(url, certificate) as site,
        jvm.running(*store) as call,
    ):
        assert client(site.url, tmp_path / "store", "update", NAME)["error"] == "remote"
        assert call(site.url, tmp_path / "store", "update", NAME, token="secret")["files"] == files


def slot_version(store: Path) -> str | None:
    """The current version by the bytes on the disk, all of whose files must be there and right."""
    slot = store / "slots" / "acme~pii"
    if not slot.exists():
        return None
    current: dict[str, Any] = json.loads(slot.read_bytes())["current"]
    for file in current["files"]:
        blob = store / "blobs" / file["digest"].removeprefix("sha256:")
        assert f"sha256:{sha256(blob.read_bytes()).hexdigest()}" == file["digest"]
    return str(current["version"])


def test_killed_at_random_moments(registry, tmp_path):
    """Fifteen kills, later and later, until two updates were whole; the next one goes on from what the disk has."""
    chance, store = Random(7), tmp_path / "store"
    kills = complete = version = 0
    files: dict[str, str] = {}
    with static.serve(registry.store.root) as url, proxy(url) as site:
        site.piece = 30_000
        site.plan = lambda method, path: "slow" if "/blobs/" in path else None
        request = json.dumps({"url": site.url, "directory": str(store), "call": "update", "words": [NAME]})
        options = ["-XX:TieredStopAtLevel=1", "-cp", jvm.classes(), "org.onnxreg.client.JvmClient"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        while kills < 15 or complete < 2:
            if complete == version:
                version += 1
                files = publish(registry, tmp_path / str(version), f"1.{version}.0", 3_000_000)
            with subprocess.Popen([str(jvm.JAVA), *options], **pipes) as process:
                assert process.stdin is not None and process.stdout is not None
                print(request, file=process.stdin, flush=True)
                time.sleep(chance.uniform(0.15, 0.9 + kills / 10))
                process.send_signal(signal.SIGKILL)
                answer = process.stdout.read().strip()
            kills += not answer
            assert not answer or json.loads(answer)["files"] == files
            current = slot_version(store)
            assert current in (None, f"1.{version - 1}.0", f"1.{version}.0")
            complete = version if current == f"1.{version}.0" else complete
            for blob in (store / "blobs").glob("*"):
                assert blob.suffix or sha256(blob.read_bytes()).hexdigest() == blob.name
        site.plan = lambda method, path: None
        with jvm.running() as call:
            assert call(site.url, store, "update", NAME)["files"] == files
            call(site.url, store, "tidy")
    assert not list((store / "partial").glob("*"))


def kotlin_jars() -> list[Path]:
    """The jars of the Kotlin compiler in the package kotlin-jupyter-kernel, if it is installed."""
    spec = importlib.util.find_spec("run_kotlin_kernel")
    root = os.environ.get("KOTLIN_JARS") or (spec and spec.origin and Path(spec.origin).parent / "jars")
    return sorted(Path(root).glob("*.jar")) if root else []


@pytest.mark.large
def test_calls_from_kotlin(registry, tmp_path):
    jars = kotlin_jars()
    if not jars:
        pytest.skip("no Kotlin compiler: pip install kotlin-jupyter-kernel")
    publish(registry, tmp_path / "1", "1.0.0")
    path = os.pathsep.join(map(str, jars))
    source = Path(__file__).parents[1] / "examples" / "kotlin" / "CallFromKotlin.kt"
    compiler = [str(jvm.JAVA), "-cp", path, "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler"]
    options = ["-no-stdlib", "-no-reflect", "-classpath", f"{jvm.classes()}{os.pathsep}{path}"]
    subprocess.run([*compiler, *options, "-d", tmp_path / "out", source], check=True, timeout=300)
    where = os.pathsep.join([str(jvm.classes()), str(tmp_path / "out"), path])
    with static.serve(registry.store.root) as url:
        command = [str(jvm.JAVA), "-cp", where, "CallFromKotlinKt", url, tmp_path / "store"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["1.0.0", "100000", "100005", "1.0.0", "NOT_FOUND"]
