"""`reg` is killed with SIGKILL at a step drawn at random; what was acknowledged stays.

A step is one call that reaches the file system through `Disk`; tests/crash has every step, and test_disk_faults.py full disks.
An update by deltas is killed from outside, at moments drawn at random. The large run has some three hundred kills.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from support.graphs import graph
from support.registries import owner, retrained
from support.servers import static
from support.servers.faults import proxy

from onnxreg.cli.services import make_deltas
from onnxreg.registry import Registry
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.units import SILENT
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

FIXTURE = Path(__file__).parents[1] / "fixtures" / "openmed-v1" / "bert"
pytestmark = pytest.mark.more

CHILD = """
import os, signal, sys
from onnxreg.registry.system import Disk

left = taken = int(sys.argv[1])

def watched(method):
    def step(self, *arguments):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return method(self, *arguments)
    return step

for name in ("create", "mkdir", "sync_file", "sync_files", "sync_directory", "sync_all", "rename", "unlink", "remove_tree"):
    setattr(Disk, name, watched(getattr(Disk, name)))

from onnxreg.cli.main import main
code = main(sys.argv[2:])
print(f"steps {taken - left}", file=sys.stderr)
raise SystemExit(code)
"""
"""Runs a command line; dies at a step, counted from 0."""
NEVER = 10**9

VERBS = {
    "add": ("--registry", "home", "add", "neg.onnx", "--name", "acme/new"),
    "import": ("--registry", "home", "import", str(FIXTURE), "--name", "acme/imported"),
    "push": ("--registry", "home", "push", "acme/tiny:0.1.1", "./shared"),
    "first push": ("--registry", "home", "push", "acme/tiny:0.1.1", "./fresh"),
    "pull": ("--registry", "other", "pull", "acme/tiny:0.1.1", "./home"),
    "tag": ("--registry", "home", "tag", "acme/tiny:0.1.0", "stable"),
    "untag": ("--registry", "home", "untag", "acme/tiny:beta"),
    "yank": ("--registry", "home", "yank", "acme/tiny:0.1.0", "--reason", "wrong labels"),
    "gc": ("--registry", "home", "gc", "--keep-versions", "1"),
}

Seen = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three registries with something in them."""
    base = tmp_path_factory.mktemp("template")
    registry = Registry(base / "home")
    for seed in "abc":
        publish(registry, "acme/tiny", seed)
    registry.tag("acme/tiny:0.1.2", "beta")
    registry.push("acme/tiny:0.1.0", str(base / "shared"))
    Registry(base / "other").pull("acme/tiny:0.1.0", str(base / "shared"))
    onnx.save(graph("y = Neg(x)", "float[1] x", "float[1] y"), base / "neg.onnx")
    return base


def publish(registry: Registry, name: str, seed: str) -> None:
    with registry.workspace() as root:
        (root / "model.onnx").write_text(f"weights {seed}")
        registry.add(Draft(name, root, (DraftArtifact("onnx", "float32", "model.onnx"),)))


@dataclass
class Trial:
    """Runs one command line again and again, each time on a fresh copy of the registries."""

    template: Path
    place: Path
    words: tuple[str, ...]
    count: int = 0

    def fresh(self) -> Path:
        """A copy, and a user who saw none of the others: they have one id, and histories of their own."""
        self.count += 1
        os.environ["REG_STATE"] = str(self.place / f"{self.count}.user")
        return Path(shutil.copytree(self.template, self.place / str(self.count)))

    def run(self, base: Path, step: int = NEVER) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", CHILD, str(step), *self.words]
        own = {**os.environ, "REG_HOME": str(base / "home")}
        return subprocess.run(command, cwd=base, env=own, capture_output=True, text=True, check=False)


def observe(base: Path) -> Seen:
    """Every model of every registry, with its log. All of it verifies."""
    seen = {}
    for root in sorted(path.parent for path in base.glob("*/registry.json")):
        registry = Registry(root, create=False)
        report = owner.verify(registry)
        assert not report.damages, report.damages
        for name in registry.names():
            events = [line.event for line in registry.log(name)]
            seen[f"{root.name} {name}"] = [(each.kind, str(getattr(each, "version", ""))) for each in events]
    return seen


def check(base: Path, before: Seen, after: Seen) -> None:
    """Each model as before or as behind the command; the next command works and clears away."""
    found = observe(base)
    for name in before.keys() | after.keys() | found.keys():
        possible = [before.get(name), after.get(name)]
        if "expire" in {kind for kind, _ in after.get(name, ())}:
            possible += [after[name][:end] for end in range(len(before[name]), len(after[name]))]
        assert found.get(name) in possible, name
    for root in [path.parent for path in base.glob("*/registry.json")]:
        registry = Registry(root)
        publish(registry, "acme/next", "next")
        assert list(registry.store.scratch.iterdir()) == []
        owner.gc(registry)
        assert [path for path in (root / "gc").rglob("*") if path.is_file()] == []
    observe(base)


@pytest.mark.parametrize("count", [1, pytest.param(32, marks=pytest.mark.large)])
@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_at_any_step(template, tmp_path, verb, count):
    trial = Trial(template, tmp_path, VERBS[verb])
    base = trial.fresh()
    before, done = observe(base), trial.run(base)
    assert done.returncode == 0, done.stderr
    after, steps = observe(base), int(done.stderr.split()[-1])
    for step in random.Random(f"kill {verb} {count}").sample(range(steps), min(count, steps)):
        base = trial.fresh()
        assert trial.run(base, step).returncode == -signal.SIGKILL
        check(base, before, after)
    again = trial.run(base)
    assert again.returncode == 0 or verb == "untag", again.stderr


def test_an_update_by_deltas_that_is_killed_at_random_moments_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(retrained, "ELEMENTS", 1_500_000)
    source, client = Registry(tmp_path / "source"), tmp_path / "client"
    for step in range(2):
        source.add(retrained.draft(tmp_path / f"draft{step}", step))
    make_deltas(source, source.store, Ref("acme/pii", None), (), SILENT)
    Registry(client).pull("acme/pii:0.1.0", str(source.store.root))
    environment = os.environ | {"REG_HOME": str(client)}
    chance, kills = random.Random(5), 0
    with static.serve(source.store.root) as url, proxy(url) as server:
        server.piece = 10_000
        server.plan = lambda method, path: "slow" if "/blobs/" in path else None
        command = [sys.executable, "-m", "onnxreg.cli", "pull", "acme/pii", server.url]
        for _ in range(8):
            process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.4, 2.5))
            process.kill()
            kills += process.wait() == -signal.SIGKILL
        server.plan = lambda method, path: None
        subprocess.run(command, env=environment, check=True, capture_output=True)
    assert kills >= 3
    assert not owner.verify(Registry(client)).damages
    assert "0.1.1" in map(str, Registry(client).state("acme/pii").versions)
    assert not list((client / "local" / "partial").glob("*"))
