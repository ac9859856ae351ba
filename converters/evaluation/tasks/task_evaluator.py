"""The contract of a task's evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.errors import ConversionError, InputError

Run = Callable[[Feed], Mapping[str, Any]]
"""Function from numpy arrays by input name to arrays by output name. Called from several threads at once."""


@dataclass(frozen=True)
class ModelInput:
    """One run of a model: the number of the item that it belongs to, the arrays, and what reading its outputs needs."""

    item: int
    feed: Feed
    context: Any = None


def numbers(values: Any) -> Any:
    """The values of an output. Raises ConversionError for NaN, which would be read as some class."""
    if np.isnan(values).any():
        raise ConversionError("the model gives NaN for an item of the evaluation suite")
    return values


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
