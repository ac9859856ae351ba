"""Every task by name."""

from collections.abc import Mapping

from onnxreg.converters.tasks.base import Task
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.pooling import Pooling
from onnxreg.converters.tasks.text import (
    FeatureExtraction,
    QuestionAnswering,
    TextClassification,
    TokenClassification,
)
from onnxreg.converters.tasks.text_generation import TextGeneration
from onnxreg.schema.errors import InputError

ALIASES = {
    "default": "feature-extraction",
    "sequence-classification": "text-classification",
    "zero-shot-classification": "text-classification",
}
_TEXT = (FeatureExtraction, Pooling, QuestionAnswering, TextClassification, TokenClassification)
TASKS: Mapping[str, type[Task]] = {task.id: task for task in (*_TEXT, TextGeneration, OnnxFile)}


def find(name: str) -> type[Task]:
    """The task of this name; InputError where there is none."""
    known = ALIASES.get(name, name)
    if known not in TASKS:
        raise InputError(f"no task is called {name[:80]!r}", f"one of: {', '.join([*TASKS, *ALIASES])}")
    return TASKS[known]
