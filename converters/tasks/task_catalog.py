"""Every task by name."""

import inspect
from collections.abc import Mapping

from pydantic.fields import FieldInfo

from onnxreg.converters.tasks.image_classification import ImageClassification
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.pooling import Pooling
from onnxreg.converters.tasks.task import Task
from onnxreg.converters.tasks.text import (
    FeatureExtraction,
    QuestionAnswering,
    TextClassification,
    TokenClassification,
)
from onnxreg.converters.tasks.text_generation import TextGeneration
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.suggest import nearest

ALIASES = {
    "default": "feature-extraction",
    "sequence-classification": "text-classification",
    "zero-shot-classification": "text-classification",
}
_OWN = (
    FeatureExtraction,
    Pooling,
    QuestionAnswering,
    TextClassification,
    TokenClassification,
    ImageClassification,
    TextGeneration,
    OnnxFile,
)
TASKS: Mapping[str, type[Task]] = {task.id: task for task in _OWN}


def find(name: str, kind: type[Task] = Task) -> type[Task]:
    """Return the task of this name; InputError for an unknown one lists the names of a kind, the nearest
    first.
    """
    task_id = ALIASES.get(name, name)
    if task_id not in TASKS:
        names = [name for name in [*TASKS, *ALIASES] if issubclass(TASKS[ALIASES.get(name, name)], kind)]
        near = "".join(f"did you mean {candidate}? " for candidate in nearest(name, names, most=1))
        raise InputError(f"no task is called {name[:80]!r}", f"{near}one of: {', '.join(names)}")
    return TASKS[task_id]


def table() -> str:
    """Format every task in Markdown: its summary, and its options with their defaults."""
    lines = ["| task | what | options |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {_summary(task)} | {_options(task)} |" for name, task in TASKS.items()]
    return "\n".join(lines) + "\n"


def _summary(task: type[Task]) -> str:
    """Return the first sentence of the docstring."""
    return " ".join((inspect.getdoc(task) or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _options(task: type[Task]) -> str:
    return ", ".join(f"`{name}`{_default(field)}" for name, field in task.Options.model_fields.items())


def _default(field: FieldInfo) -> str:
    """Format the default of an option; empty for a required option or an empty default."""
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if default is None or default in ((), {}):
        return ""
    return f" {('yes' if default else 'no') if isinstance(default, bool) else default}"
