"""Settings of the operator, with limits that protect the server from overload."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Settings of a server.

    `token`: the token that every request must have; None lets everybody read. `origins`: web sites whose scripts may read
    answers. `url`: the base URL for clients, without a slash at the end; None means the Host header of each request.
    `drain`: seconds for which running answers may continue when the server stops. `behind_proxy`: True if clients come
    through a proxy, whose headers name the client. `trial`: the folder with the script that tries models in a browser.

    The others are limits, which no option of `reg serve` sets. `head`, `body`: the most bytes of a request's head and
    body. `waiting`: the most requests of one kind (resolve, search, Hub) that wait for an answer. `steps`: how many
    times one query may test a value. The time that a client may take is limited by the proxy (docs/serve.md).
    """

    token: str | None = field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    url: str | None = None
    drain: int = 30
    behind_proxy: bool = False
    trial: Path | None = None
    head: int = 32 * 1024
    body: int = 256 * 1024
    waiting: int = 64
    steps: int = 1_000_000

    @property
    def immutable(self) -> str:
        """The Cache-Control header of files that never change. With a token, shared caches must not store them."""
        return f"{'public' if self.token is None else 'private'}, max-age=31536000, immutable"
