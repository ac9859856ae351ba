"""Files written past the page cache have the bytes that they were given, wherever these begin and end."""

import errno
import fcntl
import mmap
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.registry.store.directory.directory_push import ALIGNMENT_BYTES, past_cache
from onnxreg.registry.support.disk import Disk

length = st.one_of(
    st.integers(0, 3 * ALIGNMENT_BYTES), st.sampled_from([ALIGNMENT_BYTES, 4 * ALIGNMENT_BYTES])
)


def pages(data: bytes) -> memoryview:
    """The bytes where a page of memory begins."""
    view = memoryview(mmap.mmap(-1, max(len(data), 1)))
    view[: len(data)] = data
    return view[: len(data)]


def write(path: Path, before: bytes, blocks: list[bytes]) -> bytes:
    path.write_bytes(before)
    with Disk().extend(path) as file:
        with past_cache(file, len(before)) as sink:
            for block in blocks:
                sink.write(pages(block))
        assert not fcntl.fcntl(file.fileno(), fcntl.F_GETFL) & os.O_DIRECT
        file.seek(0)
        return file.read()


@given(length, st.lists(length, max_size=4))
def test_the_bytes_are_those_given(
    tmp_path_factory: pytest.TempPathFactory, before: int, sizes: list[int]
) -> None:
    start, blocks = os.urandom(before), [os.urandom(size) for size in sizes]
    path = tmp_path_factory.mktemp("direct") / "file"
    assert write(path, start, blocks) == b"".join([start, *blocks])


@pytest.mark.parametrize("refused", ["fcntl", "pwrite"])
def test_a_file_system_that_cannot(refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_flags, pwrite, direct = fcntl.fcntl, os.pwrite, []

    def no_fcntl(descriptor: int, command: int, *flags: int) -> int:
        if flags and flags[0] & os.O_DIRECT:
            direct.append(flags)
            raise OSError(errno.EINVAL, "no such flag here")
        return set_flags(descriptor, command, *flags)

    def no_pwrite(descriptor: int, data: Any, offset: int) -> int:
        if set_flags(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            direct.append(offset)
            raise OSError(errno.EINVAL, "not in such units")
        return pwrite(descriptor, data, offset)

    if refused == "fcntl":
        monkeypatch.setattr(fcntl, "fcntl", no_fcntl)
    else:
        monkeypatch.setattr(os, "pwrite", no_pwrite)
    data = os.urandom(4 * ALIGNMENT_BYTES)
    assert write(tmp_path / "file", b"", [data, data]) == data * 2
    assert len(direct) <= 1
