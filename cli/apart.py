"""Run work in a child process. If native code hangs or crashes, only the child ends, and an error is raised.

The child is a fork, made before PyTorch is imported. The child has a POSIX session of its own, and sends the labels of
its steps through a pipe.
"""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import onnxreg.cli as program
from onnxreg.cli.output import Steps
from onnxreg.schema.core.errors import ConversionError, HostError, RegError
from onnxreg.schema.core.units import Progress

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Result = TypeVar("Result")
DIES_WITH_PARENT = 1  # the option PR_SET_PDEATHSIG of prctl(2)
watcher: "Connection | None" = None  # in a worker of a batch: the channel to the batch


def run(work: Callable[[Progress], Result], progress: Progress, minutes: float = 0) -> Result:
    """Run `work` in a child process, and return its result or raise its error. The child pickles the result or the
    error.

    A child is started only in the program `reg`, and only if the system can fork. A worker of a batch runs the work
    itself. Raise the errors of `receive`, and RuntimeError with the child's traceback for an unexpected error. At the
    end, even after Ctrl-C or SIGTERM, the child and its own children are killed.
    """
    if watcher is not None:
        try:
            return work(Steps(watcher.send))
        finally:
            watcher.send("")
    if not program.is_running or not hasattr(os, "fork"):
        return work(progress)
    from multiprocessing import get_context

    fork = get_context("fork")
    channel, end = fork.Pipe(duplex=False)
    child = fork.Process(target=_answer, args=(work, channel, end))
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    def wait() -> int:
        child.join()
        return child.exitcode or 0

    try:
        child.start()
        end.close()
        answer = receive(channel, progress, minutes, wait)
    finally:
        if child.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.kill()
            child.join()
        signal.signal(signal.SIGTERM, before)
    if isinstance(answer, Exception):
        raise answer
    result: Result = answer[0]
    return result


def receive(channel: "Connection", progress: Progress, minutes: float, wait: Callable[[], int]) -> Any:
    """Return the answer of a process. Before the answer, the process sends the label of each step when the step begins,
    and "" when no step runs.

    `minutes` is the limit for each step, and 0 means no limit. `wait` waits for the end of the process and returns its
    status.

    Raise ConversionError if a step exceeds the limit, or if the process ends without an answer. Raise HostError if the
    process was killed, as Linux does when memory is short.
    """
    label = ""
    with suppress(EOFError, ConnectionError):
        while channel.poll(60 * minutes if minutes and label else None):
            answer = channel.recv()
            if not isinstance(answer, str):
                return answer
            progress.step(label := answer)
        message = f"a step took longer than {minutes:g} minutes, so the work was ended while {label}"
        raise ConversionError(message, "if it only needs more time: --timeout MINUTES")
    status = wait()
    ending = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    message = f"the process that did the work {ending}{label and f' while {label}'}"
    if status == -signal.SIGKILL:
        raise HostError(message, "is the memory full? free some, run fewer at once, or take a smaller model")
    raise ConversionError(
        message, "make it by other passes; what the other steps made is kept for the next run"
    )


def _answer(work: Callable[[Progress], Any], channel: "Connection", end: "Connection") -> None:
    """Do the work in the child. Send its result as a tuple with one item, or send the error that it raised."""
    channel.close()
    os.setsid()
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    answer: Any
    try:
        answer = (work(Steps(end.send)),)
    except RegError as error:
        answer = error
    except OSError as error:  # a subclass of a library may not be unpickled
        answer = OSError(error.errno, error.strerror or str(error), error.filename)
    except Exception:  # noqa: BLE001
        answer = RuntimeError(f"the process that did the work failed\n{traceback.format_exc()}")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    end.send(answer)
