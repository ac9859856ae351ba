"""Work in threads ends as a whole; syncing asks the operating system."""

import _thread
import subprocess
import sys
import threading
from io import BytesIO

import pytest

from onnxreg.registry.store.streams import metered
from onnxreg.registry.system import CancelledError, check_stop, run_parallel, sleep


def test_outside_of_any_work_nothing_ends_a_wait():
    sleep(0)
    check_stop()


def test_a_metered_stream_ends_with_the_work():
    stream = metered(BytesIO(b"data"), lambda count: None, "reading a blob")
    started, ended = threading.Event(), threading.Event()

    def work(item: int) -> None:
        if item == 0:
            started.wait(60)
            raise ValueError("first")
        started.set()
        with pytest.raises(CancelledError):
            while True:
                stream.read(1)
        ended.set()

    with pytest.raises(ValueError, match="first"):
        run_parallel(work, range(2))
    assert ended.wait(60)


def test_one_failure_wakes_those_that_wait():
    def work(item: int) -> None:
        if item == 0:
            raise ValueError("first")
        sleep(3600)

    with pytest.raises(ValueError, match="first"):
        run_parallel(work, range(4))


def test_control_c_does_not_wait_for_a_thread_that_hears_nothing():
    deaf = threading.Event()

    def work(item: int) -> None:
        if item == 0:
            raise KeyboardInterrupt
        deaf.wait(3600)

    try:
        with pytest.raises(KeyboardInterrupt):
            run_parallel(work, range(2))
    finally:
        deaf.set()


def test_control_c_stops_the_work_on_a_single_item():
    ended = threading.Event()

    def work(item: int) -> None:
        _thread.interrupt_main()
        with pytest.raises(CancelledError):
            sleep(3600)
        ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_parallel(work, range(1))
    assert ended.wait(60)


CODE = """
import sys
from pathlib import Path
from onnxreg.registry.system import SYNCFS_THRESHOLD, Disk

root = Path(sys.argv[1])
files = [root / str(number) for number in range(SYNCFS_THRESHOLD)]
for file in files:
    file.touch()
Disk().sync_file(files[0])
Disk().sync_files(files)
Disk().sync_directories([root] * len(files))
Disk().sync_all(root)
Disk().sync_file(root / "missing")
"""


def test_files_directories_and_file_systems_are_synced(tmp_path):
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("FileNotFoundError: ") and "missing" in done.stderr
