"""Threads for one kind of request, with a bounded queue, and a cache of answers.

One thread owns the search index. An answer that follows from a request and one model's index file is valid while the
file is the same.
"""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from anyio.to_thread import run_sync

from onnxreg.registry.log.lookup import read_consistently
from onnxreg.registry.search.search_index import Revision, SearchIndex
from onnxreg.registry.server.http.messages import RETRY_SECONDS, HttpError
from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits
from onnxreg.registry.store.protocol import IndexFile
from onnxreg.schema.query.expression.tree import limited

Answer = TypeVar("Answer")

Make = Callable[[IndexFile | None], bytes]


class WorkerPool:
    """Runs requests of one kind, so that others never wait for them.

    Args:
        threads: number that runs at a time.
        waiting: number that may wait; more get a 503.
        steps: the budget of each request.
    """

    def __init__(self, name: str, threads: int, waiting: int, steps: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._capacity = threads + waiting
        self._steps = steps
        self._active = 0

    async def run(self, question: Callable[[], Answer]) -> Answer:
        """Run a request and return its answer. HttpError 503 if too many wait; InputError if it takes too
        many steps.
        """
        if self._active >= self._capacity:
            raise HttpError(
                503,
                "too many questions wait for an answer",
                f"ask again in {RETRY_SECONDS} seconds",
                {"Retry-After": str(RETRY_SECONDS)},
            )
        self._active += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(self._answer, question))
        finally:
            self._active -= 1

    def _answer(self, question: Callable[[], Answer]) -> Answer:
        with limited(self._steps):
            return question()


class SearchWorker:
    """Runs queries on the search index of a registry, which is created at the first query and updated at
    each.

    `bound`: bytes of answers in the cache, which are valid while the index is the same.
    """

    def __init__(self, registry: ServedRegistry, bound: int, limits: Limits) -> None:
        self._registry = registry
        self._search: SearchIndex | None = None
        self._pool = WorkerPool("search", 1, limits.waiting, limits.steps)
        self._answers: LruCache[tuple[Hashable, Revision], bytes] = LruCache(bound)

    async def ask(self, question: Callable[[SearchIndex], Answer]) -> Answer:
        """Run a query on the index; queries wait for each other."""
        return await self._pool.run(lambda: question(self._index()))

    async def cached(self, query_key: Hashable, question: Callable[[SearchIndex], bytes]) -> bytes:
        """Run a query whose answer follows from the index and `query_key` only; its answer is cached."""

        def answer(search: SearchIndex) -> bytes:
            key = (query_key, search.revision)
            value = self._answers.get(key)
            if value is None:
                value = question(search)
                self._answers.put(key, value, len(value))
            return value

        return await self.ask(answer)

    def _index(self) -> SearchIndex:
        self._registry.read_identity()
        if self._search is None:
            self._search = SearchIndex(self._registry)
        else:
            self._search.refresh()
        return self._search


class AnswerCache:
    """Up to `max_bytes` of answers about the models of a registry."""

    def __init__(self, registry: ServedRegistry, max_bytes: int) -> None:
        self._registry = registry
        self._answers: LruCache[Hashable, tuple[str, str, bytes]] = LruCache(max_bytes)

    def get(self, key: Hashable) -> bytes | None:
        """The cached answer, if it is still valid. Costs one stat."""
        name, token, answer = self._answers.get(key) or ("", "", None)
        return answer if answer is not None and self._registry.cached_token(name) == token else None

    def put(self, key: Hashable, name: str, token: str, answer: bytes) -> None:
        """Keep an answer that was made from the index file with this token."""
        self._answers.put(key, (name, token, answer), len(answer))

    async def answer(self, key: Hashable, name: str, make: Make) -> bytes:
        """The cached answer, or one that `make` creates in a thread."""
        cached = self.get(key)
        return await run_sync(self._create, key, name, make) if cached is None else cached

    def answer_here(self, key: Hashable, name: str, make: Make) -> bytes:
        """The same as `answer`, for callers that run in a thread already."""
        cached = self.get(key)
        return self._create(key, name, make) if cached is None else cached

    def _create(self, key: Hashable, name: str, make: Make) -> bytes:
        def read(index: IndexFile | None) -> bytes:
            answer = make(index)
            if index is not None:
                self.put(key, name, index.token, answer)
            return answer

        return read_consistently(self._registry, name, read)
