"""Token classification: the label of every character of a text, read from overlapping windows of its tokens."""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.decode import TagScheme, decode, tag_scheme
from onnxreg.converters.evaluation.label_names import match_labels
from onnxreg.converters.evaluation.scores import Integers
from onnxreg.converters.evaluation.suite import Fixture, Suite, read_fixture
from onnxreg.converters.evaluation.tasks.task_evaluator import (
    ModelInput,
    TaskEvaluator,
    numbers,
    output,
    plain,
)
from onnxreg.converters.evaluation.tokens import TokenRow
from onnxreg.schema.inputs.recipe_file import EvaluationRequest


class TokenSpans(TaskEvaluator):
    """`{text, gold_spans: [{start, end, label}]}`. A prediction is int64 `[characters]`: an index into `labels`, or -1.

    A text longer than the version's inputs is cut into overlapping windows.
    """

    tasks = ("token-classification",)
    Item = Fixture

    @cached_property
    def _scheme(self) -> TagScheme:
        return tag_scheme(self.subject.loaded.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        return self._scheme.names

    @classmethod
    def load_suite(cls, path: Path) -> Suite:
        """Equal texts are accepted, as OpenMed does: there a fixture is identified by its id; so is an empty suite."""
        return suite.load(path, read_fixture)

    @classmethod
    def identity(cls, item: Fixture) -> Hashable:
        return plain(item.text)

    def match(
        self, items: Sequence[Fixture], request: EvaluationRequest
    ) -> tuple[Sequence[Fixture], Mapping[str, Any]]:
        return match_labels(items, self.labels, request)

    def inputs(self, items: Sequence[Fixture]) -> list[ModelInput]:
        tokenizer = self.tokenizer
        return [
            ModelInput(number, window.inputs, window)
            for number, item in enumerate(items)
            for window in tokenizer.windows(item.text)
        ]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> tuple[Integers, Integers]:
        return tags_of(model_input.context, outputs, len(self.subject.loaded.labels))

    def prediction(self, item: Fixture, parts: Sequence[tuple[Integers, Integers]]) -> Integers:
        tags, offsets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return decode(tags, offsets, len(item.text), self._scheme)


def tags_of(window: TokenRow, outputs: Mapping[str, Any], labels: int) -> tuple[Integers, Integers]:
    """The best tags of the positions that count, and their offsets.

    Raises ConversionError for logits of another shape than `[1, tokens, labels]`, and for NaN.
    """
    logits = output(outputs, "logits", (len(window.offsets), labels))
    tags = np.asarray(numbers(logits[window.positions]).argmax(axis=-1), dtype=np.int64)
    return tags, window.offsets[window.positions]
