"""Questions that cost time run in threads of their own, with a bounded queue and a budget for each."""

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from onnxreg.registry.search.catalog import Catalog
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.registry.server.answers import HttpError
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Limits
from onnxreg.schema.query.expression.tree import limited

RETRY_SECONDS = 2
"""Seconds after which a client for whom there was no room may come again."""
Answer = TypeVar("Answer")


class Queue:
    """Runs questions of one kind in `threads` threads, so that other kinds never wait for them."""

    def __init__(self, kind: str, threads: int, limits: Limits) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=kind)
        self._room = threads + limits.waiting
        self._steps = limits.steps

    async def run(self, question: Callable[[], Answer]) -> Answer:
        """Answer a question. HttpError 503 if too many wait; InputError if it takes too many steps."""
        if self._room == 0:
            hint, retry = f"ask again in {RETRY_SECONDS} seconds", {"Retry-After": str(RETRY_SECONDS)}
            raise HttpError(503, "too many questions wait for an answer", hint, retry)
        self._room -= 1
        try:
            return await asyncio.wrap_future(self._pool.submit(self._answer, question))
        finally:
            self._room += 1

    def _answer(self, question: Callable[[], Answer]) -> Answer:
        with limited(self._steps):
            return question()


class Search:
    """Questions about all models: they wait for each other, and the catalog is brought up to date for each."""

    def __init__(self, registry: ServedRegistry, limits: Limits) -> None:
        self._registry = registry
        self._catalog = LocalCatalog(registry)
        self._queue = Queue("search", 1, limits)

    async def ask(
        self, question: Callable[[Catalog], bytes], key: Hashable = None, artifacts: bool = False
    ) -> bytes:
        """Answer a question; with a `key`, its answer is kept while the catalog is the same. `artifacts`: it has all of them."""

        def answer(catalog: Catalog) -> bytes:
            answers, token = self._registry.answers, str(catalog.revision)
            value = None if key is None else answers.get((self, key), token)
            if value is None:
                value = question(catalog)
                if key is not None:
                    answers.put((self, key), token, value, len(value))
            return value

        def asked() -> bytes:
            self._registry.check_readable()
            return answer(self._catalog.refresh(artifacts=artifacts))

        return await self._queue.run(asked)
