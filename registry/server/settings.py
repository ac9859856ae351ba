"""Settings of the operator, with limits that protect the server from overload."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    token: str | None = field(default=None, repr=False)  # that every request must have, unless it is None
    origins: tuple[str, ...] = ()  # web sites whose scripts may read answers
    url: str | None = None  # the base URL for clients, without a final slash; None: as in the Host header
    drain: int = 30  # seconds for which running answers may continue when the server stops
    behind_proxy: bool = False  # clients come through a proxy, whose headers name the client
    trial: Path | None = None  # the folder with the script that tries models in a browser
    head: int = 32 * 1024  # the most bytes of a request's head
    body: int = 256 * 1024  # the most bytes of a request's body
    waiting: int = 64  # the most requests of one kind (resolve, search, Hub) that wait for an answer
    steps: int = 1_000_000  # how many times one query may test a value

    @property
    def immutable(self) -> str:
        """The Cache-Control header of files that never change. With a token, shared caches must not store them."""
        return f"{'public' if self.token is None else 'private'}, max-age=31536000, immutable"
