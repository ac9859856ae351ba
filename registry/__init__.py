"""The store, the index and what moves between registries. `Registry` is the facade."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxreg.registry.facade import Registry

__all__ = ["Registry"]


def __getattr__(name: str) -> Any:
    if name == "Registry":
        from onnxreg.registry.facade import Registry

        return Registry
    raise AttributeError(name)
