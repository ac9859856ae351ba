"""Settings of the operator, and limits that protect the server from overload."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """Settings of a server.

    `token`: required in every request; None lets everybody read. `origins`: the web sites whose scripts may
    read. `url`: the base URL for clients, without a slash at the end; None uses the Host header of each
    request. `drain`: seconds that running answers have to finish when the server stops.
    """

    token: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    url: str | None = None
    drain: int = 30


@dataclass(frozen=True)
class Limits:
    """Bytes and seconds for one client, and the number of connections for all.

    `head`, `body`: bytes of a request. `asking`: seconds for a request's head, and the same for its body.
    `idle`: seconds that a connection may wait between requests. `stalled`: seconds in which a client must
    receive each MiB of an answer. `waiting`: requests of one kind (resolve, search, lists) that may wait for an
    answer. `steps`: tests of one value that a query may take.
    """

    head: int = 32 * 1024
    body: int = 256 * 1024
    asking: float = 10.0
    idle: int = 30
    stalled: float = 60.0
    connections: int = 16_384
    waiting: int = 64
    steps: int = 1_000_000
