"""What an operator decides, and the limits that keep strangers from using the server up."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """`token`: whoever asks must bring it; None lets everybody read. `origins`: the web sites whose scripts may read.

    `url`: how clients reach the server, without a slash at the end; None takes each request's own word for it.
    `drain`: seconds that running answers have to end once the server is asked to stop.
    """

    token: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    url: str | None = None
    drain: int = 30


@dataclass(frozen=True)
class Limits:
    """Bytes and seconds that one client gets, and how many connections all of them.

    `head`, `body`: bytes of a request. `asking`: seconds for a request's head, and as many for its body. `idle`: seconds
    that a connection may rest between requests. `stalled`: seconds in which a reader must take one piece of a file.
    `waiting`: questions of one kind (resolve, search, lists) that may wait for an answer. `steps`: tests of one value that
    a question may take.
    """

    head: int = 32 * 1024
    body: int = 256 * 1024
    asking: float = 10.0
    idle: int = 30
    stalled: float = 60.0
    connections: int = 16_384
    waiting: int = 64
    steps: int = 1_000_000
