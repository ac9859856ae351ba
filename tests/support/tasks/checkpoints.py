"""Checkpoints found and loaded in one call."""

from typing import Any

from onnxreg.converters.tasks.checkpoint import LoadedCheckpoint, find_checkpoint, load_located
from onnxreg.converters.tasks.heads import TaskHead


def load_checkpoint(
    source: str, name: str, head: TaskHead, trust_remote_code: bool = False
) -> LoadedCheckpoint:
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    return load_located(find_checkpoint(source, head, **options), name, head, **options)
