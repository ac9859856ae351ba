"""Ctrl-C during work that swallows exceptions."""

import os
import signal
import threading

import pytest

from onnxreg.cli.interrupts import interruptible
from onnxreg.cli.render.progress import steps


def press() -> None:
    """Press Ctrl-C where the exception is lost."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001
        return
    raise AssertionError("the signal has not arrived")


def test_a_swallowed_press_ends_the_work() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        press()


def test_a_swallowed_press_ends_before_the_next_step() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), steps(silent=True) as progress:
        progress.step("the first")
        press()
        done.append("the first")
        progress.step("the second")
        done.append("the second")
    assert done == ["the first"]


def test_an_error_is_told_rather_than_the_press() -> None:
    with pytest.raises(ValueError, match="wrong"), interruptible():
        press()
        raise ValueError("wrong")


def test_the_handler_is_as_before() -> None:
    with interruptible() as check:
        check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_is_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_can_work_too() -> None:
    seen = []

    def work() -> None:
        with interruptible() as check:
            check()
            seen.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["done"]
