"""The contract of a task's evaluation."""

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.evaluation.tokens import TextTokenizer
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest

Run = Callable[[Feed], Mapping[str, Any]]
"""Function from numpy arrays by input name to arrays by output name. Called from several threads at once."""


@dataclass(frozen=True)
class ModelInput:
    """One run of a model: the number of the item that it belongs to, the arrays, and what reading its outputs needs."""

    item: int
    feed: Feed
    context: Any = None


class TaskEvaluator(ABC):
    """One task. `tasks` are the ids of the export tasks that it is for, `Item` is the class of an item, a frozen value.

    `shares_runs`: rows of one run do not depend on each other, unless the graph quantizes activations while it runs.
    """

    tasks: ClassVar[tuple[str, ...]]
    Item: ClassVar[type[msgspec.Struct]]
    shares_runs: ClassVar[bool] = True

    def __init__(self, subject: ExportSubject) -> None:
        """Args:
        subject: the loaded source.
        """
        self.subject = subject

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that predictions and metrics count; none for a task without."""
        return ()

    @property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer of the checkpoint, which cuts texts to the length of the version."""
        fast = self.subject.loaded.text_reader
        length = int(self.subject.resolved_options["max_seq_length"])
        return TextTokenizer(fast.backend_tokenizer, length, fast.truncation_side)

    @classmethod
    def load_suite(cls, path: Path) -> Suite:
        """Read a suite of this task.

        Raises InputError for one without items, and, naming the item by its position, for a malformed one.
        """
        read = suite.load(path, cls.read_item, distinct=True)
        if not read.items:
            raise InputError(
                f"evaluation suite {path} has no items", "docs/certification.md shows those of each task"
            )
        return read

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Any:
        """Read an item. Raises InputError, beginning with `position`, if it is malformed."""
        return convert(row, cls.Item, position)

    def check(self, items: Sequence[Any]) -> None:  # noqa: B027
        """Raise InputError if items do not fit the model, such as a label that it does not have."""

    def match(
        self, items: Sequence[Any], request: EvaluationRequest
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the items in the words of the model, and facts about this for the certificate, in JSON form."""
        return items, {}

    @classmethod
    @abstractmethod
    def identity(cls, item: Any) -> Hashable:
        """Return a value that is equal if a model gets the same to read, whatever the right answer is.

        The order of texts without an order, and spaces, make no difference.
        """

    @abstractmethod
    def inputs(self, items: Sequence[Any]) -> Sequence[ModelInput]:
        """The runs that the predictions need, those of an item in order."""

    @abstractmethod
    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> Any:
        """Reduce the outputs of one run to the numbers that a prediction needs.

        Raises ConversionError if an output is missing, or its shape is not that of the task.
        """

    def prediction(self, item: Any, parts: Sequence[Any]) -> Any:
        """Make the prediction for an item from all its runs; by default it has one, which is the prediction."""
        (part,) = parts
        return part


def numbers(values: Any) -> Any:
    """The values of an output. Raises ConversionError for NaN, which would be read as some class."""
    if np.isnan(values).any():
        raise ConversionError("the model gives NaN for an item of the evaluation suite")
    return values


def output(outputs: Mapping[str, Any], name: str, shape: tuple[int, ...] | None = None) -> Any:
    """An output of a run of one row, without its first axis.

    Raises ConversionError if it is missing or has NaN, or, for logits of labels, another shape.
    """
    if name not in outputs or outputs[name].shape[:1] != (1,):
        raise ConversionError(f"the model has no output called {name} with one row for each row of its input")
    row = outputs[name][0]
    if shape is not None and row.shape != shape:
        raise ConversionError(
            f"the model gives {name} of shape {row.shape}, expected {shape}",
            "the number of labels in config.json must be the number of logits",
        )
    return row if shape is not None else numbers(row)


def plain(text: str) -> str:
    """A text in Unicode's composed form, with single spaces: two that differ in these alone are one content."""
    return " ".join(unicodedata.normalize("NFC", text).split())
