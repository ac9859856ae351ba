"""From a checkpoint to the files that an app runs. Converters return a `Draft`, and do not use stores.

    from onnxreg.converters import export

    export("./checkpoint", task="pooling", output="model.onnx", quantize=True)

`engine` runs a recipe: a `Task` (`tasks`) loads the source, each `Pass` (`passes`) makes a graph, and every result is
compared with its parent. `profiles` are recipes by name, `families` makes several graphs, `importers` reads existing
files, `evaluation` judges a quantized model. Start with `engine/__init__.py`, then `passes/base.py`.

Must not import: `onnxreg.registry`, `onnxreg.cli`.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxreg.converters.request import export

__all__ = ["export"]

# ONNX Runtime, as it is imported, else writes an id of the machine and keeps events for its makers.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> Any:
    if name != "export":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from onnxreg.converters.request import export

    return export
