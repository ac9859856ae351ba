"""Convert a checkpoint into the files that an app runs. The result is a `Draft`; no converter uses a registry.

    from onnxreg.converters import export

    export("./checkpoint", task="pooling", output="model.onnx", quantize=True)

`engine` runs a recipe: a `Task` (`tasks`) loads the source, and each `Pass` (`passes`) makes a graph. Start with
`engine/__init__.py`, then `passes/base.py`.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxreg.converters.request import export

__all__ = ["export"]

# Without this, ONNX Runtime writes an id of the machine when it is imported, and keeps events for its makers.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> Any:
    if name != "export":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onnxreg.converters.request import export

    return export
