"""Threads for one kind of question, and a queue in front of them that has an end."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from onnxreg.registry.server.http.responses import HttpError
from onnxreg.schema.core.budget import limited

Answer = TypeVar("Answer")

RETRY_SECONDS = 2


class WorkerPool:
    """Runs questions of one kind, so that others never wait for them.

    Args:
        threads: so many run at a time.
        waiting: so many may wait; 503 beyond.
        steps: the budget of each question.
    """

    def __init__(self, name: str, threads: int, waiting: int, steps: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._room = threads + waiting
        self._steps = steps
        self._present = 0

    async def run(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question. HttpError 503 if too many wait; InputError if it takes too many steps."""
        if self._present >= self._room:
            raise HttpError(
                503,
                "too many questions wait for an answer",
                f"ask again in {RETRY_SECONDS} seconds",
                {"Retry-After": str(RETRY_SECONDS)},
            )
        self._present += 1
        try:
            return await asyncio.wrap_future(self._pool.submit(self._answer, question))
        finally:
            self._present -= 1

    def _answer(self, question: Callable[[], Answer]) -> Answer:
        with limited(self._steps):
            return question()
