"""Work in processes: one dies with its own piece of work, and the others go on.

`concurrent.futures` breaks its whole pool if one process is killed. Here each process has a pipe of its own: where that
ends, the process is gone, and another one takes its place.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

from onnxreg.cli.batch.jobs import Job
from onnxreg.cli.services.export_service import free_memory
from onnxreg.converters.export_process import prepare
from onnxreg.converters.source.source_files import weight_files
from onnxreg.schema.core.errors import HostError, RegError
from onnxreg.schema.core.progress import count_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
PATIENCE = 20.0
"""Seconds that a process has to clear away what it began, before it is killed."""


FEWER_JOBS_HINT = "too little memory? let fewer run at once: --jobs 1"


class Worker(Generic[Item, Result]):
    """A fresh interpreter that does one piece of work after the other."""

    def __init__(self, work: Callable[[Item], Result]) -> None:
        context = get_context("spawn")
        self.pipe, worker_end = context.Pipe()
        self._process = context.Process(target=serve, args=(worker_end, work), daemon=True)
        with _ignore_interrupts():
            self._process.start()
        worker_end.close()

    def give(self, item: Item) -> bool:
        """Send a piece of work; False if the worker is gone."""
        try:
            self.pipe.send(item)
        except OSError:
            return False
        return True

    def take(self) -> Result | HostError:
        """The result, once `pipe` has something; HostError if the worker is gone."""
        try:
            result: Result = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            return HostError(f"its worker died: {_describe(self._process.exitcode or 0)}", FEWER_JOBS_HINT)
        return result

    def dismiss(self) -> None:
        """End the worker, which has nothing to do."""
        self.pipe.close()

    def interrupt(self) -> None:
        """Let it clear away what it began, and end."""
        self._process.terminate()

    def join(self, patience: float) -> None:
        """Wait until it ended; after `patience` seconds it is killed."""
        self._process.join(patience)
        self._process.kill()
        self._process.join()


def run_all(
    work: Callable[[Item], Result], items: Iterable[Item], count: int
) -> Generator[tuple[Item, Result | HostError]]:
    """Run `work` on every item in at most `count` processes; yield each result when it is ready.

    An item whose worker died is yielded with a HostError. `work` is a function that a fresh interpreter can import.
    Closing the iterator interrupts the running work.
    """
    waiting, idle = deque(items), list[Worker[Item, Result]]()
    busy: dict[Any, tuple[Worker[Item, Result], Item]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < count:
                worker = idle.pop() if idle else Worker(work)
                if worker.give(waiting[0]):
                    busy[worker.pipe] = worker, waiting.popleft()
            for pipe in wait(list(busy)):
                worker, item = busy.pop(pipe)
                result = worker.take()
                if not isinstance(result, HostError):
                    idle.append(worker)
                yield item, result
    finally:
        for worker in idle:
            worker.dismiss()
        for worker, _ in busy.values():
            worker.interrupt()
        _join([*idle, *(worker for worker, _ in busy.values())])


def _join(workers: Iterable[Worker[Any, Any]]) -> None:
    """Wait until all ended. Ctrl-C, pressed again, kills them."""
    patience = PATIENCE
    for worker in workers:
        try:
            worker.join(patience)
        except KeyboardInterrupt:
            patience = 0
            worker.join(patience)


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C from their first moment on; this process gets it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve(pipe: "Connection[Any, Any]", work: Callable[[Any], Any]) -> None:
    """Run exports from the pipe until it ends. Ctrl-C is handled by the parent process, which sends SIGTERM.

    What libraries print goes to stderr: stdout belongs to that process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.dup2(2, 1)
    prepare()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            pipe.send(work(pipe.recv()))


def _describe(status: int) -> str:
    if status >= 0:
        return f"it ended with status {status}"
    try:
        return f"it was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"it was ended by signal {-status}"


FRAMEWORKS = 500 * 10**6
"""Bytes that a process takes with torch, transformers and ONNX Runtime, before any weights."""
COPIES = 6
"""The peak memory of an export, in sizes of the weights: 5.0 and 5.3 were measured at 1.0 and 0.25 GB."""
UNKNOWN = 500 * 10**6
"""Bytes of weights that are not on this machine yet: a hub id that was not fetched yet, a source that a recipe names."""


def processes(jobs: Iterable[Job]) -> int:
    """Count the processes: at most the jobs, the cores, and the largest jobs that fit into free memory; at least one."""
    jobs = list(jobs)
    free = free_memory()
    largest = max(map(need, jobs), default=0)
    rooms = len(jobs) if free is None or not largest else free // largest
    return max(1, min(len(jobs), count_cores(), rooms))


def need(job: Job) -> int:
    """The bytes of memory that a job takes, as an estimate from the size of its weights."""
    return FRAMEWORKS + COPIES * _weights(job.request.source)


def _weights(source: str | None) -> int:
    directory = Path(source or "")
    if source is None or not directory.is_dir():
        return UNKNOWN
    with suppress(RegError, OSError):
        return sum((directory / name).stat().st_size for name in weight_files(directory))
    return 0
