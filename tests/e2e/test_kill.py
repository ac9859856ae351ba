"""`reg` is killed with SIGKILL, or runs out of disk, at a step drawn at random; what was acknowledged stays.

A step is one call that reaches the file system through `Disk`. A second test kills from outside, at a moment drawn at
random. The large run has some three hundred kills.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.registries import owner

from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

FIXTURE = Path(__file__).parents[1] / "fixtures" / "openmed-v1" / "bert"
SAMPLE, LARGE = 2, 32
SIZES = pytest.mark.parametrize("count", [SAMPLE, pytest.param(LARGE, marks=pytest.mark.large)])

CHILD = """
import errno, io, os, signal, sys
from onnxreg.registry.support.disk import Disk

how, left = sys.argv[1], int(sys.argv[2])
taken = 0

def watched(name, method):
    def step(self, *arguments):
        global taken
        taken += 1
        if taken > left and how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if taken > left and how == "full" and name not in ("unlink", "remove_tree"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))
        return method(self, *arguments)
    return step

class Full(io.FileIO):
    def write(self, data):
        if taken >= left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)

if how == "full":
    Disk.create = lambda self, path: io.BufferedWriter(Full(path, "x"))
for name in ("create", "mkdir", "sync_file", "sync_files", "sync_directory", "sync_all", "rename", "unlink", "remove_tree"):
    setattr(Disk, name, watched(name, getattr(Disk, name)))

from onnxreg.cli.main import main
code = main(sys.argv[3:])
print(f"steps {taken}", file=sys.stderr)
raise SystemExit(code)
"""
"""Runs a command line; dies at a step, or finds the disk full from a step on."""

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
    import onnx.parser

    base = tmp_path_factory.mktemp("template")
    registry = Registry(base / "home")
    for seed in "abc":
        publish(registry, "acme/tiny", seed)
    registry.tag("acme/tiny:0.1.2", "beta")
    registry.push("acme/tiny:0.1.0", str(base / "shared"))
    Registry(base / "other").pull("acme/tiny:0.1.0", str(base / "shared"))
    graph = '<ir_version: 8, opset_import: ["" : 18]> g (float[1] x) => (float[1] y) { y = Neg(x) }'
    (base / "neg.onnx").write_bytes(onnx.parser.parse_model(graph).SerializeToString())
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

    def run(self, base: Path, how: str, step: int) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", CHILD, how, str(step), *self.words],
            cwd=base,
            env={**os.environ, "REG_HOME": str(base / "home")},
            capture_output=True,
            text=True,
            check=False,
        )

    def whole(self) -> tuple[Seen, Seen, int]:
        """What is to be seen before and behind the command, and its steps."""
        base = self.fresh()
        before = observe(base)
        done = self.run(base, "count", 0)
        assert done.returncode == 0, done.stderr
        return before, observe(base), int(done.stderr.split()[-1])


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


@pytest.mark.more
@SIZES
@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_at_any_step(
    template: Path, tmp_path: Path, verb: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(template, tmp_path, VERBS[verb])
    before, after, steps = trial.whole()
    draw = random.Random(f"{verb} {count}")
    for step in draw.sample(range(steps), min(count, steps)):
        base = trial.fresh()
        assert trial.run(base, "kill", step).returncode == -signal.SIGKILL
        check(base, before, after)
    show(capsys, f"{verb}: {min(count, steps)} kills at {steps} steps")
    again = trial.run(base, "count", 0)
    assert again.returncode == 0 or verb == "untag", again.stderr


@pytest.mark.more
@SIZES
@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_at_any_step(
    template: Path, tmp_path: Path, verb: str, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(template, tmp_path, VERBS[verb])
    before, after, steps = trial.whole()
    draw = random.Random(f"full {verb} {count}")
    for step in draw.sample(range(steps), min(count, steps)):
        base = trial.fresh()
        done = trial.run(base, "full", step)
        assert done.returncode in (0, 9), done.stderr
        if done.returncode == 9:
            assert "No space left" in done.stderr and "free some space" in done.stderr
        else:
            assert observe(base) == after
        assert [path for path in base.glob("*/local/tmp/*") if path.is_dir()] == []
        check(base, before, after)
    show(capsys, f"{verb}: full at {min(count, steps)} of {steps} steps")


@pytest.mark.more
@pytest.mark.parametrize("count", [SAMPLE, pytest.param(80, marks=pytest.mark.large)])
def test_a_kill_at_any_moment(
    template: Path, tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial(template, tmp_path, VERBS["push"])
    before, after, _ = trial.whole()
    draw = random.Random(count)
    kills = 0
    for delay in moments(trial, draw, count):
        base = trial.fresh()
        command = [sys.executable, "-m", "onnxreg.cli", *trial.words]
        process = subprocess.Popen(command, cwd=base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(delay)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        check(base, before, after)
    show(capsys, f"push: {kills} kills at any moment")


def show(capsys: pytest.CaptureFixture[str], what: str) -> None:
    with capsys.disabled():
        print(f"\n{what}")


def moments(trial: Trial, draw: random.Random, count: int) -> Iterator[float]:
    """Delays in seconds within the time that the command takes, most of them in its second half, where it writes."""
    started = time.monotonic()
    trial.run(trial.fresh(), "count", 0)
    taken = time.monotonic() - started
    return (draw.uniform(0.5, 1) * taken for _ in range(count))
