"""Text generation: the most likely next token, again and again.

A trial of an artifact, not a server: each step reads the whole text again, without a cache of keys and values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.passes.tools.causal_model import SETTINGS
from onnxreg.converters.texts.text_model import TextModel, numbers_of
from onnxreg.schema.core import canonical


@dataclass(frozen=True)
class GreedyCompletion:
    """The text that follows a prompt; `finish` is `end` if the model ended it, `length` if the limit did."""

    text: str
    tokens: int
    finish: str

    def to_json(self) -> dict[str, Any]:
        return {"completion": {"text": self.text, "tokens": self.tokens, "finish": self.finish}}


def complete(model: TextModel, prompt: str, max_tokens: int) -> GreedyCompletion:
    """Continue a prompt by at most so many tokens, greedily.

    Raise InputError for a prompt without tokens; ConversionError if the graph does not run.
    """
    prompt_ids = model.tokenizer.ids(prompt)
    ends, ids, finish = _ends(model), list(prompt_ids), "length"
    while len(ids) < len(prompt_ids) + max_tokens:
        feed = np.asarray([ids], dtype=np.int64)
        outputs = model.run({"input_ids": feed, "attention_mask": np.ones_like(feed)})
        token = int(numbers_of(outputs, "logits")[-1].argmax())
        if token in ends:
            finish = "end"
            break
        ids.append(token)
    start, text = model.tokenizer.text(prompt_ids), model.tokenizer.text(ids)
    added = (
        text.removeprefix(start) if text.startswith(start) else model.tokenizer.text(ids[len(prompt_ids) :])
    )
    return GreedyCompletion(added, len(ids) - len(prompt_ids), finish)


def _ends(model: TextModel) -> set[int]:
    """The tokens that end a text, of onnxruntime-genai's settings beside the graph, else of the config."""
    path: Path = model.graph.parent / SETTINGS
    settings: Mapping[str, Any] = model.config
    if path.is_file():
        value = canonical.decode(path.read_bytes(), SETTINGS)
        settings = value.get("model", {}) if isinstance(value, dict) else {}
    ends = settings.get("eos_token_id")
    return {end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int)}
