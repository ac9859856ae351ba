"""Loaded sources for evaluations, made by hand."""

from typing import Any

import numpy as np
import torch

from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.tasks.task import ExportSubject, Part


def subject_of(checkpoint: Any, max_length: int = 512, task: str = "token-classification") -> ExportSubject:
    """A checkpoint (model, tokenizer, labels, source) as its task loads it."""
    feeds = {name: np.zeros((1, 1), dtype=np.int64) for name in ("input_ids", "attention_mask")}
    examples = {name: torch.from_numpy(array) for name, array in feeds.items()}
    return ExportSubject(
        checkpoint.source,
        {"": Part(TorchModel(checkpoint.model, examples), [feeds], [{}])},
        fields={"task": task},
        resolved_options={"max_seq_length": max_length},
        loaded=checkpoint,
    )
