"""Token classification: the label of every character of a text, read from overlapping windows of its tokens."""

import copy
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.decode import Integers, TagScheme, decode, tag_scheme
from onnxreg.converters.evaluation.label_names import match_labels
from onnxreg.converters.evaluation.suite import Fixture, Suite, read_fixture
from onnxreg.converters.evaluation.tasks.task_evaluator import ModelInput, TaskEvaluator, numbers, plain
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class TokenWindow:
    """Some tokens of one text.

    `inputs` are int64 of shape (1, tokens); `offsets` (tokens, 2) are code points of the text; `positions` holds the
    positions whose prediction counts: no special token, and in an overlap only the half that is nearer the middle
    of its window. Over the windows of a text every token of the text is kept once, in order.
    """

    text: int
    inputs: dict[str, Integers]
    offsets: Integers
    positions: Integers


class TokenSpans(TaskEvaluator):
    """`{text, gold_spans: [{start, end, label}]}`. A prediction is int64 `[characters]`: an index into `labels`, or -1.

    A text longer than the version's inputs is cut into overlapping windows.
    """

    tasks = ("token-classification",)

    @cached_property
    def _scheme(self) -> TagScheme:
        return tag_scheme(self.subject.loaded.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        return self._scheme.names

    @classmethod
    def load_suite(cls, path: Path) -> Suite:
        """Equal texts are accepted, as OpenMed does: there a fixture is identified by its id; so is an empty suite."""
        return suite.load(path, cls.read_item)

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Fixture:
        return read_fixture(row, position)

    @classmethod
    def identity(cls, item: Fixture) -> Hashable:
        return plain(item.text)

    def match(
        self, items: Sequence[Fixture], request: EvaluationRequest
    ) -> tuple[Sequence[Fixture], Mapping[str, Any]]:
        return match_labels(items, self.labels, request)

    def inputs(self, items: Sequence[Fixture]) -> list[ModelInput]:
        length = self.subject.resolved_options["max_seq_length"]
        cut = windows(self.subject.loaded.text_reader, length, [item.text for item in items])
        return [ModelInput(window.text, window.inputs, window) for window in cut]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> tuple[Integers, Integers]:
        window: TokenWindow = model_input.context
        expected = (1, len(window.offsets), len(self.subject.loaded.labels))
        return tags_of(window, outputs, expected)

    def prediction(self, item: Fixture, parts: Sequence[tuple[Integers, Integers]]) -> Integers:
        tags, offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return decode(tags, offsets, len(item.text), self._scheme)


def tags_of(
    window: TokenWindow, outputs: Mapping[str, Any], shape: tuple[int, int, int]
) -> tuple[Integers, Integers]:
    """The best tags of the positions that count, and their offsets.

    Raises ConversionError for logits of another shape, and for NaN.
    """
    logits = outputs.get("logits")
    if logits is None:
        raise ConversionError("the model has no output called logits")
    if logits.shape != shape:
        raise ConversionError(
            f"the model gives logits of shape {logits.shape[1:]}, expected {shape[1:]}",
            "the number of labels in config.json must be the number of logits",
        )
    tags = np.asarray(numbers(logits[0, window.positions]).argmax(axis=-1), dtype=np.int64)
    return tags, window.offsets[window.positions]


def windows(tokenizer: Any, size: int, texts: Sequence[str]) -> list[TokenWindow]:
    """Cut every text into windows of at most `size` tokens, special ones included; together they cover each
    token.

    `tokenizer` is a fast one of Transformers; it is copied first, since encoding leaves truncation settings
    behind that a later save would publish. Raises InputError if special tokens leave no room for text.
    """
    if not texts:
        return []
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.truncation_side = "right"
    room = size - tokenizer.num_special_tokens_to_add()
    if room < 1:
        raise InputError(f"the model takes {size} tokens at once, which leaves no room for text")
    overlap = room // 4
    encoded = tokenizer(
        list(texts),
        truncation=True,
        max_length=size,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        return_special_tokens_mask=True,
        return_token_type_ids=True,
        return_attention_mask=True,
    )
    owners = encoded["overflow_to_sample_mapping"]
    follows = [False, *(left == right for left, right in pairwise(owners))]
    return [
        TokenWindow(
            text,
            {name: np.asarray([encoded[name][number]], dtype=np.int64) for name in INPUTS},
            np.asarray(encoded["offset_mapping"][number], dtype=np.int64).reshape(-1, 2),
            kept_tokens(encoded["special_tokens_mask"][number], overlap, before, after),
        )
        for number, (text, before, after) in enumerate(
            zip(owners, follows, [*follows[1:], False], strict=True)
        )
    ]


def kept_tokens(special: Sequence[int], overlap: int, before: bool, after: bool) -> Integers:
    """`before` and `after` say whether a window of the same text shares the first or last `overlap` tokens."""
    content = np.flatnonzero(np.asarray(special) == 0)
    first = overlap // 2 if before else 0
    last = len(content) - (overlap - overlap // 2 if after else 0)
    return content[first:last]
