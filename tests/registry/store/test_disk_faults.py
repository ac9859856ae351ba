"""A disk that fails at one call: the command ends with exit status 9, nothing half-written stays, a second try works."""

import errno
import os
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from support.registries import owner
from support.sampling import sampled

from onnxreg.registry import Registry
from onnxreg.registry.log import lookup
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, RegError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]

CALLS = ("create", "extend", "mkdir", "rename", "sync_directory", "sync_file", "write")
LARGE = 150_000
"""A size whose drafts have one file that a pull resumes."""
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT}


class Failing(Disk):
    """A disk on which one call, counted from 0, fails with an error."""

    def __init__(self, call: str, number: int, error: int) -> None:
        self.call = call
        self.number = number
        self.error = error
        self.count = 0

    @property
    def has_failed(self) -> bool:
        return self.count > self.number

    def check(self, call: str) -> None:
        if call == self.call:
            self.count += 1
            if self.count == self.number + 1:
                raise OSError(self.error, os.strerror(self.error))

    def create(self, path: Path) -> BinaryIO:
        self.check("create")
        return cast(BinaryIO, Written(super().create(path), self))

    def extend(self, path: Path) -> BinaryIO:
        self.check("extend")
        return super().extend(path)

    def mkdir(self, path: Path) -> None:
        self.check("mkdir")
        super().mkdir(path)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> bool:
        self.check("sync_directory")
        return super().sync_directory(path)

    def sync_file(self, path: Path) -> None:
        self.check("sync_file")
        super().sync_file(path)


class Written(RawIOBase):
    """A file whose writes are counted."""

    def __init__(self, file: BinaryIO, disk: Failing) -> None:
        self._file = file
        self._disk = disk

    def write(self, data: Any, /) -> int:
        self._disk.check("write")
        return self._file.write(data)

    def fileno(self) -> int:
        return self._file.fileno()

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        self._file.close()
        super().close()


def leftovers(root: Path) -> list[str]:
    """Files of the published tree that have no place in it."""
    known = ("registry.json", "blobs/sha256/", "index/", "gc/")
    files = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    return [path for path in files if not path.startswith((*known, "local/"))]


def check_whole(root: Path) -> None:
    registry = Registry(root, create=False)
    assert not owner.verify(registry).damages
    assert not leftovers(root)


@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", sampled(ERRORS, 3))
def test_adding(registry: Registry, make_draft: MakeDraft, error: str, call: str, number: int) -> None:
    first = registry.add(make_draft())
    disk = registry.store.disk = Failing(call, number, ERRORS[error])
    family = ""
    try:
        registry.add(make_draft(seed="b", size=LARGE))
    except RegError as caught:
        family = caught.family
    assert family in ("", "environment")
    check_whole(registry.store.root)
    assert Registry(registry.store.root).get("acme/pii:0.1.0").digest == first.digest
    if not disk.has_failed:
        assert family == ""
    registry.store.disk = Disk()
    if family:
        registry.add(make_draft(seed="b", size=LARGE))
    check_whole(registry.store.root)
    assert {"0.1.0", "0.1.1"} <= {str(each) for each in lookup.open_log(registry.store, "acme/pii").versions}


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", sampled(ERRORS, 3))
def test_pulling(
    registry: Registry, other: Registry, make_draft: MakeDraft, error: str, call: str, number: int
) -> None:
    registry.add(make_draft())
    other.pull("acme/pii", str(registry.store.root))
    made = registry.add(make_draft(seed="b", size=LARGE))
    disk = other.store.disk = Failing(call, number, ERRORS[error])
    family = ""
    try:
        other.pull("acme/pii", str(registry.store.root))
    except RegError as caught:
        family = caught.family
    assert family in ("", "environment")
    assert family or not disk.has_failed or call in ("sync_directory", "rename", "create", "write", "mkdir")
    check_whole(other.store.root)
    other.store.disk = Disk()
    other.pull("acme/pii", str(registry.store.root))
    check_whole(other.store.root)
    assert other.get("acme/pii").digest == made.digest


class Unreadable(RawIOBase):
    """A file on a broken sector."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("verb", ["pull", "push"])
def test_reading(
    registry: Registry, other: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    registry.add(make_draft())
    Registry(other.store.root)
    good = DirectoryRegistry.open_blob
    with monkeypatch.context() as patch:

        def broken(self: DirectoryRegistry, digest: Digest, start: int = 0) -> BinaryIO:
            stream = good(self, digest, start)
            if os.fstat(stream.fileno()).st_size < 600:
                return stream
            stream.close()
            return cast(BinaryIO, Unreadable())

        patch.setattr(DirectoryRegistry, "open_blob", broken)
        with pytest.raises(HostError, match="Input/output error"):
            if verb == "pull":
                other.pull("acme/pii", str(registry.store.root))
            else:
                registry.push("acme/pii", str(other.store.root))
    if other.store.is_there:
        check_whole(other.store.root)
    other.pull("acme/pii", str(registry.store.root))
    check_whole(other.store.root)
