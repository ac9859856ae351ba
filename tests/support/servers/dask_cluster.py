"""A Dask cluster on this machine, as the commands `dask scheduler` and `dask worker` start one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

WORDS = {
    "dask_scheduler": ["--port", "0", "--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1"],
    "dask_worker": ["--nthreads", "1", "--no-dashboard", "--memory-limit", "0"],
}
SECONDS_TO_START = 60


@dataclass(frozen=True)
class Cluster:
    """A scheduler and its workers; `address` is what its clients are given."""

    address: str
    pids: tuple[int, ...]

    def processes(self) -> list[int]:
        """The scheduler, the processes that watch over workers, and the workers."""
        running = list(self.pids)
        for pid in running:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                running += map(int, children.read_text().split())
        return running

    def workers(self) -> list[int]:
        """The processes that do the work."""
        return [pid for pid in self.processes() if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextmanager
def running(environment: Mapping[str, str], directory: Path, workers: int) -> Iterator[Cluster]:
    """A scheduler and so many worker processes of one thread; all that they leave is in the new `directory`."""
    directory.mkdir()
    contact = directory / "scheduler.json"
    with ExitStack() as stack, (directory / "log").open("w") as log:
        pids = []
        for module, words in WORDS.items():
            command = [sys.executable, "-m", f"distributed.cli.{module}", "--scheduler-file", contact, *words]
            command += ["--nworkers", str(workers)] if module == "dask_worker" else []
            process = stack.enter_context(
                subprocess.Popen(
                    command, cwd=directory, env=environment, stdout=log, stderr=log, start_new_session=True
                )
            )
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            pids.append(process.pid)
            _wait_for(contact)
        yield Cluster(json.loads(contact.read_text())["address"], tuple(pids))


def _wait_for(contact: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while not (contact.exists() and contact.stat().st_size):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"no Dask scheduler after {SECONDS_TO_START} seconds: {contact.with_name('log')}"
            )
        time.sleep(0.02)
