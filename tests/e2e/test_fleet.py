"""A fleet of exports that is interrupted, loses a worker, or runs on a Dask cluster of two worker processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.servers import dask_cluster

from onnxreg.registry import Registry

pytestmark = pytest.mark.more

Make = Callable[..., Path]
AGAIN = "hint: run the same command again: what is done is not done again"


@pytest.fixture(scope="module")
def checkpoints(make_checkpoint: Make) -> list[Path]:
    return [make_checkpoint(seed=seed) for seed in range(3)]


@pytest.fixture
def jobs(checkpoints: list[Path], tmp_path: Path) -> Path:
    """Three jobs with versions, as YAML."""
    rows = [
        f"- {{source: {place}, name: acme/m{number}, version: 1.0.0, task: default}}"
        for number, place in enumerate(checkpoints)
    ]
    path = tmp_path / "jobs.yaml"
    path.write_text("\n".join(rows))
    return path


@contextmanager
def started(
    environment: dict[str, str], directory: Path, *words: object
) -> Iterator["subprocess.Popen[str]"]:
    """`reg export --batch`, as a terminal starts it: its processes are a group."""
    command = [sys.executable, "-m", "onnxreg.cli", "export", "--batch", *map(str, words)]
    own: Any = {"cwd": directory, "env": environment, "start_new_session": True, "text": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **own) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(holds: Callable[[], Any], seconds: float = 240) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about")


def graphs(home: Path) -> list[Path]:
    """What was begun and is not published."""
    return [*(home / "local" / "tmp").glob("*/.steps")]


def versions(home: Path | str) -> set[str]:
    registry = Registry(home, create=False)
    return {f"{name}:{version}" for name in registry.names() for version in registry.state(name).versions}


def statuses(done: Any) -> list[str]:
    return [job["status"] for job in json.loads(done.stdout)["jobs"]]


def test_an_interrupted_batch_goes_on(reg, environment, jobs, tmp_path):
    home = tmp_path / "home"
    with started(environment, tmp_path, jobs, "--jobs", 1) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        wait_until(lambda: graphs(home))
        os.killpg(process.pid, signal.SIGINT)
        out, said = process.communicate(timeout=120)
    assert first.startswith("acme/m0:1.0.0: published in ")
    assert process.returncode == 130
    assert said.splitlines() == ["error: interrupted: 1 of 3 jobs are done", AGAIN]
    assert [line.split()[2] for line in out.splitlines()[1:]] == ["published", "stopped", "stopped"]
    assert list((home / "local" / "tmp").iterdir()) == []
    assert versions(home) == {"acme/m0:1.0.0"}
    reg("verify")
    again = reg("export", "--batch", jobs, "--jobs", "1", "--json")
    assert statuses(again) == ["current", "published", "published"]
    reg("verify")


@pytest.mark.large
@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
def test_a_killed_worker_fails_its_job_only(reg, environment, jobs, tmp_path):
    home = tmp_path / "home"
    with started(environment, tmp_path, jobs, "--jobs", 1, "--json") as process:
        wait_until(lambda: graphs(home))
        threads = Path(f"/proc/{process.pid}/task").glob("*/children")
        children = [pid for path in threads for pid in path.read_text().split()]
        commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
        worker = next(pid for pid, command in commands.items() if "onnxreg.cli.batch" in command)
        os.kill(worker, signal.SIGKILL)
        out, said = process.communicate(timeout=240)
    assert process.returncode == 9
    found = json.loads(out)["jobs"]
    assert [job["status"] for job in found] == ["failed", "published", "published"]
    assert found[0]["error"]["message"].startswith("the process that did the work was ended by SIGKILL")
    assert json.loads(said)["error"]["message"] == "1 of 3 jobs failed"
    again = reg("export", "--batch", jobs, "--jobs", "1", "--json")
    assert statuses(again) == ["published", "current", "current"]
    assert graphs(home) == []
    reg("verify")


def cluster(
    environment: dict[str, str], directory: Path, home: Path, workers: int = 2
) -> AbstractContextManager[dask_cluster.Cluster]:
    """A Dask cluster whose workers have a registry of their own."""
    own = {**environment, "REG_HOME": str(home), "PYTHONWARNINGS": "ignore"}
    return dask_cluster.running(own, directory, workers)


def test_a_dask_cluster_exports_each_job_once(reg, environment, checkpoints, jobs, ministack, tmp_path):
    """The workers meet in a bucket; this machine, which knows nothing of them, makes the same bytes again."""
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    environment.update(ministack.environment)
    url = ministack.fresh()
    broken = Path(shutil.copytree(checkpoints[0], tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"no weights")
    good = jobs.read_text()
    jobs.write_text(f"{good}\n- {{source: {broken}, name: acme/broken, version: 1.0.0, task: default}}\n")
    words = ("export", "--batch", jobs, "--push", url, "--json")
    with cluster(environment, tmp_path / "cluster", tmp_path / "workers") as dask:
        done = reg(*words, "--scheduler", dask.address, code=2)
    found = json.loads(done.stdout)["jobs"]
    assert statuses(done) == ["published", "published", "published", "failed"]
    assert found[3]["error"]["family"] == "input" and all(job["pushed"] for job in found[:3])
    assert versions(tmp_path / "home") == set()
    reg("verify", "--remote", url)
    jobs.write_text(good)
    again = reg(*words, "--jobs", "1")
    assert [job["digest"] for job in json.loads(again.stdout)["jobs"]] == [job["digest"] for job in found[:3]]


NOTES = """
import os, sys

