"""A fleet of exports that is interrupted, loses a worker, or runs on a Dask cluster of two worker processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.servers import s3servers

from onnxreg.registry import Registry

pytestmark = pytest.mark.more

Reg = Callable[..., Any]
Make = Callable[..., Path]
AGAIN = "hint: run the same command again: what is done is not done again"


@pytest.fixture(scope="module")
def checkpoints(make_checkpoint: Make) -> list[Path]:
    return [make_checkpoint(seed=seed) for seed in range(3)]


@pytest.fixture
def jobs(checkpoints: list[Path], tmp_path: Path) -> Path:
    """Three jobs with versions, as CSV."""
    rows = [f"{place},acme/m{number},1.0.0,android" for number, place in enumerate(checkpoints)]
    path = tmp_path / "jobs.csv"
    path.write_text("\n".join(["source,name,version,profile", *rows]))
    return path


@contextmanager
def started(
    environment: dict[str, str], directory: Path, *words: object
) -> Iterator["subprocess.Popen[str]"]:
    """`reg export --batch`, as a terminal starts it: its processes are a group."""
    command = [sys.executable, "-m", "onnxreg.cli", "export", "--batch", *map(str, words)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command, cwd=directory, env=environment, start_new_session=True, **pipes
    ) as process:
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
    return list((home / "local" / "tmp").glob("*/.steps"))


def versions(home: Path | str) -> set[str]:
    registry = Registry(home, create=False)
    return {f"{name}:{version}" for name in registry.names() for version in registry.state(name).versions}


def statuses(done: Any) -> list[str]:
    return [job["status"] for job in json.loads(done.stdout)["jobs"]]


def test_an_interrupted_batch_goes_on(
    reg: Reg, environment: dict[str, str], jobs: Path, tmp_path: Path
) -> None:
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


@pytest.mark.skipif(sys.platform != "linux", reason="the children of a process are read from /proc")
def test_a_killed_worker_fails_its_job_only(
    reg: Reg, environment: dict[str, str], jobs: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    with started(environment, tmp_path, jobs, "--jobs", 1, "--json") as process:
        wait_until(lambda: graphs(home))
        worker = next(pid for pid in children(process.pid) if "spawn_main" in command_of(pid))
        os.kill(worker, signal.SIGKILL)
        out, said = process.communicate(timeout=240)
    assert process.returncode == 9
    found = json.loads(out)["jobs"]
    assert [job["status"] for job in found] == ["failed", "published", "published"]
    assert found[0]["error"]["message"] == "its worker died: it was ended by SIGKILL"
    assert json.loads(said)["error"]["message"] == "1 of 3 jobs failed"
    assert statuses(reg("export", "--batch", jobs, "--jobs", "1", "--json")) == [
        "published",
        "current",
        "current",
    ]
    assert graphs(home) == []
    reg("verify")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


@contextmanager
def cluster(environment: dict[str, str], directory: Path, home: Path) -> Iterator[str]:
    """A Dask scheduler and two worker processes, which have a registry of their own; yields the address."""
    directory.mkdir()
    contact = directory / "scheduler.json"
    own = {**environment, "REG_HOME": str(home), "PYTHONWARNINGS": "ignore"}
    words = {
        "dask_scheduler": ["--port", "0", "--no-dashboard", "--host", "127.0.0.1"],
        "dask_worker": ["--nworkers", "2", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0"],
    }
    with ExitStack() as stack, (directory / "log").open("w") as log:
        for module, options in words.items():
            command = [
                sys.executable,
                "-m",
                f"distributed.cli.{module}",
                "--scheduler-file",
                str(contact),
                *options,
            ]
            process = stack.enter_context(
                subprocess.Popen(
                    command, cwd=directory, env=own, stdout=log, stderr=log, start_new_session=True
                )
            )
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            wait_until(lambda: contact.exists() and contact.stat().st_size)
        yield json.loads(contact.read_text())["address"]


def test_a_dask_cluster_exports_each_job_once(
    reg: Reg, environment: dict[str, str], checkpoints: list[Path], jobs: Path, tmp_path: Path
) -> None:
    """The workers meet in a remote; others, who know nothing of them, find there what is done."""
    broken = Path(shutil.copytree(checkpoints[0], tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"no weights")
    jobs.write_text(f"{jobs.read_text()}\n{broken},acme/broken,1.0.0,android\n")
    words = ("export", "--batch", jobs, "--to", "./share", "--json", "--scheduler")
    with cluster(environment, tmp_path / "cluster", tmp_path / "workers") as address:
        done = reg(*words, address, code=2)
    found = json.loads(done.stdout)["jobs"]
    assert [job["status"] for job in found] == ["published", "published", "published", "failed"]
    assert found[3]["error"]["family"] == "input"
    assert all(job["pushed"] for job in found[:3])
    wanted = {f"acme/m{number}:1.0.0" for number in range(3)}
    assert versions(tmp_path / "share") == wanted
    assert versions(tmp_path / "home") == set()
    reg("--registry", tmp_path / "share", "verify")

    poison = tmp_path / "poison"
    poison.mkdir()
    (poison / "torch.py").write_text("raise RuntimeError('torch was imported')")
    path = os.pathsep.join([str(poison), os.environ.get("PYTHONPATH", "")])
    shutil.rmtree(broken)
    jobs.write_text("\n".join(jobs.read_text().splitlines()[:4]))
    with cluster(environment | {"PYTHONPATH": path}, tmp_path / "other", tmp_path / "strangers") as address:
        again = reg(*words, address)
    assert statuses(again) == ["current", "current", "current"]
    assert [job["digest"] for job in json.loads(again.stdout)["jobs"]] == [job["digest"] for job in found[:3]]
    assert versions(tmp_path / "strangers") == set()


def test_a_cluster_that_writes_to_a_bucket(
    reg: Reg, environment: dict[str, str], jobs: Path, ministack: s3servers.Server, tmp_path: Path
) -> None:
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    environment.update(ministack.environment)
    url = ministack.fresh()
    with cluster(environment, tmp_path / "cluster", tmp_path / "workers") as address:
        done = reg("export", "--batch", jobs, "--scheduler", address, "--to", url, "--json")
    assert statuses(done) == ["published"] * 3
    reg("verify", "--remote", url)
    reg("pull", "acme/m1:1.0.0", url)
    assert versions(tmp_path / "home") == {"acme/m1:1.0.0"}
