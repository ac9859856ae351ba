"""A static web server as hosts and CDNs are: ETag, If-None-Match, Range and If-Range; it lists nothing.

`Manners` says what a server does in another way, as people report of hosts and CDNs.
"""

import gzip
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import md5
from pathlib import Path
from urllib.parse import unquote, urlsplit

from support.servers import http

Refusal = tuple[int, dict[str, str]]
"""A status, and headers that come with it."""


@dataclass
class Manners:
    """The ways in which a server answers; they may change while it runs.

    Args:
        ranges: `yes`, `no` (each answer is the whole file), `chunked` (the same, without a length), `star` (an
            answer does not say the size of the file).
        packed: the answers with a whole file are packed by gzip, though nobody asked for it.
        absent: the status for a file that is not there; with 200 a page comes.
        head: the status of each answer to HEAD, if it is not 200.
        refused: the answer to each request for a path that ends so, by one of the `methods`.
        once: answers to the next requests of any kind, in this order.
        seen: the method and path of each request so far.
    """

    ranges: str = "yes"
    packed: bool = False
    absent: int = 404
    head: int = 200
    refused: dict[str, Refusal] = field(default_factory=dict)
    methods: tuple[str, ...] = ("GET",)
    once: list[Refusal] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def refusal(self, method: str, path: str) -> Refusal | None:
        self.seen.append(f"{method} {path}")
        if method == "HEAD" and self.head != 200:
            return self.head, {}
        if self.once:
            return self.once.pop(0)
        refused = self.refused.items() if method in self.methods else ()
        return next((answer for end, answer in refused if path.endswith(end)), None)


PAGE = b"<!doctype html><title>shop</title><div id=root></div>"


@contextmanager
def serve(root: Path, manners: Manners | None = None) -> Iterator[str]:
    """The URL under which the files of a directory are served."""
    with http.serving(Handler, root=root, manners=manners or Manners()) as url:
        yield url


def tag_of(data: bytes) -> str:
    return f'"{md5(data, usedforsecurity=False).hexdigest()}"'


@lru_cache
def large_tag(path: Path, _: os.stat_result) -> str:
    """The tag of a large file, which is read in many ranges."""
    return tag_of(path.read_bytes())


class Handler(http.Handler):
    root: Path
    manners: Manners

    def answer(self) -> None:
        refusal = self.manners.refusal(self.command, self.path)
        if refusal:
            return self.reply(refusal[0], b"no", refusal[1])
        path = self.root / unquote(urlsplit(self.path).path).lstrip("/")
        if not path.is_file():
            return self.send(self.manners.absent, PAGE, {"Content-Type": "text/html"})
        data = path.read_bytes()
        tag = large_tag(path, path.stat()) if len(data) > 2**20 else tag_of(data)
        headers = {"ETag": tag, "Content-Type": "application/octet-stream"}
        if self.headers.get("If-None-Match") == tag:
            return self.reply(304, headers=headers)
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if self.manners.ranges in ("no", "chunked") or not span or self.headers.get("If-Range", tag) != tag:
            return self.send(200, data, headers)
        start, end = int(span[1]), min(int(span[2] or len(data)) + 1, len(data))
        if start >= len(data):
            return self.reply(416, headers={"Content-Range": f"bytes */{len(data)}"})
        size = "*" if self.manners.ranges == "star" else len(data)
        self.reply(206, data[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"})

    def send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        """A whole file, or a page."""
        if status == 200 and self.manners.packed:
            data, headers = gzip.compress(data), headers | {"Content-Encoding": "gzip"}
        if status == 200 and self.manners.ranges == "chunked":
            data = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data, b""))
            headers = headers | {"Transfer-Encoding": "chunked"}
        self.reply(status, data, headers)
