"""Answers that follow from one model's index file and from what was asked, kept while the file is the same."""

from collections.abc import Callable, Hashable

from anyio.to_thread import run_sync

from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.store.blobs import steady
from onnxreg.registry.store.protocol import IndexFile

Make = Callable[[IndexFile | None], bytes]


class AnswerCache:
    """So many bytes of answers about the models of a place."""

    def __init__(self, place: ServedRegistry, bound: int) -> None:
        self._place = place
        self._answers: LruCache[Hashable, tuple[str, str, bytes]] = LruCache(bound)

    def get(self, asked: Hashable) -> bytes | None:
        """The answer, where it still holds. Costs one stat."""
        name, token, answer = self._answers.get(asked) or ("", "", None)
        return answer if answer is not None and self._place.held_token(name) == token else None

    def put(self, asked: Hashable, name: str, token: str, answer: bytes) -> None:
        """Keep an answer that was made from the index file with this token."""
        self._answers.put(asked, (name, token, answer), len(answer))

    async def answer(self, asked: Hashable, name: str, make: Make) -> bytes:
        """The answer that holds; where there is none, one that is made in a thread."""
        found = self.get(asked)
        return await run_sync(self._made, asked, name, make) if found is None else found

    def answer_here(self, asked: Hashable, name: str, make: Make) -> bytes:
        """As `answer`, for who is in a thread already."""
        found = self.get(asked)
        return self._made(asked, name, make) if found is None else found

    def _made(self, asked: Hashable, name: str, make: Make) -> bytes:
        def read(index: IndexFile | None) -> bytes:
            answer = make(index)
            if index is not None:
                self.put(asked, name, index.token, answer)
            return answer

        return steady(self._place, name, read)
