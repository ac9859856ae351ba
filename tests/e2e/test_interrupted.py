"""An export, a push or a pull that is killed, interrupted, or runs out of disk: nothing half-written, nothing lost."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import export_in_process
from support.servers import hub, s3servers
from support.servers.faults import Proxy, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

pytestmark = pytest.mark.more

Interrupt = Callable[..., str]
EXPORT = ("export", "--profile", "android", "--name", "acme/tiny")
GO_ON = "error: interrupted\nhint: run the same command again: what arrived whole is not moved again\n"


def scratch(home: Path) -> list[Path]:
    return [path for path in (home / "local" / "tmp").glob("*") if path.is_dir()]


@pytest.fixture
def interrupt(environment: dict[str, str], tmp_path: Path) -> Interrupt:
    """Press Ctrl-C as soon as `when` holds. The program must end while the server still keeps it waiting; what it said."""

    def run(
        when: Callable[[], object], *words: object, sent: int = signal.SIGINT, code: int = 130,
        program: tuple[str, str] = ("-m", "onnxreg.cli"),
    ) -> str:  # fmt: skip
        command, pipes = [sys.executable, *program, *map(str, words)], {"stdout": -1, "stderr": -1}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, text=True, **pipes) as process:
            deadline = time.monotonic() + 120
            while not when() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.005)
            process.send_signal(sent)
            out, said = process.communicate(timeout=60)
        assert (process.returncode, out) == (code, "")
        return said

    return run


@pytest.mark.parametrize(
    ("sent", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.large)]
)
def test_an_export_ended_by_a_signal_leaves_nothing(
    reg, interrupt, exported, make_checkpoint, tmp_path, sent, code
):
    """The signal comes as soon as the export has written its first graph."""
    checkpoint, home = make_checkpoint(), exported.home
    words = (*EXPORT, checkpoint, "--output", "out")
    said = interrupt(lambda: any((home / "local" / "tmp").glob("*/model.onnx")), *words, sent=sent, code=code)
    assert "Traceback" not in said and not (tmp_path / "out").exists()
    assert sent == signal.SIGKILL or scratch(home) == []
    reg("verify")
    assert "0.1.1" not in reg("ls", "acme/tiny").stdout
    export_in_process(checkpoint, home, tmp_path / "out")
    assert scratch(home) == []
    assert "0.1.1" in reg("ls", "acme/tiny").stdout


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB: less than the tiny model's artifacts need."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", place]
    if os.name != "posix" or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs privileges that are not here")
    yield place
    gc.collect()  # graphs are cycles that map files of the place
    subprocess.run(["umount", place], check=True)


def test_an_export_to_a_full_disk_leaves_nothing(make_checkpoint, small_disk, capfd):
    home = small_disk / "home"
    assert main(["--registry", str(home), *EXPORT, str(make_checkpoint())]) == 9
    failed = capfd.readouterr().err
    assert "No space left" in failed and "free some space" in failed
    assert scratch(home) == []
    assert main(["--registry", str(home), "ls"]) == 3


SMALL_PARTS = """
import sys
from onnxreg.cli.main import main
from onnxreg.registry.store import bucket

bucket.SMALL_BYTES = bucket.PART_BYTES = 2**18
sys.exit(main())
"""
"""`reg`, which uploads in parts what has more than 256 KiB."""


@pytest.fixture
def s3_proxy(ministack: s3servers.Server, environment: dict[str, str]) -> Iterator[Proxy]:
    """A proxy through which `reg` reaches the bucket."""
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    with proxy(ministack.endpoint) as running:
        environment.update(ministack.environment, AWS_ENDPOINT_URL=running.url)
        yield running


@pytest.fixture
def temporary(environment: dict[str, str], tmp_path: Path) -> Path:
    """The directory for temporary files, and nothing else in it."""
    (tmp_path / "temporary").mkdir()
    environment["TMPDIR"] = str(tmp_path / "temporary")
    return tmp_path / "temporary"


@pytest.fixture
def models(tmp_path: Path) -> Registry:
    """A version with a file of several parts and two small ones."""
    registry, root = Registry(tmp_path / "home"), tmp_path / "work"
    root.mkdir()
    for path, data in {"model.onnx": os.urandom(2**20), "config.json": b"{}", "labels.json": b"[]"}.items():
        (root / path).write_bytes(data)
    companions = (DraftFile("config", "config.json"), DraftFile("labels", "labels.json"))
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
    registry.add(Draft("acme/pii", root, artifacts, companions), "1.0.0")
    return registry


def test_a_push_that_is_interrupted_goes_on(reg, interrupt, s3_proxy, ministack, models, temporary, tmp_path):
    url, client = ministack.fresh(), ministack.client()
    prefix = f"{url.partition(s3servers.BUCKET)[2].strip('/')}/blobs/"

    def keys() -> list[str]:
        found: dict[str, Any] = client.list_objects_v2(Bucket=s3servers.BUCKET, Prefix=prefix)
        return [item["Key"] for item in found.get("Contents", [])]

    s3_proxy.plan = lambda method, path: "stalled" if method == "PUT" and "partNumber" in path else None
    said = interrupt(
        lambda: len(s3_proxy.met) > 1 and len(keys()) == 3,
        *("push", "acme/pii", url),
        program=("-c", SMALL_PARTS),
    )
    assert said == GO_ON
    assert [*temporary.iterdir(), *scratch(tmp_path / "home")] == []
    s3_proxy.plan = lambda method, path: None
    there, before = keys(), len(s3_proxy.seen)
    client.close()
    done = reg("push", "acme/pii", url)
    assert done.stdout.startswith(f"pushed acme/pii:1.0.0 to {url}: 1 blob, 1.0 MB")
    again = [path for method, path in s3_proxy.seen[before:] if method == "PUT" and "/blobs/" in path]
    assert not [path for path in again if any(key in path for key in there)]
    reg("--registry", tmp_path / "mine", "pull", "acme/pii", url)
    reg("--registry", tmp_path / "mine", "verify")


def test_a_push_to_the_hub_that_is_interrupted_goes_on(
    reg, interrupt, environment, models, temporary, tmp_path
):
    reached, gate = threading.Event(), threading.Event()
    with hub.running(tmp_path / "hub") as server:
        environment |= {"HF_ENDPOINT": server.endpoint, "HF_TOKEN": hub.TOKEN, "HF_HUB_OFFLINE": "0"}
        environment |= {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1"}
        server.before("^PUT ", lambda: (reached.set(), gate.wait()), times=9)
        words = ("push", "acme/pii", "hf://acme/models")
        try:
            assert interrupt(reached.is_set, *words) == GO_ON
        finally:
            gate.set()
        assert list(temporary.iterdir()) == []
        assert "index/acme/pii.jsonl" not in server.files("acme/models")
        server.faults.clear()
        reg(*words)
        assert "index/acme/pii.jsonl" in server.files("acme/models")
