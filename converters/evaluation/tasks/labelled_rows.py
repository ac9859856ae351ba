"""Classes of rows of arrays: images, or what any graph takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.suite import Suite, numbered, read_bytes
from onnxreg.converters.evaluation.tasks.task_evaluator import ModelInput, TaskEvaluator, numbers
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.tasks.task import LABELS
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError

GROUPS = "groups"
"""Name of the optional array with the number of the group of each row."""


@dataclass(frozen=True, eq=False)
class LabelledRow:
    """One row of every input, arrays of batch 1, and the class of the output that is right."""

    feed: Feed
    label: int
    output: str | None


class LabelledRows(TaskEvaluator):
    """A `.npz` file: an array for each input, `labels` (classes of the first output) or `labels_<output>`.

    A prediction is (the rank of the right class, from 0; the number of classes). Of equal values the one that comes last
    ranks first, as in scikit-learn.
    """

    tasks = ("image-classification", "onnx")
    shares_runs = False

    @classmethod
    def load_suite(cls, path: Path) -> Suite:
        data = read_bytes(path)
        if path.suffix != ".npz":
            raise InputError(
                f"evaluation suite {path} is not an .npz file", "a suite of this task holds arrays"
            )
        rows = [dict(row) for row in samples.read(path)]
        groups = numbered([_group(row.pop(GROUPS, None), path) for row in rows], path)
        keys = [key for key in rows[0] if key == LABELS or key.startswith(f"{LABELS}_")]
        if len(keys) != 1:
            raise InputError(
                f"evaluation suite {path} has {' and '.join(keys) or 'no labels'}, expected the classes of one output",
                f"np.savez(FILE, INPUT=..., {LABELS}=...)",
            )
        output = keys[0].removeprefix(LABELS).removeprefix("_") or None
        items = [LabelledRow(row, _label(row.pop(keys[0]), path), output) for row in rows]
        _check_repeated(items, path)
        return Suite(Digest.of(data), tuple(items), groups)

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Any:
        raise NotImplementedError("a suite of arrays is read at once")

    @classmethod
    def identity(cls, item: LabelledRow) -> Digest:
        return content(item.feed)

    def check(self, items: Sequence[LabelledRow]) -> None:
        expected = set(self.subject.sample.feeds[0])
        if items and set(items[0].feed) != expected:
            raise InputError(
                f"the evaluation suite holds {', '.join(sorted(items[0].feed))}, the model takes {', '.join(sorted(expected))}"
            )

    def inputs(self, items: Sequence[LabelledRow]) -> list[ModelInput]:
        first = next(iter(self.subject.sample.expected[0]))
        return [
            ModelInput(number, item.feed, (item.output or first, item.label))
            for number, item in enumerate(items)
        ]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> tuple[int, int]:
        name, label = model_input.context
        values = outputs.get(name)
        if values is None or values.ndim != 2 or len(values) != 1:
            raise ConversionError(f"the model has no output called {name} with one vector for each row")
        if label >= values.shape[1]:
            raise InputError(
                f"the evaluation suite has the class {label}, the output {name} has {values.shape[1]} classes"
            )
        row = numbers(values[0])
        own = row[label]
        rank = np.count_nonzero(row > own) + np.count_nonzero(row[label + 1 :] == own)
        return int(rank), values.shape[1]

    def prediction(self, item: LabelledRow, parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
        return parts[0]


def content(feed: Feed) -> Digest:
    """The digest of a row's values, whatever number of bits they are stored in."""
    wide = {"f": "float64", "i": "int64", "u": "int64", "b": "int64"}
    return samples.digest(
        [{name: array.astype(wide.get(array.dtype.kind, array.dtype)) for name, array in feed.items()}]
    )


def _group(value: Any, path: Path) -> int | None:
    """The group of a row, None without. InputError if it is not one integer."""
    if value is not None and (value.ndim != 1 or value.dtype.kind not in "iu"):
        raise InputError(f"evaluation suite {path}: {GROUPS} must be one integer for each row")
    return None if value is None else int(value[0])


def _label(value: Any, path: Path) -> int:
    if value.ndim != 1 or value.dtype.kind not in "iu" or value[0] < 0:
        raise InputError(f"evaluation suite {path}: {LABELS} must be one class, 0 or more, for each row")
    return int(value[0])


def _check_repeated(items: Sequence[LabelledRow], path: Path) -> None:
    numbers: dict[Digest, int] = {}
    for number, item in enumerate(items, start=1):
        first = numbers.setdefault(content(item.feed), number)
        if first != number:
            raise InputError(
                f"evaluation suite {path}, row {number}: the same row was used before, at row {first}",
                "leave one out: an item that counts twice makes an interval too narrow",
            )
