"""Checkpoints found and loaded in one call."""

from pathlib import Path
from typing import Any

from onnxreg.converters.tasks.task import TaskHead
from onnxreg.converters.tasks.text import TextTask


def task_of(head: TaskHead, trust_remote_code: bool = False) -> TextTask:
    return TextTask.of(head)(Path(), trust_remote_code)


def load_checkpoint(source: str, head: TaskHead, **options: bool) -> Any:
    task = task_of(head, **options)
    return task.checkpoint(task.find(source))
