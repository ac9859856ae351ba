"""Least-recently-used cache with a bound on the total weight."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """Cache that drops the least recently used values if all together weigh more than `bound`. Thread-safe."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._weight = 0
        self._items: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item[0]

    def put(self, key: Key, value: Value, weight: int) -> None:
        """Keep a value, unless it alone weighs more than the bound."""
        with self._lock:
            self._weight += weight - self._items.pop(key, (value, 0))[1]
            self._items[key] = value, weight
            while self._weight > self._bound:
                _, (_, freed) = self._items.popitem(last=False)
                self._weight -= freed
