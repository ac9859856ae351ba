"""Many processes on one registry, and between two: no event lost, the chain intact, no blob that is needed deleted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.registries import owner

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import exclusive

COMMON = """
import random, sys, time
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.log import commit
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.core.errors import ConflictError, NotFoundError

root, who, name, count, other = sys.argv[1:]
registry = Registry(Path(root))
lost = 0

class Clock:  # each lost race is followed by a pause
    monotonic = time.monotonic

    def sleep(seconds):
        global lost
        lost += 1
        time.sleep(seconds)

commit.time = Clock

def publish(seed):
    with registry.workspace() as workspace:
        (workspace / "model.onnx").write_text(seed)
        (workspace / "shared.onnx").write_text("the same in every version")
        artifacts = tuple(DraftArtifact("onnx", "float32", f"{stem}.onnx") for stem in ("model", "shared"))
        return registry.add(Draft(name, workspace, artifacts))

for number in range(int(count)):
    WORK
print(lost)
"""
"""Prints how many races for the index it lost."""

PUBLISH = 'publish(f"{who} {number}")'
TAG = """
    try:
        registry.tag(name, random.choice(("stable", "beta")))
    except ConflictError:
        pass
"""
PUSH = """
    publish(f"{who} {number}")
    registry.push(name, other)
"""
PULL = """
    try:
        registry.pull(name, other)
    except (ConflictError, NotFoundError):
        pass
"""
COLLECT = """
    from support.registries import owner

    owner.gc(registry)
"""
FLICKER = """
    from support.registries import owner

    made = publish(f"flicker {number // 3}")
    owner.drop(registry, str(made.ref))
"""
"""Versions that come and go, so that collectors find what other publishers are about to need again."""

Process = subprocess.Popen[str]


def start(work: str, root: Path, who: str, name: str, count: int, other: Path | str = "") -> Process:
    script = COMMON.replace("WORK", work.strip())
    command = [sys.executable, "-c", script, str(root), who, name, str(count), str(other)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(processes: list[Process]) -> int:
    """Wait for all; returns how many races they lost together."""
    said = [process.communicate(timeout=600) for process in processes]
    failed = [error for process, (_, error) in zip(processes, said, strict=True) if process.returncode]
    assert not failed, failed[0]
    return sum(int(output) for output, _ in said)


SIZES = pytest.mark.parametrize(("processes", "each"), [(3, 5), pytest.param(8, 50, marks=pytest.mark.large)])


def kinds(registry: Registry, name: str) -> list[str]:
    return [line.event.kind for line in registry.log(name)]


@SIZES
def test_processes_publishing_to_one_model_lose_nothing(registry, processes, each):
    finish([start(PUBLISH, registry.store.root, str(who), "acme/busy", each) for who in range(processes)])
    lines = registry.log("acme/busy")
    assert len(lines) == len({line.event.id for line in lines}) == processes * each
    registry.check()


@pytest.mark.more
@SIZES
def test_processes_publishing_to_different_models_never_meet(registry, processes, each):
    names = [f"acme/model-{who}" for who in range(processes)]
    assert finish([start(PUBLISH, registry.store.root, "0", name, each) for name in names]) == 0
    assert registry.names() == names
    assert [len(registry.log(name)) for name in names] == [each] * processes
    registry.check()


@pytest.mark.more
def test_writers_of_different_models_do_not_wait_for_each_other(registry):
    registry.make(name="acme/held")
    with exclusive(registry.store.root / "local" / "locks" / "index~acme~held.jsonl.lock"):
        held = start(PUBLISH, registry.store.root, "0", "acme/held", 1)
        finish([start(PUBLISH, registry.store.root, "0", "acme/free", 3)])
        assert len(registry.log("acme/free")) == 3
        assert held.poll() is None and len(registry.log("acme/held")) == 1
    finish([held])
    assert len(registry.log("acme/held")) == 2


@pytest.mark.more
@SIZES
def test_publishers_pullers_taggers_and_collectors_at_once(registry, other, processes, each):
    """Publishers, pushers, taggers and a collector on one registry; pullers and a collector on the other one."""
    here, there = registry.store.root, other.store.root
    finish([start(PUBLISH, here, "first", "acme/busy", 1)])
    pushed = [f"acme/pushed-{who}" for who in range(processes // 2)]
    running = [start(PUBLISH, here, str(who), "acme/busy", each) for who in range(processes // 2)]
    running += [start(PUSH, here, "0", name, each, there) for name in pushed]
    running += [start(FLICKER, here, str(who), f"acme/flicker-{who}", each) for who in range(2)]
    running += [start(TAG, here, "0", "acme/busy", each), start(PULL, there, "0", "acme/busy", each, here)]
    running += [start(COLLECT, root, "0", "-", each) for root in (here, there)]
    finish(running)
    assert kinds(registry, "acme/busy").count("publish") == 1 + processes // 2 * each
    for place in (registry, other):
        assert not owner.verify(place).damages
        assert place.store.notes("intents") == place.store.notes("condemned") == {}
        assert list(place.store.scratch.iterdir()) == []
        assert all(kinds(place, name).count("publish") == each for name in pushed)
    for who in range(2):
        assert kinds(registry, f"acme/flicker-{who}").count("drop") == each
