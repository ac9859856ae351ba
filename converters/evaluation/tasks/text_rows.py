"""Texts as rows of tokens, cut to the length that a version is published for."""

import copy
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.tasks.task_evaluator import ModelInput, TaskEvaluator, numbers
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.schema.core.errors import ConversionError, InputError


class TextEvaluator(TaskEvaluator):
    """An evaluator of a checkpoint with a tokenizer. A text or pair longer than the model takes is cut at its end."""

    def feeds(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Iterator[Feed]:
        """Yield one row of tokens for each text (or pair), int64 `[1, tokens]`."""
        if not texts:
            return
        tokenizer = copy.deepcopy(self.subject.loaded.tokenizer)
        names = tuple(self.subject.sample.feeds[0])
        encoded = tokenizer(
            list(texts),
            None if pairs is None else list(pairs),
            truncation=True,
            max_length=self.max_length,
            return_token_type_ids="token_type_ids" in names,
        )
        for number in range(len(texts)):
            yield {name: np.asarray([encoded[name][number]], dtype=np.int64) for name in names}

    @property
    def max_length(self) -> int:
        """Tokens of the longest row."""
        return int(self.subject.resolved_options["max_seq_length"])


def plain(text: str) -> str:
    """A text in Unicode's composed form, with single spaces: two that differ in these alone are one content."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def text_of(row: Mapping[str, Any], key: str, position: str, required: bool = True) -> str | None:
    """A text of an item. Raises InputError if it is missing, empty or not a text."""
    value = row.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value:
        raise InputError(f"{position}: `{key}` is missing or empty")
    return value


def number_of(row: Mapping[str, Any], key: str, position: str) -> float | None:
    """A number of an item, None without. Raises InputError if it is not a finite number."""
    value = row.get(key)
    if value is None:
        return None
    if type(value) not in (int, float):
        raise InputError(f"{position}: `{key}` must be a number")
    return float(value)


def output(outputs: Mapping[str, Any], name: str, model_input: ModelInput) -> Any:
    """An output of a run of one row, without its first axis. ConversionError if it is missing or has NaN."""
    if name not in outputs or outputs[name].shape[:1] != (1,):
        raise ConversionError(f"the model has no output called {name} with one row for each row of its input")
    return numbers(outputs[name][0])
