"""Routes for programs: the registry's files, and an API that answers as `reg ls --json` and `reg resolve --json` do."""

import re
from functools import partial
from typing import Any

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onnxreg.registry.search.catalog import Catalog, versions_json
from onnxreg.registry.server import answers
from onnxreg.registry.server.served_registry import Cache, Queue, Search, ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.store.protocol import CATALOG, BlobKey, MissingBlobError, StoredObject, model_of
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import POLICY_LOG, check_name
from onnxreg.schema.query.device import ResolveRequest

JSON_LINES = "application/jsonl"
RESOLVE_THREADS, EXPRESSION_THREADS = 4, 1
"""The numbers of threads for `resolve` requests without and with an expression. An expression may take a second."""
MAX_KNOWN_QUESTIONS = 20_000  # the number of the latest questions that are not parsed again
MAX_PAGE_MODELS = 1000
MAX_REJECTIONS = 1000


class Api:
    def __init__(self, registry: ServedRegistry, settings: Settings) -> None:
        self._registry, self._settings = registry, settings
        self._search = Search(registry, settings)
        self._plain = Queue(RESOLVE_THREADS, settings)
        self._expressions = Queue(EXPRESSION_THREADS, settings)
        self._names = Cache[str](lambda name: 1, MAX_KNOWN_QUESTIONS)  # of the models of earlier questions

    def routes(self) -> list[Route]:
        return [
            Route("/v1/resolve", self.resolve, methods=["POST"]),  # the most frequent requests first
            Route("/index/{org}/{file}", self.index),
            Route("/index/{file}", self.index),
            Route("/blobs/sha256/{shard}/{key}", self.blob),
            Route("/registry.json", self.identity),
            Route("/policy.jsonl", self.index),
            Route(f"/{CATALOG}", self.catalog),
            Route("/v1/models", self.models),
            Route("/v1/models/{name}", self.model),
            Route("/v1/models/{org}/{name}", self.model),
        ]

    async def identity(self, request: Request) -> Response:
        return answers.of_bytes(request, await run_sync(self._registry.store.check_readable), answers.JSON)

    async def index(self, request: Request) -> Response:
        path = request.scope["path"].removeprefix("/")
        name, index = POLICY_LOG if path == "policy.jsonl" else model_of(path), None
        if name is not None:
            index = self._registry.cached_index(name) or await run_sync(self._registry.read_index, name)
        if index is None:
            raise _no_file(request)
        return answers.of_bytes(request, index.data, JSON_LINES, answers.REVALIDATE, index.token, ranges=True)

    async def blob(self, request: Request) -> Response:
        key = BlobKey.of_path(request.scope["path"].removeprefix("/"))
        if key is None:
            raise _no_file(request)
        try:
            file = self._registry.open_key(key) if key.generation else self._registry.open_blob(key.digest)
        except MissingBlobError as error:
            raise answers.HttpError(404, error.message) from error
        return answers.of_file(request, file, key.digest.hex, self._settings.immutable)

    async def catalog(self, request: Request) -> Response:
        try:
            file, tag = self._registry.open_tagged(CATALOG)
        except FileNotFoundError:
            raise _no_file(request) from None
        return answers.of_file(request, file, tag, answers.REVALIDATE)

    async def models(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        limit = request.query_params.get("limit", str(MAX_PAGE_MODELS))
        if not re.fullmatch(r"[0-9]{1,6}", limit) or not 1 <= int(limit) <= MAX_PAGE_MODELS:
            raise InputError(f"limit is {limit[:40]!r}", f"a whole number from 1 to {MAX_PAGE_MODELS}")

        def page(catalog: Catalog) -> bytes:
            models = [model for model in catalog.readable() if model.name > after]
            value: dict[str, Any] = {"models": [model.to_json() for model in models[: int(limit)]]}
            if len(models) > int(limit):
                value["next"] = models[int(limit) - 1].name
            if damaged := len(catalog.damages()):
                value["damaged"] = damaged
            return answers.encode(value)

        return answers.of_bytes(request, await self._search.ask(page, ("models", after, limit)), answers.JSON)

    async def model(self, request: Request) -> Response:
        name = check_name(request.scope["path"].removeprefix("/v1/models/"))

        def versions(index: StoredObject | None) -> bytes:
            return answers.encode(versions_json(self._registry.log_of(name, index)))

        answer = await run_sync(self._registry.answer, ("versions", name), name, versions)
        return answers.of_bytes(request, answer, answers.JSON)

    async def resolve(self, request: Request) -> Response:
        base = answers.base_url(request, self._settings)
        body = await answers.read_body(request, self._settings.body)
        key = ("resolve", base, Digest.of(body))

        def begin() -> bytes | ResolveRequest:
            question = ResolveRequest.read(canonical.decode(body, "the request"))
            self._names.get(key, lambda: question.ref.name)
            return question if question.query.where is not None else self._resolve(key, question)

        answer: bytes | ResolveRequest | None = None
        if (name := self._names.find(key)) is not None:
            answer = self._registry.find_answer(key, name)
        if answer is None:
            answer = await self._plain.run(begin)
        if isinstance(answer, ResolveRequest):
            answer = await self._expressions.run(partial(self._resolve, key, answer))
        return Response(answer, 200, answers.NO_STORE, answers.JSON)

    def _resolve(self, key: tuple[str, str, Digest], question: ResolveRequest) -> bytes:
        def make(index: StoredObject | None) -> bytes:
            document = self._registry.resolve(question).to_json()
            for file in document["files"]:
                file["url"] = key[1] + file["url"]
            if (omitted := len(document["rejected"]) - MAX_REJECTIONS) > 0:
                document["rejected"] = document["rejected"][:MAX_REJECTIONS]
                document["rejected_omitted"] = omitted
            return answers.encode(document)

        return self._registry.answer((*key, *self._registry.rule_keys()), question.ref.name, make)


def _no_file(request: Request) -> answers.HttpError:
    hint = "the tree is registry.json, index/, blobs/ and search/"
    return answers.HttpError(404, f"there is no {request.scope['path'][:200]}", hint)
