"""Cache of answers that follow from a request and one model's index file, valid while the file is the same."""

from collections.abc import Callable, Hashable

from anyio.to_thread import run_sync

from onnxreg.registry.server.lru import LruCache
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.store.blobs import read_consistently
from onnxreg.registry.store.protocol import IndexFile

Make = Callable[[IndexFile | None], bytes]


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
