"""The contract of a task's evaluation, and of those whose items are texts, cut to the length of the version."""

import copy
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.tasks.task import ExportSubject
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
    """One task. `tasks` are the ids of the export tasks that it is for.

    `shares_runs`: rows of one run do not depend on each other, unless the graph quantizes activations while it runs.
    """

    tasks: ClassVar[tuple[str, ...]]
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
    @abstractmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Any:
        """Read an item, a frozen value. Raises InputError, beginning with `position`, if it is malformed."""

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

    @abstractmethod
    def prediction(self, item: Any, parts: Sequence[Any]) -> Any:
        """Make the prediction for an item from all its runs."""


class TextEvaluator(TaskEvaluator):
    """An evaluator of a checkpoint with a tokenizer. A text or pair longer than the model takes is cut at its end."""

    def feeds(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> Iterator[Feed]:
        """Yield one row of tokens for each text (or pair), int64 `[1, tokens]`."""
        if not texts:
            return
        tokenizer = copy.deepcopy(self.subject.loaded.text_reader)
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


def numbers(values: Any) -> Any:
    """The values of an output. Raises ConversionError for NaN, which would be read as some class."""
    if np.isnan(values).any():
        raise ConversionError("the model gives NaN for an item of the evaluation suite")
    return values


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


def output(outputs: Mapping[str, Any], name: str) -> Any:
    """An output of a run of one row, without its first axis. ConversionError if it is missing or has NaN."""
    if name not in outputs or outputs[name].shape[:1] != (1,):
        raise ConversionError(f"the model has no output called {name} with one row for each row of its input")
    return numbers(outputs[name][0])
