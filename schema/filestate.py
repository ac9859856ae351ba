"""What a file system says of a file, by which it is known again as long as nobody changes it."""

from dataclasses import astuple, dataclass
from os import stat_result
from typing import Any

SETTLED = 3 * 10**9
"""Nanoseconds after its last change from which on the next one surely has another time, on any file system."""


@dataclass(frozen=True, slots=True)
class FileState:
    """Device, inode, size in bytes, and the times of the last change of its bytes and of its inode, in nanoseconds.

    Nobody can set back the time of the inode. What is written through a memory map is not noticed before the system
    writes it back.
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
        """ValueError or TypeError where it is none."""
        return cls(*map(int, value))

    def to_json(self) -> list[int]:
        return list(astuple(self))

    def is_settled(self, now: int) -> bool:
        """Whether another state will follow any later change; git calls an entry that is not so racily clean.

        `now` is the time in nanoseconds when the state was read.
        """
        return now - max(self.modified, self.changed) > SETTLED
