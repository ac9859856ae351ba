"""Every task by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.source.source_files import CONFIG
from onnxreg.converters.tasks import checkpoint
from onnxreg.converters.tasks.code import is_factory
from onnxreg.converters.tasks.image_classification import ImageClassification
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.saved_images import SavedImageClassification
from onnxreg.converters.tasks.seq2seq import Seq2Seq
from onnxreg.converters.tasks.task import Task
from onnxreg.converters.tasks.text import Pooling, TextGeneration, TextTask
from onnxreg.schema.core.errors import InputError, nearest

TASKS: Mapping[str, type[Task]] = {
    task.id: task
    for task in (
        *(TextTask.of(checkpoint.ENCODER), Pooling.of(checkpoint.VECTORS), TextTask.of(checkpoint.SPANS)),
        *(TextTask.of(checkpoint.TEXTS), TextTask.of(checkpoint.TOKENS)),
        *(
            ImageClassification,
            Seq2Seq.of(checkpoint.SEQ2SEQ),
            TextGeneration.of(checkpoint.DECODER),
            OnnxFile,
        ),
    )
}
ALIASES: Mapping[str, str] = {alias: task.id for task in TASKS.values() for alias in task.aliases}


def of_source(task: type[Task], source: str, options: Mapping[str, Any]) -> type[Task]:
    """Return the task for a source: an image classifier is a saved checkpoint, or a module that a function makes."""
    is_made = {"input", "factory", "checkpoint"} & options.keys() or is_factory(source)
    is_saved = not Path(source).is_dir() or (Path(source) / CONFIG).is_file()
    return SavedImageClassification if task is ImageClassification and is_saved and not is_made else task


def find(name: str, kind: type[Task] | tuple[type[Task], ...] = Task) -> type[Task]:
    """Return the task with this id or alias; case and underscores do not matter.

    Raises InputError for an unknown name; the hint suggests the nearest name and lists the tasks of the `kind`.
    """
    typed = name.lower().replace("_", "-")
    task = TASKS.get(ALIASES.get(typed, typed))
    if task is None:
        tasks = [own for own, task in TASKS.items() if issubclass(task, kind)]
        names = [*tasks, *(alias for alias, own in ALIASES.items() if own in tasks)]
        alike = nearest(typed, names, 0.85 if "-" in typed else 0.7, most=1)
        hint = f"did you mean {alike[0]}? " if alike else ""
        hint += f"one of: {', '.join(tasks)}; for another, export with Optimum, then reg import the directory"
        raise InputError(f"no task is called {name[:80]!r}", hint)
    return task
