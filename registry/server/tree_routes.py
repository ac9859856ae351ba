"""Routes of the registry's files: they make the server a remote like any static host, `https://` to `reg`."""

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.server.answers import IMMUTABLE, JSON, REVALIDATE, HttpError, of_bytes, of_file
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.layout import CATALOG, BlobKey, model_of
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.schema.core.ref import POLICY_LOG

JSON_LINES = "application/jsonl"


class TreeRoutes:
    """`registry.json`, `policy.jsonl`, index files, blobs and the catalog. No other file is served."""

    def __init__(self, registry: ServedRegistry, settings: Settings) -> None:
        self._registry = registry
        self._blob_caching = settings.caching(IMMUTABLE)

    def routes(self) -> list[Route]:
        return [
            Route("/registry.json", self.identity),
            Route("/policy.jsonl", self.index),
            Route("/index/{file}", self.index),
            Route("/index/{org}/{file}", self.index),
            Route("/blobs/sha256/{shard}/{key}", self.blob),
            Route(f"/{CATALOG}", self.catalog),
        ]

    async def identity(self, request: Request) -> Response:
        return of_bytes(request, await run_sync(self._registry.check_readable), JSON)

    async def index(self, request: Request) -> Response:
        path = request.scope["path"].removeprefix("/")
        name = POLICY_LOG if path == "policy.jsonl" else model_of(path)
        index = None if name is None else await run_sync(self._registry.read_index, name)
        if index is None:
            raise _nothing_there(request)
        return of_bytes(request, index.data, JSON_LINES, REVALIDATE, index.token, ranges=True)

    async def blob(self, request: Request) -> Response:
        key = BlobKey.of_path(request.scope["path"].removeprefix("/"))
        if key is None:
            raise _nothing_there(request)
        try:
            file = self._registry.open_key(key) if key.generation else self._registry.open_blob(key.digest)
        except MissingBlobError as error:
            raise HttpError(404, error.message) from error
        return of_file(request, file, key.digest.hex, self._blob_caching)

    async def catalog(self, request: Request) -> Response:
        try:
            file, tag = await run_sync(self._registry.open_tagged, request.scope["path"].removeprefix("/"))
        except FileNotFoundError:
            raise _nothing_there(request) from None
        return of_file(request, file, tag, REVALIDATE)


def _nothing_there(request: Request) -> HttpError:
    """The 404 of a static host."""
    hint = "the tree is registry.json, index/, blobs/ and search/"
    return HttpError(404, f"there is no {request.scope['path'][:200]}", hint)
