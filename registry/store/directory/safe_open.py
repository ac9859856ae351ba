"""Safe opening of regular files in a tree that others can write to."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from onnxreg.schema.core.errors import Advice, IntegrityError

IRREGULAR = Advice("replace-irregular-file")


def is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def regular_size(path: Path) -> int | None:
    """A regular file's size in bytes; None if the path is something else, -1 if it is gone."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return -1
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; IntegrityError for a FIFO, device or symlink."""
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise IntegrityError(f"{path.name} is not a regular file", IRREGULAR) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IntegrityError(f"{path.name} is not a regular file", IRREGULAR)
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, limit: int) -> bytes:
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > limit:
            raise IntegrityError(f"{path.name} is larger than {limit} bytes")
        return file.read()
