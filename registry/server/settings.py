"""Settings of the operator, and limits that protect the server from overload."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """Settings of a server.

    `token`: required in every request; None lets everybody read. `origins`: the web sites whose scripts may
    read. `url`: the base URL for clients, without a slash at the end; None uses the Host header of each
    request. `drain`: seconds that running answers have to finish when the server stops. `behind_proxy`: clients
    come through a proxy, whose headers say where they come from.
    """

    token: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    url: str | None = None
    drain: int = 30
    behind_proxy: bool = False

    def caching(self, rule: str) -> str:
        """A Cache-Control header: caches that several clients share keep nothing that a token guards."""
        return f"{'public' if self.token is None else 'private'}, {rule}"


@dataclass(frozen=True)
class Limits:
    """The most that one request may take. The time that a client may take is the proxy's to limit (docs/serve.md).

    `head`, `body`: bytes of a request. `waiting`: requests of one kind (resolve, search, Hub) that may wait for
    an answer. `steps`: tests of one value that a query may take.
    """

    head: int = 32 * 1024
    body: int = 256 * 1024
    waiting: int = 64
    steps: int = 1_000_000
