"""The process above the workers of `reg serve`."""

import subprocess
import sys

SIGNAL_WHILE_STARTING = """
import os, signal, time
from multiprocessing.context import ForkProcess
from onnxreg.registry.server.server import run_workers

start, starts = ForkProcess.start, []

def interrupted(process):
    start(process)
    starts.append(process)
    if len(starts) == 2:
        os.kill(os.getpid(), signal.SIGTERM)

ForkProcess.start = interrupted
run_workers(2, lambda metrics: time.sleep(3600))
"""
WORKERS_THAT_DIE = """
from onnxreg.registry.server.server import run_workers
run_workers(2, lambda metrics: 1 / 0)
"""


def test_a_signal_while_a_worker_starts_ends_all() -> None:
    completed = subprocess.run([sys.executable, "-c", SIGNAL_WHILE_STARTING], check=False, timeout=60)
    assert completed.returncode == 0


def test_workers_that_die_as_they_start_end_the_server() -> None:
    completed = subprocess.run(
        [sys.executable, "-c", WORKERS_THAT_DIE], check=False, timeout=60, capture_output=True, text=True
    )
    assert completed.returncode == 1
    assert "HostError: the workers end as they start, with status 1" in completed.stderr
