"""Routes of the registry's files: they make the server a remote like any static host, `https://` to `reg`."""

import os

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.server.http.responses import JSON, HttpError, of_bytes, of_file
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.store.layout import BlobKey, model_of
from onnxreg.schema.core.ref import POLICY_LOG

IMMUTABLE = "max-age=31536000, immutable"
REVALIDATE = "no-cache"
JSON_LINES = "application/jsonl"


class TreeRoutes:
    """`registry.json`, `policy.jsonl`, index files and blobs. No other file is served.

    `shared`: allow caches between the server and its clients to keep blobs: not if a token guards them.
    """

    def __init__(self, registry: ServedRegistry, shared: bool) -> None:
        self._registry = registry
        self._blob_caching = f"{'public' if shared else 'private'}, {IMMUTABLE}"

    def routes(self) -> list[Route]:
        return [
            Route("/registry.json", self.identity),
            Route("/policy.jsonl", self.policies),
            Route("/index/{file}", self.index),
            Route("/index/{org}/{file}", self.index),
            Route("/blobs/sha256/{shard}/{key}", self.blob),
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
        file = self._registry.open_key(key) if key.generation else self._registry.open_blob(key.digest)
        return of_file(request, file, os.fstat(file.fileno()).st_size, key.digest.hex, self._blob_caching)


def nothing_there(request: Request) -> HttpError:
    """The 404 of a static host."""
    return HttpError(
        404, f"there is no {request.scope['path'][:200]}", "the tree is registry.json, index/ and blobs/"
    )
