"""Run a model over the items of a suite, one at a time as a device does, on all cores.

Each run computes on one thread, and runs are parallel, so that the sums are added in the same order on any number of
cores.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.tasks.task_evaluator import ModelInput, Run, TaskEvaluator
from onnxreg.converters.passes.tools import causal_model, proof, torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import ConversionError

MASK = "attention_mask"


def predict(
    evaluator: TaskEvaluator, run: Run, items: Sequence[Any], inputs: Sequence[ModelInput]
) -> list[Any]:
    """The prediction for each item.

    Args:
        inputs: what `evaluator.inputs(items)` gave: the same for every model that is compared.

    Raises ConversionError if the model does not run on them, or gives other outputs than the task's.
    """
    parts: list[list[Any]] = [[] for _ in items]
    with ThreadPoolExecutor(cores()) as pool:
        results = pool.map(lambda model_input: evaluator.read(model_input, run(model_input.feed)), inputs)
        for model_input, part in zip(inputs, results, strict=True):
            parts[model_input.item].append(part)
    return [evaluator.prediction(item, own) for item, own in zip(items, parts, strict=True)]


def cores() -> int | None:
    """The cores that this process may use, if the system says; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@contextmanager
def parent_runner(start: Any, trust_remote_code: bool = False) -> Iterator[Run]:
    """Run the source itself: a `TorchModel`, the path of a graph, or the directory of a decoder's checkpoint."""
    if isinstance(start, TorchModel):
        with torch_model.runner(start) as run:
            yield run
    elif start.is_dir():
        with causal_model.torch_runner(start, trust_remote_code) as run:
            yield run
    else:
        yield artifact_runner(start)


def artifact_runner(path: Path, per_token: Collection[str] = ()) -> Run:
    """Run an ONNX or ORT-format file on the CPU.

    A graph whose shapes are fixed gets its inputs padded, and the padding is cut off its outputs `per_token`.

    Raises ConversionError if ONNX Runtime cannot load it.
    """
    session = load_session(path, prepacking=True)
    takes = {item.name: item for item in session.get_inputs()}
    past = [item for name, item in takes.items() if name.startswith(causal_model.PAST)]
    head_size = causal_model.head_size(path) if past else 0
    length = takes[MASK].shape[1] if MASK in takes and len(takes[MASK].shape) == 2 else None

    def run(feed: Feed) -> Mapping[str, Any]:
        if past:
            feed = causal_model.first_step(feed["input_ids"], takes.values(), head_size)
        if unknown := sorted(takes.keys() - feed.keys()):
            raise ConversionError(
                f"{path.name} takes inputs that the task does not give: {', '.join(unknown)}"
            )
        if isinstance(length, int):
            return _run_padded(session, feed, length, per_token, path.name)
        return proof.outputs(session, feed, path.name)

    return run


def _run_padded(
    session: Any, feed: Feed, length: int, per_token: Collection[str], label: str
) -> dict[str, Any]:
    own = feed[MASK].shape[1]
    if own > length:
        raise ConversionError(
            f"{label} takes {length} tokens, an item of the evaluation suite has {own}",
            "evaluate the other artifacts: evaluation: {artifacts: [...]}, or state max_seq_length",
        )
    padded = {name: np.pad(array, ((0, 0), (0, length - own))) for name, array in feed.items()}
    outputs = proof.outputs(session, padded, label)
    return {name: array[:, :own] if name in per_token else array for name, array in outputs.items()}
