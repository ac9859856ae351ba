"""The head of an answer goes out with its body, and never waits for one that does not come."""

import asyncio
from typing import Any, cast

import pytest

from onnxreg.registry.server.http.connection import MAX_JOINED_BYTES, HeadTransport


class Recorder:
    """A transport that keeps what was written, and whether it was closed."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def transport(recorder: Recorder) -> HeadTransport:
    return HeadTransport(cast(asyncio.Transport, cast(Any, recorder)))


def test_a_small_body_is_sent_with_its_head(transport: HeadTransport, recorder: Recorder) -> None:
    transport.hold()
    transport.write(b"head")
    assert recorder.writes == []
    transport.write(b"body")
    transport.write(b"more")
    transport.flush()
    assert recorder.writes == [b"headbody", b"more"]


def test_a_large_body_is_not_copied(transport: HeadTransport, recorder: Recorder) -> None:
    body = bytes(MAX_JOINED_BYTES + 1)
    transport.hold()
    transport.write(b"head")
    transport.write(body)
    assert recorder.writes == [b"head", body] and recorder.writes[1] is body


def test_bytes_before_the_head_are_sent_at_once(transport: HeadTransport, recorder: Recorder) -> None:
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert recorder.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]


@pytest.mark.parametrize("end", ["flush", "close"])
def test_a_head_without_a_body_is_sent(end: str, transport: HeadTransport, recorder: Recorder) -> None:
    transport.hold()
    transport.write(b"head")
    getattr(transport, end)()
    assert recorder.writes == [b"head"]
    assert transport.is_closing() == (end == "close")
