"""Files are tried in another process, which answers for each file in turn."""

import os
import signal

import pytest

from onnxreg.converters.runtime.sessions import try_load


class InterruptedTrialError(Exception):
    """What a signal raises."""


def interrupt(*_: object) -> None:
    raise InterruptedTrialError


def test_an_interrupted_trial_leaves_no_process_that_would_answer_later(tmp_path, monkeypatch):
    os.mkfifo(endless := tmp_path / "endless.onnx")
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.alarm(2)
        with pytest.raises(InterruptedTrialError):
            try_load(endless, endless.name, "")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(OSError, match="No such device"):  # nobody reads it
        os.open(endless, os.O_WRONLY | os.O_NONBLOCK)
    monkeypatch.setenv("PYTHONIOENCODING", "utf-16")
    try_load(tmp_path / "absent.onnx", "absent.onnx", "")
