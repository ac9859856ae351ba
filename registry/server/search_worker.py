"""The search index behind a server: one thread, to which its database belongs."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from onnxreg.registry.search.search_index import Revision, SearchIndex
from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits
from onnxreg.registry.server.worker_pool import WorkerPool

Answer = TypeVar("Answer")


class SearchWorker:
    """Asks the search index of a place, which is made at the first question and up to date at each.

    `bound`: bytes of answers that are kept while the index says the same.
    """

    def __init__(self, place: ServedRegistry, bound: int, limits: Limits) -> None:
        self._place = place
        self._search: SearchIndex | None = None
        self._crew = WorkerPool("search", 1, limits.waiting, limits.steps)
        self._kept: LruCache[tuple[Hashable, Revision], bytes] = LruCache(bound)

    async def ask(self, question: Callable[[SearchIndex], Answer]) -> Answer:
        """What a question gets out of the index; questions wait for each other."""
        return await self._crew.run(lambda: question(self._index()))

    async def kept(self, asked: Hashable, question: Callable[[SearchIndex], bytes]) -> bytes:
        """As `ask`, where the answer follows from the index and from what was asked."""

        def answer(search: SearchIndex) -> bytes:
            key = (asked, search.revision)
            found = self._kept.get(key)
            if found is None:
                found = question(search)
                self._kept.put(key, found, len(found))
            return found

        return await self.ask(answer)

    def _index(self) -> SearchIndex:
        self._place.read_identity()
        if self._search is None:
            self._search = SearchIndex(self._place)
        else:
            self._search.refresh()
        return self._search
