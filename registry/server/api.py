"""API for programs: models, versions and resolve, with the documents of `reg ls` and `reg resolve --json`."""

import re
from functools import partial
from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.search import listing
from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.server.answers import JSON, NO_STORE, base_url, encode, of_bytes, read_body
from onnxreg.registry.server.questions import Queue, Search
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.registry.store.protocol import IndexFile
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.query.resolve import ResolveRequest

RESOLVE_THREADS, EXPRESSION_THREADS = 4, 1
"""Threads that answer `resolve` without an expression, and with one, which may take a second."""
MAX_PAGE_MODELS = 1000
"""Models in one page of the list."""
MAX_REJECTIONS = 1000
"""Rejections in one answer."""


class Api:
    """The API of one registry."""

    def __init__(self, registry: ServedRegistry, settings: Settings, limits: Limits) -> None:
        self._registry, self._settings, self._limits = registry, settings, limits
        self._search = Search(registry, limits)
        self._plain = Queue("resolve", RESOLVE_THREADS, limits)
        self._expressions = Queue("expressions", EXPRESSION_THREADS, limits)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{name}", self.model),
            Route("/v1/models/{org}/{name}", self.model),
            Route("/v1/resolve", self.resolve, methods=["POST"]),
        ]

    async def models(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        limit = request.query_params.get("limit", str(MAX_PAGE_MODELS))
        if not re.fullmatch(r"[0-9]{1,6}", limit) or not 1 <= int(limit) <= MAX_PAGE_MODELS:
            raise InputError(f"limit is {limit[:40]!r}", f"a whole number from 1 to {MAX_PAGE_MODELS}")
        page = partial(_page, after=after, limit=int(limit))
        return of_bytes(request, await self._search.ask(page, ("models", after, limit)), JSON)

    async def model(self, request: Request) -> Response:
        name = check_name(request.scope["path"].removeprefix("/v1/models/"))

        def versions(index: IndexFile | None) -> bytes:
            log = self._registry.log_of(name, index)
            return encode(listing.versions_json(log))

        answer = await run_sync(self._registry.answer, ("versions", name), name, versions)
        return of_bytes(request, answer, JSON)

    async def resolve(self, request: Request) -> Response:
        """Answer a question; those with an expression wait for each other, and never delay the rest."""
        base = base_url(request, self._settings)
        body = await read_body(request, self._limits)

        def begin() -> bytes | ResolveRequest:
            question = ResolveRequest.decode(body)
            return question if question.query.where is not None else self._resolve(base, body, question)

        answer = await self._plain.run(begin)
        if isinstance(answer, ResolveRequest):
            answer = await self._expressions.run(partial(self._resolve, base, body, answer))
        return Response(answer, 200, NO_STORE, JSON)

    def _resolve(self, base: str, body: bytes, question: ResolveRequest) -> bytes:
        """The answer follows from the question, the index file, the log of policies and the operator's trust file."""
        registry, name = self._registry, question.ref.name
        key = ("resolve", base, Digest.of(body), *registry.rules())
        answer = registry.answers.get(key, registry.token(name))
        if answer is None:
            resolution = registry.resolve(question)
            document = resolution.to_json()
            for file in document["files"]:
                file["url"] = base + file["url"]
            if (omitted := len(document["rejected"]) - MAX_REJECTIONS) > 0:
                document["rejected"] = document["rejected"][:MAX_REJECTIONS]
                document["rejected_omitted"] = omitted
            answer = encode(document)
            token = "" if resolution.index is None else resolution.index.token
            registry.answers.put(key, token, answer, len(answer))
        return answer


def _page(search: Catalog, after: str, limit: int) -> bytes:
    """One page of models, the start of the next page, and the number of damaged models."""
    models = [model for model in search.readable() if model.name > after]
    value: dict[str, Any] = {"models": [model.to_json() for model in models[:limit]]}
    if len(models) > limit:
        value["next"] = models[limit - 1].name
    if damaged := len(search.damages()):
        value["damaged"] = damaged
    return encode(value)
