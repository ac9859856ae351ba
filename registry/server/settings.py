"""Settings of the operator, with limits that protect the server from overload."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    token: str | None = field(default=None, repr=False)  # that every request must have, unless it is None
    origins: tuple[str, ...] = ()  # web sites whose scripts may read answers
    url: str | None = None  # the base URL for clients, without a final slash; None: as in the Host header
    drain: int = 30  # seconds for which running answers may continue when the server stops
    behind_proxy: bool = False  # a proxy in front names the client, and limits unfinished heads
    trial: Path | None = None  # the folder with the script that tries models in a browser
    head: int = 32 * 1024  # maximum size of a request's head in bytes
    body: int = 256 * 1024  # maximum size of a request's body in bytes
    waiting: int = 64  # maximum number of waiting requests of one kind (resolve, search, Hub)
    steps: int = 1_000_000  # maximum number of tests of values in one query

    @property
    def immutable(self) -> str:
        """The Cache-Control header of files that never change. With a token, shared caches must not store them."""
        return f"{'public' if self.token is None else 'private'}, max-age=31536000, immutable"
