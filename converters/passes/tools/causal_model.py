"""Running a decoder: its graph, which takes the keys and values of the tokens before, and its checkpoint."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.runtime.sessions import one_torch_thread
from onnxreg.converters.source.source_files import GENAI_CONFIG
from onnxreg.schema.core.errors import ConversionError

PAST = "past_key_values"
"""Prefix of the inputs with keys and values."""
SAMPLE_LENGTHS = (4, 12)


class Settings(NamedTuple):
    """The words of a vocabulary, and the numbers of a key or value of one head."""

    words: int
    head_size: int


def settings_of(path: Path) -> Settings:
    """The settings beside a graph that onnxruntime-genai built, or one made from it. ConversionError without them."""
    try:
        model = json.loads((path.parent / GENAI_CONFIG).read_text("utf-8"))["model"]
        return Settings(int(model["vocab_size"]), int(model["decoder"]["head_size"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConversionError(f"{path.name} is a decoder without its {GENAI_CONFIG}") from error


def step_inputs(
    tokens: Any, inputs: Iterable[Any], head_size: int, past: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The inputs of a graph for tokens, behind those whose keys and values are given.

    Args:
        tokens: int64 `[1, tokens]`.
        inputs: those of the session, with names and shapes.
        head_size: numbers of a key or value of one head.
        past: keys and values by input name; absent, there are no tokens before.
    """
    import numpy as np

    before = next((array.shape[2] for array in (past or {}).values()), 0)
    end = before + tokens.shape[1]
    values = {
        "input_ids": tokens,
        "attention_mask": np.ones((1, end), np.int64),
        "position_ids": np.arange(before, end)[None],
        **(past or {}),
    }
    sizes = {"batch_size": 1, "past_sequence_length": 0, "kv_cache_dim": head_size}
    return {
        item.name: values[item.name]
        if item.name in values
        else np.zeros([sizes.get(axis, end) if isinstance(axis, str) else axis for axis in item.shape])
        for item in inputs
    }


def sample_steps(path: Path, inputs: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """Seeded tokens without a past, for a graph made from one that onnxruntime-genai built.

    Args:
        path: the graph with its settings beside it.
        inputs: those of the session that runs.
    """
    import numpy as np

    generator, inputs, settings = np.random.default_rng(0), list(inputs), settings_of(path)
    tokens = (generator.integers(0, settings.words, (1, count)) for count in SAMPLE_LENGTHS)
    return tuple(step_inputs(one, inputs, settings.head_size) for one in tokens)


@contextmanager
def torch_runner(
    checkpoint: Path, trust_remote_code: bool = False
) -> Iterator[Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
    """Run a causal language model, float32, on `input_ids`, int64 `[1, tokens]`; it gives `logits`, `[1, tokens, words]`.

    Raises ConversionError if the checkpoint does not load as one.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with silent_transformers():
            module = AutoModelForCausalLM.from_pretrained(
                checkpoint,
                dtype=torch.float32,
                attn_implementation="eager",
                weights_only=True,
                local_files_only=True,
                trust_remote_code=trust_remote_code,
            ).eval()
    except Exception as error:
        raise ConversionError("the checkpoint does not load as a causal language model") from error

    def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        with torch.inference_mode():
            return {"logits": module(torch.from_numpy(inputs["input_ids"])).logits.numpy()}

    with one_torch_thread():
        yield run
