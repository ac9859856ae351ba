"""Routes of the registry's files: they make the server a remote like any static host, `https://` to `reg`."""

import os
from typing import NamedTuple

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from onnxreg.registry.server.http.messages import JSON, HttpError, of_bytes, of_file
from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.served_registry import INDEX_CACHE_BYTES, ServedRegistry
from onnxreg.registry.store.layout import (
    SNAPSHOT,
    SNAPSHOT_TABLE,
    BlobKey,
    model_of,
)
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.schema.core.ref import POLICY_LOG

IMMUTABLE = "max-age=31536000, immutable"
REVALIDATE = "no-cache"
JSON_LINES = "application/jsonl"
CONDITIONS = frozenset({b"if-match", b"if-none-match", b"if-range", b"range"})
"""Headers on which an answer depends."""


class RouteTemplate(NamedTuple):
    """The route of a request, as metrics and log name it."""

    path: str


INDEX_ROUTES = RouteTemplate("/index/{file}"), RouteTemplate("/index/{org}/{file}")


class TreeRoutes:
    """`registry.json`, `policy.jsonl`, index files, blobs and the snapshot. No other file is served.

    `shared`: allow caches between the server and its clients to keep blobs: not if a token guards them.
    """

    def __init__(self, registry: ServedRegistry, shared: bool) -> None:
        self._registry = registry
        self._blob_caching = f"{'public' if shared else 'private'}, {IMMUTABLE}"

    def routes(self) -> list[Route]:
        return [
            Route("/registry.json", self.identity),
            Route("/policy.jsonl", self.policies),
            *(Route(template.path, self.index) for template in INDEX_ROUTES),
            Route("/blobs/sha256/{shard}/{key}", self.blob),
            Route(f"/{SNAPSHOT}", self.snapshot),
            Route(f"/{SNAPSHOT_TABLE}", self.snapshot),
        ]

    async def identity(self, request: Request) -> Response:
        return of_bytes(request, self._registry.read_identity(), JSON, REVALIDATE)

    async def policies(self, request: Request) -> Response:
        return await self._index(request, POLICY_LOG)

    async def index(self, request: Request) -> Response:
        name = model_of(request.scope["path"].removeprefix("/"))
        if name is None:
            raise nothing_there(request)
        return await self._index(request, name)

    async def _index(self, request: Request, name: str) -> Response:
        index = self._registry.cached_index(name) or await run_sync(self._registry.read_index, name)
        if index is None:
            raise nothing_there(request)
        return of_bytes(request, index.data, JSON_LINES, REVALIDATE, index.token)

    async def blob(self, request: Request) -> Response:
        key = BlobKey.of_path(request.scope["path"].removeprefix("/"))
        if key is None:
            raise nothing_there(request)
        try:
            file = self._registry.open_key(key) if key.generation else self._registry.open_blob(key.digest)
        except MissingBlobError as error:
            raise HttpError(404, error.message) from error
        return of_file(request, file, os.fstat(file.fileno()).st_size, key.digest.hex, self._blob_caching)

    async def snapshot(self, request: Request) -> Response:
        try:
            file, tag = await run_sync(self._registry.open_tagged, request.scope["path"].removeprefix("/"))
        except FileNotFoundError:
            raise nothing_there(request) from None
        return of_file(request, file, os.fstat(file.fileno()).st_size, tag, REVALIDATE)


class IndexAnswers:
    """The application `app`, behind a cache of answers with index files: the usual request is not routed.

    Requests with conditions or ranges, and those for index files that changed, go to the application.
    """

    def __init__(self, app: ASGIApp, registry: ServedRegistry) -> None:
        self._app = app
        self._registry = registry
        self._answers: LruCache[str, Response] = LruCache(INDEX_CACHE_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        await (answer or self._app)(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        path: str = scope["path"].removeprefix("/")
        if not path.startswith("index/") or any(name in CONDITIONS for name, _ in scope["headers"]):
            return None
        name = model_of(path)
        index = None if name is None else self._registry.cached_index(name)
        if index is None:
            return None
        scope["route"] = INDEX_ROUTES[path.count("/") - 1]
        answer = self._answers.get(index.token)
        if answer is None:
            answer = of_bytes(Request(scope), index.data, JSON_LINES, REVALIDATE, index.token)
            self._answers.put(index.token, answer, len(index.data))
        return answer


def nothing_there(request: Request) -> HttpError:
    """The 404 of a static host."""
    return HttpError(
        404,
        f"there is no {request.scope['path'][:200]}",
        "the tree is registry.json, index/, blobs/ and search/",
    )
