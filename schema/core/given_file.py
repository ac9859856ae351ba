"""Files that a person, or a document of theirs, names: bounded reading, and the state that identifies their content."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from onnxreg.schema.core.bounds import MAX_DOCUMENT_BYTES
from onnxreg.schema.core.errors import HostError, InputError, NotFoundError, why

HEAD_BYTES = 64
"""Bytes of a file that `check_content` needs."""
_POINTER = re.compile(rb"version https://git-lfs\.github\.com/|/annex/objects/")
_PAGE = re.compile(rb"(\xef\xbb\xbf)?\s*<(!doctype html|html)\b", re.IGNORECASE)
SETTLED_NANOSECONDS = 3 * 10**9
"""Nanoseconds after its last change from which on the next one surely has another time, on any file system."""


def check_given(path: Path, label: str = "file", hint: str = "check the path") -> None:
    """Check a file that the user named. NotFoundError if it does not exist, InputError if it is not a regular file."""
    if not path.exists():
        raise NotFoundError(f"there is no {label} {path}", hint)
    if not path.is_file():
        raise InputError(
            f"{path} is {'a directory' if path.is_dir() else 'not a regular file'}", "name a file"
        )


def read_given(
    path: Path, label: str = "file", hint: str = "check the path", limit: int = MAX_DOCUMENT_BYTES
) -> bytes:
    """Read a regular file of at most `limit` bytes. A FIFO or device is refused unread: it may have no end.

    Errors as `check_given`; InputError too if it is too large, HostError if it cannot be read. `label` names the kind of
    file in the messages.
    """
    check_given(path, label, hint)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise HostError(f"reading {path} failed: {why(error)}", "check who may read it") from error
    if len(data) > limit:
        raise InputError(f"{path} is too large for a {label}: more than {limit >> 20} MiB")
    check_content(data[:HEAD_BYTES], path.name)
    return data


def check_content(head: bytes, name: str) -> None:
    """InputError for the first bytes of a file that is not the file meant: a pointer of Git LFS or git-annex, or a web page."""
    if _POINTER.match(head):
        hint = "fetch the file: git lfs pull, or git annex get"
        raise InputError(f"{name} is a Git LFS pointer, not the file itself", hint)
    if _PAGE.match(head) and not name.lower().endswith((".htm", ".html", ".jinja", ".md")):
        message = f"{name} is a web page, such as that of a login, not the file itself"
        raise InputError(message, "log in, then download it again")


@dataclass(frozen=True, slots=True)
class FileState:
    """Device, inode, size in bytes, and the times of the last change of its bytes and of its inode, in nanoseconds.

    It identifies the content as long as nobody changes that. No program can set back the time of the inode, if the
    file system keeps one.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileState":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def is_settled(self, now: int) -> bool:
        """True if another state will follow any later change; git calls an entry that is not so racily clean.

        `now` is the time in nanoseconds when the state was read. Never if times are whole seconds: such file systems
        (FAT, sshfs) show the time of the bytes as that of the inode, and Windows that when the file was made.
        """
        has_fine_times = os.name == "posix" and self.changed % 10**9 != 0
        return has_fine_times and now - max(self.modified, self.changed) > SETTLED_NANOSECONDS
