"""One client's connection: uvicorn's protocol on httptools, with limits and with sending from files.

A connection without an active request has a deadline, which slow bytes do not extend; a request's head has a
maximum size. If there are too many connections, the one that has waited the longest without a request is
closed. So neither idle connections nor slow heads keep others out.

Files go out by `loop.sendfile` (the ASGI extension `zerocopysend`): the kernel copies, and memory stays flat.
A client has some time for each MiB, of a file or of an answer in memory; if it takes longer, it loses its connection.
"""

import asyncio
import math
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from onnxreg.registry.server.http.messages import JSON, RETRY_SECONDS, ZERO_COPY, error_body
from onnxreg.registry.server.settings import Limits

MAX_JOINED_BYTES = 256 * 1024
"""A body with more bytes is not copied to be sent with its head."""


class Connection(HttpToolsProtocol):
    """A connection within limits. `waiting`: those of one server without an active request, in order of
    arrival.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: Limits,
        waiting: dict["Connection", None],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._waiting = waiting
        self._deadline: asyncio.TimerHandle | None = None
        self._receiving: asyncio.Handle | None = None
        self._head: int | None = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)
        self._begin_waiting()
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_waiting()
        self._end_receiving()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; of a head, never more than its limit at once, so that every byte counts."""
        while data and not self.transport.is_closing():
            size = len(data) if self._head is None else self._limits.head + 1 - self._head
            self._receive(data[:size])
            data = data[size:]

    def _receive(self, data: bytes) -> None:
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > self._limits.head:
            self._refuse_head()
        elif self.cycle is None or self.cycle.response_complete:
            self._begin_waiting()

    def on_headers_complete(self) -> None:
        self._head = None
        self._end_waiting()
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > self._limits.head:
            self._refuse_head()
            raise ValueError("too long")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head = 0

    def on_response_complete(self) -> None:
        """A request whose body is still on its way has been answered: the rest of it is not waited for."""
        if self.cycle.response_complete and self.cycle.more_body:
            self.transport.close()
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            self._waiting[self] = None

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle too long. One that still receives an answer is not idle."""
        if self.flow.write_paused:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        """Limit the time for bytes that the kernel does not take now, once all of them are in the buffer."""
        super().pause_writing()
        self._receiving = self.loop.call_soon(self._limit_receiving)

    def resume_writing(self) -> None:
        """The buffer is empty again."""
        super().resume_writing()
        self._end_receiving()

    def _limit_receiving(self) -> None:
        seconds = self._seconds_for(self.transport.get_write_buffer_size())
        self._receiving = self.loop.call_later(seconds, drop, self.transport)

    def _end_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _seconds_for(self, count: int) -> float:
        """The seconds in which a client must receive so many bytes."""
        return self._limits.stalled * math.ceil(count / 2**20)

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "the request is malformed")

    def _refuse_head(self) -> None:
        self._refuse(431, f"the head of the request has more than {self._limits.head:,} bytes")

    def _refuse(self, status: int, message: str) -> None:
        """Answer bytes that never became a request, and close."""
        if self.transport.is_closing():
            return
        body = error_body("environment" if status == 503 else "input", message)
        fields = {"content-type": JSON, "content-length": len(body), "connection": "close"}
        if status == 503:
            fields["retry-after"] = RETRY_SECONDS
        lines = [f"{name}: {value}\r\n".encode() for name, value in fields.items()]
        self.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        self.transport.close()

    def _begin_waiting(self) -> None:
        if self._deadline is None and not self.transport.is_closing():
            self._waiting[self] = None
            self._deadline = self.loop.call_later(self._limits.asking, self._too_late)

    def _end_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._end_waiting()
        self._refuse(408, f"no request arrived within {self._limits.asking:g} seconds")

    def _make_room(self) -> None:
        longest = next(iter(self._waiting))
        if longest is self:
            self._refuse(503, "too many connections")
        else:
            drop(longest.transport)
            longest._end_waiting()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        sending = partial(_run, cast(ASGIApp, app), cycle, self._send_file)
        super()._start_asgi_task(cycle, cast(ASGI3Application, sending))

    async def _send_file(self, cycle: RequestResponseCycle, message: Message) -> None:
        """Send a piece of a file. OSError if the client went away, does not take it, or the file is shorter."""
        count = message["count"]
        if self.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        async with asyncio.timeout(self._seconds_for(count)):
            sent_bytes = await self.loop.sendfile(self.transport, message["file"], message["offset"], count)
        if sent_bytes < count:
            raise OSError("a file became shorter while it was sent")
        cycle.expected_content_length -= count
        if not message["more_body"]:
            await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})


class HeadTransport:
    """The transport of one answer: its head goes out with the first bytes of its body, in one call of the kernel."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self._holding = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def hold(self) -> None:
        """Keep the next bytes, which are the head, until more come."""
        self._holding = True

    def write(self, data: bytes) -> None:
        if self._holding:
            self._head, self._holding = data, False
            return
        if self._head and len(data) <= MAX_JOINED_BYTES:
            data, self._head = self._head + data, b""
        self.flush()
        self._transport.write(data)

    def flush(self) -> None:
        """Send the head, if it was not sent."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def close(self) -> None:
        self.flush()
        self._transport.close()


SendFile = Callable[[RequestResponseCycle, Message], Any]


async def _run(
    app: ASGIApp, cycle: RequestResponseCycle, send_file: SendFile, scope: Scope, receive: Receive, send: Send
) -> None:
    """Run an application that may send from files. A lost client, or the end of the server, is not a bug."""

    transport = HeadTransport(cycle.transport)
    cycle.transport = cast(asyncio.Transport, transport)

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            transport.hold()
            await send(message)
        elif message["type"] == ZERO_COPY:
            transport.flush()
            await send_file(cycle, message)
        else:
            await send(message)
            transport.flush()

    scope["extensions"] = {ZERO_COPY: {}}
    try:
        await app(scope, receive, sending)
    except (OSError, asyncio.CancelledError):
        if not cycle.response_started:
            raise
        drop(cycle.transport)
        cycle.disconnected = True


def drop(transport: asyncio.Transport) -> None:
    """Close a connection at once. The kernel keeps nothing for a client that does not take what was sent."""
    linger = struct.pack("ii", 1, 0)
    with suppress(OSError):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()
