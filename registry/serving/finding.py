"""The search index behind a server: one thread, to which its database belongs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from onnxreg.registry.search.index import SearchIndex
from onnxreg.registry.serving.place import Place

Answer = TypeVar("Answer")


class Finder:
    """Asks the search index of a place, which is made at the first question and up to date at each."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._search: SearchIndex | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")

    async def ask(self, question: Callable[[SearchIndex], Answer]) -> Answer:
        """What a question gets out of the index; questions wait for each other."""
        return await asyncio.wrap_future(self._thread.submit(self._ask, question))

    def _ask(self, question: Callable[[SearchIndex], Answer]) -> Answer:
        self._place.read_identity()
        if self._search is None:
            self._search = SearchIndex(self._place)
        else:
            self._search.refresh()
        return question(self._search)
