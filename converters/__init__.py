"""Convert a checkpoint into the files that an app runs. The result is a `Draft`; no converter reads or writes a registry.

    from onnxreg.converters import export

    export("./checkpoint", task="pooling", output="model.onnx", quantize=True)

`engine` runs a recipe: a `Task` (`tasks`) loads the source, each `Pass` (`passes`) makes a graph, and the graph is compared
with the one it was made from. `profiles` has named recipes, `families` makes several graphs, `importers` reads existing
files, `evaluation` judges a quantized model. Start with `engine/__init__.py`, then `passes/base.py`.

Must not import: `onnxreg.registry`, `onnxreg.cli`.
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
