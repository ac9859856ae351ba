"""Token classification: the label of every character of a text."""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.decode import Integers, TagScheme, decode, tag_scheme
from onnxreg.converters.evaluation.fixture import Fixture, read_fixture
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.evaluation.tasks.task_evaluator import ModelInput, TaskEvaluator, numbers
from onnxreg.converters.evaluation.tasks.text_rows import plain
from onnxreg.converters.evaluation.windows import TokenWindow, windows
from onnxreg.schema.core.errors import ConversionError


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

    def inputs(self, items: Sequence[Fixture]) -> list[ModelInput]:
        length = self.subject.resolved_options["max_seq_length"]
        cut = windows(self.subject.loaded.tokenizer, length, [item.text for item in items])
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
