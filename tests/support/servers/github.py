"""The comments of one pull request, as GitHub's API reads, pages and writes them. It is ours: the real one cannot be reached."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from support.servers import http

REPOSITORY = "acme/app"
PULL_REQUEST = 7
TOKEN = "a-token-that-no-log-shows"
_ISSUES = f"/repos/{REPOSITORY}/issues"


class GitHub:
    """A running API. With `refuses` it answers writes as if the token had no permission."""

    def __init__(self) -> None:
        self.url = ""
        self.refuses = False
        self.comments: list[dict[str, Any]] = []
        self.writes: list[str] = []

    def add(self, body: str, kind: str = "User") -> dict[str, Any]:
        """Add a comment by a person, or by a program (`Bot`)."""
        self.comments.append({"id": len(self.comments) + 1, "body": body, "user": {"type": kind}})
        return self.comments[-1]

    def reports(self) -> list[str]:
        """The texts of the comments by programs."""
        return [comment["body"] for comment in self.comments if comment["user"]["type"] == "Bot"]


@contextmanager
def running() -> Iterator[GitHub]:
    api = GitHub()
    with http.serving(_Handler, api=api) as api.url:
        yield api


class _Handler(http.Handler):
    api: GitHub

    def answer(self) -> None:
        status, value = self.result(urlsplit(self.path).path)
        self.reply(status, json.dumps(value).encode())

    def result(self, path: str) -> tuple[int, object]:
        is_allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        if self.command == "GET":
            if not is_allowed or path != f"{_ISSUES}/{PULL_REQUEST}/comments":
                return 404, {}
            size, page = int(self.query["per_page"][0]), int(self.query["page"][0])
            return 200, self.api.comments[(page - 1) * size : page * size]
        self.api.writes.append(self.command)
        if not is_allowed or self.api.refuses:
            return 403, {"message": "Resource not accessible by integration"}
        body = str(json.loads(self.body)["body"])
        if self.command == "POST":
            return 201, self.api.add(body, "Bot")
        comment = self.api.comments[int(path.removeprefix(f"{_ISSUES}/comments/")) - 1]
        comment["body"] = body
        return 200, comment
