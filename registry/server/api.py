"""API for programs: models, versions and resolve, with the documents of `reg ls` and `reg resolve --json`."""

import re
from functools import partial
from hashlib import sha256
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.log import lookup
from onnxreg.registry.search import listing
from onnxreg.registry.search.search_index import SearchIndex
from onnxreg.registry.server.http.messages import JSON, base_url, encode, of_bytes, read_body
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits, Settings
from onnxreg.registry.server.workers import AnswerCache, SearchWorker, WorkerPool
from onnxreg.registry.store.protocol import IndexFile
from onnxreg.registry.trust.checked_reader import trust_digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.query.resolve import ResolveRequest

ANSWER_CACHE_BYTES = 32 * 2**20
"""Answers in the cache: those of some 20,000 requests."""
LIST_CACHE_BYTES = 4 * 2**20
"""Lists of models in the cache."""
RESOLVE_THREADS, EXPRESSION_THREADS = 4, 1
"""Threads that answer `resolve` without an expression, and with one, which may take a second."""
MAX_PAGE_MODELS = 1000
"""Models in one page of the list."""
MAX_REJECTIONS = 1000
"""Rejections in one answer."""


class Api:
    """The API of one registry.

    An answer to `resolve` follows from the request, the model's index file, the log of policies and the
    operator's trust file; together they are its cache key.
    """

    def __init__(self, registry: ServedRegistry, settings: Settings, limits: Limits) -> None:
        self._registry = registry
        self._settings = settings
        self._limits = limits
        self._answers = AnswerCache(registry, ANSWER_CACHE_BYTES)
        self._search = SearchWorker(registry, LIST_CACHE_BYTES, limits)
        self._plain = WorkerPool("resolve", RESOLVE_THREADS, limits.waiting, limits.steps)
        self._expressions = WorkerPool("expressions", EXPRESSION_THREADS, limits.waiting, limits.steps)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{name}", self.model),
            Route("/v1/models/{org}/{name}", self.model),
            Route("/v1/resolve", self.resolve, methods=["POST"]),
        ]

    async def models(self, request: HttpRequest) -> Response:
        after = request.query_params.get("after", "")
        limit = _limit(request.query_params.get("limit", str(MAX_PAGE_MODELS)))
        answer = await self._search.cached((after, limit), lambda search: _list(search, after, limit))
        return of_bytes(request, answer, JSON, "no-cache")

    async def model(self, request: HttpRequest) -> Response:
        name = check_name(request.scope["path"].removeprefix("/v1/models/"))

        def versions(index: IndexFile | None) -> bytes:
            state = self._registry.state_of(name, index)
            return encode(listing.versions_json(state, lookup.all_versions(self._registry, state)))

        return of_bytes(request, await self._answers.answer(name, name, versions), JSON, "no-cache")

    async def resolve(self, request: HttpRequest) -> Response:
        base = base_url(request, self._settings)
        body = await read_body(request, self._limits)
        rules = f"{base} {self._registry.policy_token()} {trust_digest()} "
        key = sha256(rules.encode() + body).digest()
        answer = self._answers.get(key) or await self._resolved(base, body, key)
        return Response(answer, 200, {"Cache-Control": "no-store"}, JSON)

    async def _resolved(self, base: str, body: bytes, key: bytes) -> bytes:
        """Answer a question; those with an expression wait for each other, and never delay the rest."""
        request = await self._plain.run(partial(ResolveRequest.decode, body))
        pool = self._plain if request.query.where is None else self._expressions
        return await pool.run(partial(self._resolve, base, request, key))

    def _resolve(self, base: str, request: ResolveRequest, key: bytes) -> bytes:
        resolution, token = self._registry.resolve(request)
        document = resolution.to_json()
        for file in document["files"]:
            file["url"] = base + file["url"]
        if (omitted := len(document["rejected"]) - MAX_REJECTIONS) > 0:
            document["rejected"] = document["rejected"][:MAX_REJECTIONS]
            document["rejected_omitted"] = omitted
        answer = encode(document)
        self._answers.put(key, request.ref.name, token, answer)
        return answer


def _list(search: SearchIndex, after: str, limit: int) -> bytes:
    """One page of models, the start of the next page, and the number of damaged models."""
    models = [model for model in search.models() if model.name > after]
    value: dict[str, Any] = {"models": [model.to_json() for model in models[:limit]]}
    if len(models) > limit:
        value["next"] = models[limit - 1].name
    if damaged := len(search.damages()):
        value["damaged"] = damaged
    return encode(value)


def _limit(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= MAX_PAGE_MODELS:
        raise InputError(f"limit is {text[:40]!r}", f"a whole number from 1 to {MAX_PAGE_MODELS}")
    return int(text)
