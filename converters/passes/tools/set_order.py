"""Sets that a traced module loops over, in one order in every process."""

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_lock = threading.RLock()


class SortedSet(set[T], Generic[T]):
    """A set whose texts come in sorted order; Python's order of texts differs from process to process."""

    def __iter__(self) -> Iterator[T]:
        items = list(super().__iter__())
        return iter(sorted(items) if all(isinstance(item, str) for item in items) else items)  # type: ignore[type-var]


@contextmanager
def sorted_sets(module: Any) -> Iterator[None]:
    """Inside, `set(...)` is a `SortedSet` in the code of a torch module and its parts, PyTorch's own left out.

    Tracing numbers values in the order of calls, and models such as ModernBERT call a part once for each of
    `set(config.layer_types)`: without this the names in the graph depend on `PYTHONHASHSEED`. Set literals are not reached.
    """
    with _lock, ExitStack() as undo:
        for source in _sources(module):
            if "set" not in vars(source):
                source.__dict__["set"] = SortedSet
                undo.callback(delattr, source, "set")
        yield


def _sources(module: Any) -> list[ModuleType]:
    """The Python modules in which the classes of a torch module and its parts are written."""
    classes = {kind for part in module.modules() for kind in type(part).__mro__}
    names = {kind.__module__ for kind in classes}
    return [
        sys.modules[name]
        for name in sorted(names & sys.modules.keys())
        if name.partition(".")[0] not in ("builtins", "torch", "onnxreg")
    ]
