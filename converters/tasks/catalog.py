"""Every task by name."""

from collections.abc import Mapping

from onnxreg.converters.tasks.base import Task
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.text_generation import TextGeneration
from onnxreg.converters.tasks.token_classification import TokenClassification
from onnxreg.schema.errors import InputError

TASKS: Mapping[str, type[Task]] = {task.id: task for task in (TokenClassification, TextGeneration, OnnxFile)}


def find(name: str) -> type[Task]:
    """The task of this name; InputError where there is none."""
    if name not in TASKS:
        raise InputError(f"no task is called {name[:80]!r}", f"one of: {', '.join(TASKS)}")
    return TASKS[name]
