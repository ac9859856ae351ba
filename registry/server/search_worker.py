"""The search index of a server, used by one thread, which owns its database."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from onnxreg.registry.search.search_index import Revision, SearchIndex
from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits
from onnxreg.registry.server.worker_pool import WorkerPool

Answer = TypeVar("Answer")


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
