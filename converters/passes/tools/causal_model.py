"""Running a decoder: its graph, which takes the keys and values of the tokens before, and its checkpoint."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxreg.converters.runtime.sessions import one_torch_thread
from onnxreg.converters.source.source_files import GENAI_CONFIG
from onnxreg.schema.core.errors import ConversionError

PAST = "past_key_values"
"""Prefix of the inputs with keys and values."""


SAMPLE_LENGTHS = (4, 12)


def head_size(path: Path) -> int:
    """The size of one head of a graph that onnxruntime-genai built, from the settings beside it.

    Raises ConversionError without them.
    """
    try:
        settings = json.loads((path.parent / GENAI_CONFIG).read_text("utf-8"))
        return int(settings["model"]["decoder"]["head_size"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConversionError(f"{path.name} is a decoder without its {GENAI_CONFIG}") from error


def first_step(tokens: Any, inputs: Iterable[Any], head_size: int) -> dict[str, Any]:
    """The inputs of a graph for tokens without a past.

    Args:
        tokens: int64 `[1, tokens]`.
        inputs: those of the session, with names and shapes.
        head_size: numbers of a key or value of one head.
    """
    import numpy as np

    count = tokens.shape[1]
    values = {
        "input_ids": tokens,
        "attention_mask": np.ones_like(tokens),
        "position_ids": np.arange(count)[None],
    }
    sizes = {"batch_size": 1, "past_sequence_length": 0, "kv_cache_dim": head_size}
    return {
        item.name: values[item.name]
        if item.name in values
        else np.zeros([sizes.get(axis, count) if isinstance(axis, str) else axis for axis in item.shape])
        for item in inputs
    }


def sample_steps(path: Path, inputs: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Seeded tokens without a past, for a graph made from one that onnxruntime-genai built.

    Args:
        path: the graph with its settings beside it.
        inputs: those of the session that runs.
    """
    import numpy as np

    generator, inputs = np.random.default_rng(0), list(inputs)
    words = json.loads((path.parent / GENAI_CONFIG).read_text("utf-8"))["model"]["vocab_size"]
    tokens = (generator.integers(0, words, (1, count)) for count in SAMPLE_LENGTHS)
    return tuple(first_step(one, inputs, head_size(path)) for one in tokens)


def load(checkpoint: Path, trust_remote_code: bool = False) -> Any:
    """Load a causal language model in float32 and evaluation mode.

    Raises ConversionError if the checkpoint does not load as one.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with _no_bars():
            module = AutoModelForCausalLM.from_pretrained(
                checkpoint,
                dtype=torch.float32,
                attn_implementation="eager",
                weights_only=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
            )
    except Exception as error:
        raise ConversionError("the checkpoint does not load as a causal language model") from error
    return module.eval()


@contextmanager
def torch_runner(
    checkpoint: Path, trust_remote_code: bool = False
) -> Iterator[Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
    """Run a checkpoint on `input_ids`, int64 `[1, tokens]`; it gives `logits`, float32 `[1, tokens, vocabulary]`."""
    import torch

    module = load(checkpoint, trust_remote_code)

    def run(feed: Mapping[str, Any]) -> Mapping[str, Any]:
        with torch.inference_mode():
            return {"logits": module(torch.from_numpy(feed["input_ids"])).logits.numpy()}

    with one_torch_thread():
        yield run


@contextmanager
def _no_bars() -> Iterator[None]:
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
