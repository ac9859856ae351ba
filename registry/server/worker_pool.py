"""Threads for one kind of request, with a bounded queue."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from onnxreg.registry.server.http.responses import HttpError
from onnxreg.schema.core.budget import limited

Answer = TypeVar("Answer")

RETRY_SECONDS = 2


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
