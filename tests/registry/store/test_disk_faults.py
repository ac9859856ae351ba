"""A disk that fails at one call: the command ends with exit status 9, nothing half-written stays, a second try works."""

import errno
import os
from collections.abc import Callable
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from support.registries import owner
from support.sampling import sampled

from onnxreg.registry import Registry
from onnxreg.registry.log import lookup
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.support.disk import Disk
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, RegError

CALLS = ("create", "extend", "mkdir", "rename", "sync_directory", "sync_file", "write")
LARGE = 150_000
"""A size whose drafts have one file that a pull resumes."""
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT}


class Failing(Disk):
    """A disk on which one call, counted from 0, fails with an error."""

    def __init__(self, call: str, number: int, error: int) -> None:
        self.call, self.number, self.error, self.count = call, number, error, 0

    @property
    def has_failed(self) -> bool:
        return self.count > self.number

    def check(self, call: str) -> None:
        if call == self.call:
            self.count += 1
            if self.count == self.number + 1:
                raise OSError(self.error, os.strerror(self.error))

    def create(self, path: Path) -> Any:
        self.check("create")
        return Written(super().create(path), self)


def checked(call: str) -> Any:
    def perform(self: Failing, *arguments: Any) -> Any:
        self.check(call)
        return getattr(Disk, call)(self, *arguments)

    return perform


for name in set(CALLS) - {"create", "write"}:
    setattr(Failing, name, checked(name))


class Written(RawIOBase):
    """A file whose writes are counted."""

    def __init__(self, file: BinaryIO, disk: Failing) -> None:
        self._file, self._disk = file, disk
        self.fileno = file.fileno

    def write(self, data: Any, /) -> int:
        self._disk.check("write")
        return self._file.write(data)

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        self._file.close()
        super().close()


def check_whole(root: Path) -> None:
    """Nothing is damaged, and no file is in the published tree that has no place in it."""
    assert not owner.verify(Registry(root, create=False)).damages
    files = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    known = ("registry.json", "blobs/sha256/", "index/", "gc/", "local/")
    assert not [path for path in files if not path.startswith(known)]


def family_of(act: Callable[[], object]) -> str:
    """The family of an error, which is that of the environment, or nothing."""
    try:
        act()
    except RegError as error:
        assert error.family == "environment"
        return error.family
    return ""


@pytest.mark.parametrize("number", [0, 1, 4])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", sampled(ERRORS, 3))
def test_adding(registry, make_draft, error, call, number):
    first = registry.add(make_draft())
    disk = registry.store.disk = Failing(call, number, ERRORS[error])
    family = family_of(lambda: registry.add(make_draft(seed="b", size=LARGE)))
    check_whole(registry.store.root)
    assert Registry(registry.store.root).get("acme/pii:0.1.0").digest == first.digest
    assert disk.has_failed or not family
    registry.store.disk = Disk()
    if family:
        registry.add(make_draft(seed="b", size=LARGE))
    check_whole(registry.store.root)
    assert {"0.1.0", "0.1.1"} <= {str(each) for each in lookup.open_log(registry.store, "acme/pii").versions}


@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", sampled(ERRORS, 3))
def test_pulling(registry, other, make_draft, error, call, number):
    registry.add(make_draft())
    other.pull("acme/pii", str(registry.store.root))
    made = registry.add(make_draft(seed="b", size=LARGE))
    disk = other.store.disk = Failing(call, number, ERRORS[error])
    family = family_of(lambda: other.pull("acme/pii", str(registry.store.root)))
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
def test_reading(registry, other, make_draft, monkeypatch, verb):
    registry.add(make_draft())
    Registry(other.store.root)
    good = DirectoryRegistry.open_blob
    with monkeypatch.context() as patch:

        def broken(self: DirectoryRegistry, digest: Digest, start: int = 0) -> BinaryIO:
            stream = good(self, digest, start)
            if os.fstat(stream.fileno()).st_size < 600:
                return stream
            stream.close()
            return Unreadable()

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
