"""Work that a fresh interpreter can import: what tests of pools hand to their workers."""

import os
import signal
import time
from pathlib import Path


def double(number: int) -> int:
    return 2 * number


def pid(_: object) -> int:
    return os.getpid()


def double_unless_odd(number: int) -> int:
    """An odd number is the end of the process."""
    if number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def leave(status: int) -> int:
    os._exit(status)


def print_much(_: object) -> bool:
    print("a library talks")
    return True


def clear_away(directory: Path) -> None:
    """Begin something that takes long, and clear it away in the end."""
    begun = directory / str(os.getpid())
    try:
        begun.write_text("")
        time.sleep(300)
    finally:
        begun.unlink(missing_ok=True)


def refuse_to_end(directory: Path) -> None:
    (directory / str(os.getpid())).write_text("")
    while True:
        try:
            time.sleep(300)
        except KeyboardInterrupt:
            continue
