"""The state of a file in its file system, which identifies its content as long as nobody changes it."""

import os
from dataclasses import astuple, dataclass
from os import stat_result
from typing import Any

SETTLED_NANOSECONDS = 3 * 10**9
"""Nanoseconds after its last change from which on the next one surely has another time, on any file system."""
WRITTEN_BACK_NANOSECONDS = 60 * 10**9
"""Nanoseconds after which that is so of writes through a memory map too: Linux writes them back after 35 seconds
(vm.dirty_expire_centisecs, vm.dirty_writeback_centisecs), and notices the next one."""


@dataclass(frozen=True, slots=True)
class FileState:
    """Device, inode, size in bytes, and the times of the last change of its bytes and of its inode, in nanoseconds.

    Nobody can set back the time of the inode, if the file system keeps one.
    """

    device: int
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, status: stat_result) -> "FileState":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @classmethod
    def from_json(cls, value: Any) -> "FileState":
        """Read a state from JSON. ValueError or TypeError if it is malformed."""
        return cls(*map(int, value))

    def to_json(self) -> list[str]:
        """In decimal digits: not every reader of JSON keeps integers of this size."""
        return list(map(str, astuple(self)))

    def is_settled(self, now: int, after: int = WRITTEN_BACK_NANOSECONDS) -> bool:
        """True if another state will follow any later change; git calls an entry that is not so racily clean.

        `now` is the time in nanoseconds when the state was read. Never if times are whole seconds: such file systems
        (FAT, sshfs) show the time of the bytes as that of the inode, and Windows that when the file was made.
        """
        has_fine_times = os.name == "posix" and self.changed % 10**9 != 0
        return has_fine_times and now - max(self.modified, self.changed) > after
