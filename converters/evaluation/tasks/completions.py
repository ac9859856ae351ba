"""Text generation: the likelihood of a completion after a prompt."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.tasks.task_evaluator import (
    ModelInput,
    TaskEvaluator,
    output,
    plain,
    text_of,
)
from onnxreg.converters.tasks.checkpoints.checkpoint import load_tokenizer
from onnxreg.schema.core.errors import InputError

MAX_TOKENS = 2048
"""Tokens of a prompt and its completion together."""


@dataclass(frozen=True)
class Completion:
    """A prompt, "" for none, and the text that follows it."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Likelihood:
    """The negative log-likelihood of a completion in nats, its tokens, the size of the vocabulary.

    `is_greedy`: every token of the completion has the largest logit.
    """

    nats: float
    tokens: int
    vocabulary: int
    is_greedy: bool


class Completions(TaskEvaluator):
    """`{prompt?, completion}`. A prediction is the `Likelihood` of the completion."""

    tasks = ("text-generation",)

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.subject.start, False)

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Completion:
        prompt = text_of(row, "prompt", position, required=False) or ""
        return Completion(prompt, str(text_of(row, "completion", position)))

    @classmethod
    def identity(cls, item: Completion) -> Hashable:
        return plain(item.prompt + item.completion)

    def inputs(self, items: Sequence[Completion]) -> list[ModelInput]:
        return [self._input(number, item) for number, item in enumerate(items)]

    def _input(self, number: int, item: Completion) -> ModelInput:
        """The tokens of the whole text; those that begin after the prompt are the completion's, but never the first."""
        encoded = self._tokenizer(
            item.prompt + item.completion, return_offsets_mapping=True, add_special_tokens=True, verbose=False
        )
        ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
        if len(ids) > MAX_TOKENS:
            raise InputError(
                f"item {number + 1} of the evaluation suite has {len(ids)} tokens, at most {MAX_TOKENS} are read"
            )
        scored = [
            at for at, (start, end) in enumerate(offsets) if at and end > start and end > len(item.prompt)
        ]
        if not scored:
            raise InputError(
                f"item {number + 1} of the evaluation suite has a completion without a token to score"
            )
        return ModelInput(number, {"input_ids": np.asarray([ids], dtype=np.int64)}, np.array(scored))

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> Likelihood:
        scored = model_input.context
        logits = output(outputs, "logits")[scored - 1].astype(np.float64)
        tokens = model_input.feed["input_ids"][0, scored]
        own = logits[np.arange(len(tokens)), tokens]
        largest = logits.max(axis=1)
        nats = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)) - own
        return Likelihood(float(nats.sum()), len(tokens), logits.shape[1], bool((own == largest).all()))

    def prediction(self, item: Completion, parts: Sequence[Likelihood]) -> Likelihood:
        return parts[0]
