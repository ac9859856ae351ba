"""Servers that read a whole object for each range of it."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO

import pytest
from support.servers import range_server
from support.servers.range_server import RangeServer

from onnxreg.registry.store import range_stream
from onnxreg.registry.store.range_stream import (
    MAX_BLOCKS_PER_STREAM,
    MAX_LONG_WAITS,
    ByteRange,
    OpenAnswer,
    Waits,
)
from onnxreg.registry.store.s3.bucket import S3Store
from onnxreg.registry.store.s3.s3_url import S3Url

RANGES = 64


@cache
def large() -> bytes:
    return random.Random(1).randbytes(RANGES * 2**18)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_stream, "RANGE_BYTES", 2**18)


@contextmanager
def serving(seeks: bool) -> Iterator[tuple[RangeServer, S3Store]]:
    """A server that needs 0.15 s to read the large object, and a store that read a small one before."""
    objects = {"at/small": b"small", "at/large": large()}
    with range_server.running(objects, seeks, len(large()) / 0.15) as server:
        store = S3Store(S3Url.parse(server.url))
        for _ in range(2):
            with opened(store, "small") as stream:
                assert stream.read() == b"small"
        server.bytes_read = 0
        server.requests.clear()
        yield server, store


def opened(store: S3Store, key: str, start: int = 0) -> "range_stream.RangedReader":
    stream = store.open(key, start)
    assert isinstance(stream, range_stream.RangedReader)
    return stream


def test_a_server_that_reads_whole_objects_is_asked_for_all_that_is_left() -> None:
    with serving(seeks=False) as (server, store), opened(store, "large") as stream:
        assert stream.read() == large()
        most = MAX_LONG_WAITS + MAX_BLOCKS_PER_STREAM + 2
        assert len(server.requests) <= most, server.requests
        assert server.bytes_read <= most * len(large())
        server.requests.clear()
        with opened(store, "large", 2**18) as again:
            assert again.read() == large()[2**18 :]
        assert len(server.requests) == 2, "the first range, then all that is left"


def test_a_server_that_seeks_is_asked_for_ranges() -> None:
    with serving(seeks=True) as (server, store), opened(store, "large") as stream:
        assert stream.read() == large()
        assert len(server.requests) == RANGES
        assert server.bytes_read == len(large())


def test_a_stream_that_breaks_goes_on_where_it_broke() -> None:
    with serving(seeks=False) as (server, store), opened(store, "large") as stream:
        server.break_after = 2**20 + 5
        assert stream.read() == large()
        assert server.break_after == 0, "an answer with many ranges was cut"


def test_an_answer_that_broke_gives_no_more_bytes() -> None:
    answer = OpenAnswer(BytesIO(b"123"), 8, ByteRange(8, "tag", 16))
    with pytest.raises(ConnectionError):
        answer.read(8, memoryview(bytearray(4)))
    answer.body = BytesIO(b"5678")
    assert answer.read(8, memoryview(bytearray(4))) is None


@pytest.mark.parametrize(
    ("name", "shortest", "wait", "transfer", "long"),
    [
        ("near", 0.001, 0.02, 0.02, False),
        ("far away", 0.3, 0.35, 0.04, False),
        ("slow line", 0.03, 0.04, 2.0, False),
        ("busy", 0.002, 0.1, 0.03, False),
        ("reads whole objects", 0.003, 0.4, 0.01, True),
        ("reads whole objects far away", 0.1, 0.9, 0.05, True),
    ],
)
def test_waits(name: str, shortest: float, wait: float, transfer: float, long: bool) -> None:
    waits = Waits()
    waits.note(shortest, 0.001)
    for _ in range(MAX_LONG_WAITS):
        assert not waits.are_long
        waits.note(wait, transfer)
    assert waits.are_long is long, name


def test_one_short_wait_among_long_ones_begins_the_count_again() -> None:
    waits = Waits()
    for wait in (0.001, 0.5, 0.5, 0.001, 0.5, 0.5):
        waits.note(wait, 0.001)
    assert not waits.are_long
