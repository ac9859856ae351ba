"""Run a model over windows, one at a time as a device does, and decode what it says.

A batch of one keeps every figure independent of its neighbours: the scales of dynamically quantized activations are
computed over the whole batch. Each run computes on one thread, and runs are parallel, so that the sums are
added in the same order on any number of cores.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onnxreg.converters.evaluation.decode import Integers, TagScheme, decode
from onnxreg.converters.evaluation.windows import INPUTS, TokenWindow
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import ConversionError

Runner = Callable[[Mapping[str, Integers]], NDArray[np.float32]]
"""From inputs of shape (1, tokens) to logits of shape (tokens, tags). Called from several threads at once."""


def predict(
    run: Runner, windows: Sequence[TokenWindow], texts: Sequence[str], tags: int, scheme: TagScheme
) -> list[Integers]:
    """The label of every character of every text; see `decode`.

    Raises ConversionError if the logits are not of shape (tokens, tags).
    """

    def best(window: TokenWindow) -> Integers:
        logits = run(window.inputs)
        if logits.shape != (len(window.offsets), tags):
            raise ConversionError(
                f"the model gives logits of shape {logits.shape}, expected {(len(window.offsets), tags)}",
                "the number of labels in config.json must be the number of logits",
            )
        return np.asarray(logits.argmax(axis=-1)[window.positions], dtype=np.int64)

    chunks: list[list[tuple[Integers, Integers]]] = [[] for _ in texts]
    with ThreadPoolExecutor(_cores()) as pool:
        for window, chosen in zip(windows, pool.map(best, windows), strict=True):
            chunks[window.text].append((chosen, window.offsets[window.positions]))
    return [
        decode(
            np.concatenate([chosen for chosen, _ in parts]),
            np.concatenate([offsets for _, offsets in parts]),
            len(text),
            scheme,
        )
        for text, parts in zip(texts, chunks, strict=True)
    ]


def _cores() -> int | None:
    """The cores that this process may use, if the system says; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@contextmanager
def torch_runner(model: Any, names: Sequence[str]) -> Iterator[Runner]:
    """Run a Transformers token classifier on the named inputs; torch computes on one thread until the exit.

    torch's thread count is a setting of the process and is put back.
    """
    import torch

    def run(inputs: Mapping[str, Integers]) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits = model(**{name: torch.from_numpy(inputs[name]) for name in names}).logits
        return np.asarray(logits[0].float().numpy())

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield run
    finally:
        torch.set_num_threads(threads)


def onnx_runner(path: Path) -> tuple[Runner, tuple[str, ...]]:
    """Run an ONNX token classifier on the CPU; returns the names of its inputs too.

    Raises ConversionError if ONNX Runtime cannot load it or it takes other inputs than a tokenizer gives.
    """
    session = load_session(path, prepacking=True)
    names = tuple(item.name for item in session.get_inputs())
    if unknown := sorted(set(names) - set(INPUTS)):
        raise ConversionError(
            f"{path.name} takes inputs that a tokenizer does not give: {', '.join(unknown)}"
        )

    if "logits" not in {item.name for item in session.get_outputs()}:
        raise ConversionError(f"{path.name} has no output called logits")

    def run(inputs: Mapping[str, Integers]) -> NDArray[np.float32]:
        (logits,) = session.run(["logits"], {name: inputs[name] for name in names})
        return np.asarray(logits[0])

    return run, names