def note(event, arguments):
    if event == "import" and arguments[0] == "torch":
        what = "torch"
    elif event == "os.mkdir" and str(arguments[0]).endswith("/.steps"):
        what = "export"
    else:
        return
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(f"{what} {os.getpid()}\\n")

sys.addaudithook(note)
"""
"""What each interpreter runs first, as `sitecustomize`: it notes each export that begins, and each import of torch."""


def stop_a_busy_worker(home: Path) -> int | None:
    """Stop a process in the middle of an export. Its files are marked by a lock that it has open."""
    for steps in graphs(home):
        lock = steps.parent.with_name(f"{steps.parent.name}.lock")
        for entry in Path("/proc").glob("[0-9]*/fd/*"):
            with suppress(OSError):
                if entry.readlink() == lock:
                    pid = int(entry.parts[2])
                    os.kill(pid, signal.SIGSTOP)
                    if steps.exists():
                        return pid
                    os.kill(pid, signal.SIGCONT)
    return None


@pytest.mark.large
@pytest.mark.skipif(sys.platform != "linux", reason="the files of a process are read from /proc")
def test_a_killed_worker_of_a_cluster_costs_one_export(reg, environment, make_checkpoint, tmp_path):
    """Four workers, eight jobs; the results are those of one process. The child of each worker imports torch once.

    A child whose worker is gone ends.
    """
    rows = [
        f"- {{source: {make_checkpoint(seed=seed)}, name: acme/m{seed}, version: 1.0.0, task: default}}"
        for seed in range(8)
    ]
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text("\n".join(rows))
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(NOTES)
    notes, home = tmp_path / "notes", tmp_path / "workers"
    noted = environment | {"PYTHONPATH": str(tmp_path / "first"), "NOTES": str(notes)}
    with (
        cluster(noted, tmp_path / "cluster", home, workers=4) as dask,
        started(environment, tmp_path, jobs, "--scheduler", dask.address, "--push", "./share") as process,
    ):
        victim = wait_until(lambda: stop_a_busy_worker(home))
        os.kill(int(Path(f"/proc/{victim}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
        os.kill(victim, signal.SIGCONT)
        _, said = process.communicate(timeout=240)
        wait_until(lambda: not Path(f"/proc/{victim}").exists())
    assert process.returncode == 0, said
    noted_pids = [line.split() for line in notes.read_text().splitlines()]
    exports, imports = (
        [int(pid) for what, pid in noted_pids if what == kind] for kind in ("export", "torch")
    )
    assert len(exports) == len(rows) + 1
    assert len(imports) == len(set(imports)) <= 5
    assert {*exports} - {victim} == {*imports} - {victim}
    reg("--registry", tmp_path / "share", "verify")
    reg("export", "--batch", jobs, "--jobs", "1")
    shared, alone = Registry(tmp_path / "share"), Registry(tmp_path / "home")
    assert versions(tmp_path / "share") == {f"acme/m{seed}:1.0.0" for seed in range(8)}
    for ref in versions(tmp_path / "share"):
        assert shared.get(ref).digest == alone.get(ref).digest
