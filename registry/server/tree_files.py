"""Open files of an untrusted tree safely: links are never followed."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def open_beneath(root: Path, path: str) -> BinaryIO:
    """Open a regular file below `root`, unbuffered. FileNotFoundError if it does not exist or a part is a
    link.

    Each directory is opened relative to its parent, so that nobody can replace it by a link meanwhile. `path`
    is relative and has no `..`: callers make it from a digest or a model's name.
    """
    *folders, name = path.split("/")
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            below = os.open(folder, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        descriptor = os.open(name, _FILE, dir_fd=directory)
    except OSError as error:
        if error.errno in _ABSENT:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
        raise
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return os.fdopen(descriptor, "rb", buffering=0)
