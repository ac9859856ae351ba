"""The contract of an evaluator, which turns items of a suite into inputs, and outputs into predictions."""

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.evaluation.tokens import TextTokenizer
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.inputs.recipe_file import EvaluationRequest


class Reading(NamedTuple):
    """The inputs of the runs for an item, and a function that turns their outputs into the item's prediction."""

    feeds: Sequence[Feed]
    predict: Callable[..., Any]


class TaskEvaluator(ABC):
    """The evaluator of some `tasks`. `Item` is the class of an item. If `shares_runs`, items may be rows of one run."""

    tasks: ClassVar[tuple[str, ...]]
    Item: ClassVar[type[msgspec.Struct]]
    form: ClassVar[str]
    texts: ClassVar[tuple[str, ...]] = ("text",)
    shares_runs: ClassVar[bool] = True
    distinct: ClassVar[tuple[str | None, str | None]] = ("the same item", None)
    """The names of a repeated item, and of a repeated model input, in errors. None allows the repeat."""
    has_files: ClassVar[bool] = False
    """True if items name files. Then the digest of a suite covers the files."""

    def __init__(self, subject: ExportSubject) -> None:
        self.subject = subject

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(getattr(self.subject.loaded, "labels", ()))

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        fast = self.subject.loaded.tokenizer
        length = int(self.subject.resolved_options["max_seq_length"])
        return TextTokenizer(fast.backend_tokenizer, length, fast.truncation_side)

    @classmethod
    def rows(cls, data: bytes, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the position of each item, for messages, and the item's fields."""
        return suite.json_rows(data, path)

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str, directory: Path) -> Any:
        """Read an item of the suite in `directory`. Raise InputError about `position` if it is malformed."""
        return convert(row, cls.Item, position)

    def check(self, suite: Suite) -> None:  # noqa: B027
        """Raise InputError if an item does not fit the model, for example because of its label."""

    def match(
        self, items: Sequence[Any], request: EvaluationRequest
    ) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Replace the labels of items by the model's labels. Return the items, and a record of the replacements."""
        return items, {}

    @classmethod
    def identity(cls, item: Any) -> Hashable:
        """Return a value that is equal for items with the same model input, even if their right answers differ."""
        return tuple(plain(getattr(item, name) or "") for name in cls.texts)

    @abstractmethod
    def reading(self, item: Any) -> Reading:
        """Return the feeds with which the graph is run for an item. Raise InputError if the item cannot be run."""


def plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())
