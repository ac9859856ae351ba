"""The client in examples/jvm-client is killed at random moments of an update: the next one continues from the disk."""

import json
import random
import signal
import subprocess
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support import jvm
from support.registries.for_devices import publish
from support.servers import static
from support.servers.faults import proxy

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry

NAME = "acme/pii"
KILLS = 100

pytestmark = [pytest.mark.more, pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)]


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


def test_killed_at_random_moments(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)
    chance = random.Random(7)
    kills = complete = 0
    with static.serve(registry.store.root) as url, proxy(url) as site:
        site.piece = 30_000
        site.plan = lambda method, path: "slow" if "/blobs/" in path else None
        store = tmp_path / "store"
        request = {"url": site.url, "directory": str(store), "call": "update", "words": [NAME]}
        command = [
            str(jvm.JAVA),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            jvm.classes(),
            "org.onnxreg.client.JvmClient",
        ]
        version = 0
        files = {}
        while kills < KILLS:
            if complete == version:
                version += 1
                files = publish(registry, tmp_path / str(version), f"1.{version}.0", 3_000_000)
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdin is not None and process.stdout is not None
                print(json.dumps(request), file=process.stdin, flush=True)
                time.sleep(chance.uniform(0.15, 0.9))
                process.send_signal(signal.SIGKILL)
                answer = process.stdout.read()
            if answer.strip():
                outcome = json.loads(answer)
                assert outcome["files"] == files
            else:
                kills += 1
            current = slot_version(store)
            assert current in (None, f"1.{version - 1}.0", f"1.{version}.0")
            if current == f"1.{version}.0":
                complete = version
            for blob in (store / "blobs").glob("*"):
                assert blob.suffix or sha256(blob.read_bytes()).hexdigest() == blob.name
        site.plan = lambda method, path: None
        with jvm.running() as call:
            assert call(site.url, store, "update", NAME)["files"] == files
            call(site.url, store, "tidy")
    assert complete >= 2
    assert not list((store / "partial").glob("*"))
