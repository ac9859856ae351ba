"""An update by deltas that is killed at random moments: the next one goes on, and every byte is right."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.registries import retrained
from support.servers import static
from support.servers.faults import proxy

from onnxreg.cli.services import make_deltas
from onnxreg.registry import Registry
from onnxreg.registry.maintain.verification import verify
from onnxreg.schema.core.progress import SILENT
from onnxreg.schema.core.ref import Ref

NAME = "acme/pii"


@pytest.mark.more
def test_killed_at_random_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrained, "ELEMENTS", 1_500_000)
    source = Registry(tmp_path / "source")
    for step in range(2):
        source.add(retrained.draft(tmp_path / f"draft{step}", step))
    make_deltas(source, source.store, Ref(NAME, None), (), SILENT)
    client = tmp_path / "client"
    Registry(client).pull(f"{NAME}:0.1.0", str(source.store.root))
    environment = os.environ | {"REG_HOME": str(client)}
    chance = random.Random(5)
    kills = 0
    with static.serve(source.store.root) as url, proxy(url) as server:
        server.piece = 10_000
        server.plan = lambda method, path: "slow" if "/blobs/" in path else None
        command = [sys.executable, "-m", "onnxreg.cli", "pull", NAME, server.url]
        for _ in range(12):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.4, 2.5))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            process.wait()
        server.plan = lambda method, path: None
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert kills >= 3
    report = verify(Registry(client).store)
    assert not report.damages
    assert "0.1.1" in [str(version) for version in Registry(client).state(NAME).versions]
    assert not list((client / "local" / "partial").glob("*"))
