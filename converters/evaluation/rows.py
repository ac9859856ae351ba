"""The evaluators of rows in a `.npz` file, whose arrays are the inputs of a graph."""

import math
from collections.abc import Hashable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from onnxreg.converters.evaluation.decoding import numbers, objects, output
from onnxreg.converters.evaluation.evaluator import Reading, TaskEvaluator
from onnxreg.converters.evaluation.suite import Suite
from onnxreg.converters.passes import samples
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.tasks.generation import TOKENS, VISION
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError, InputError

MOST_OBJECTS = 100  # the maximum number of objects of an image that are scored, as in COCO
LABELS, GROUPS = "labels", "groups"  # the optional arrays with the class and the group number of each row


class LabelledRow(msgspec.Struct, frozen=True, eq=False):
    """A row of a suite: an array of batch 1 for each input, and the right answer for the first output, or None."""

    feed: Feed
    label: Any = None


class LabelledRows(TaskEvaluator):
    """The evaluator of rows in a `.npz` file: an array for each input, and perhaps the right classes in `labels`.

    With labels, a prediction is the rank of the right class (from 0) and the number of classes. If classes have equal
    values, the last of them ranks first, as in scikit-learn. Without labels, a prediction has a vector for each
    floating-point output: float64 `[outputs, values]`, padded with zeros.
    """

    tasks: ClassVar[tuple[str, ...]] = (
        *("image-classification", "video-classification", "onnx", "image-feature-extraction", "fill-mask"),
        *("audio-feature-extraction", "depth-estimation", "zero-shot-image-classification"),
        *("zero-shot-audio-classification", "zero-shot-object-detection", "document-question-answering"),
        *("mask-generation", "text-to-audio", "table-question-answering", "keypoint-matching"),
    )
    Item = LabelledRow
    form = "a row of the arrays in an .npz file, one array for each input"
    shares_runs = False
    distinct = (None, "the same row")

    @classmethod
    def rows(cls, data: bytes, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        if path.suffix != ".npz":
            raise InputError(f"evaluation suite {path} is not an .npz file")
        for number, arrays in enumerate(samples.read(path), start=1):
            feed = dict(arrays)
            group = _integer(feed.pop(GROUPS, None), GROUPS, path)
            row = {"group": group, "label": cls.read_label(feed.pop(LABELS, None), path), "feed": feed}
            yield f"evaluation suite {path}, row {number}", row

    @classmethod
    def read_label(cls, value: Any, path: Path) -> Any:
        """Return the right answer of a row, or None. Raise InputError about the file for a malformed answer."""
        label = _integer(value, LABELS, path)
        if label is not None and label < 0:
            raise InputError(f"evaluation suite {path}: {LABELS} must be one class, 0 or more, for each row")
        return label

    @property
    def inputs(self) -> set[str]:
        """The names of the inputs that a suite must give: all inputs of the graphs that no graph computes."""
        parts = self.subject.parts.values()
        internal = {name for part in parts for run in part.expected[:1] for name in run}
        return {name for part in parts for name in part.feeds[0]} - internal

    @classmethod
    def identity(cls, item: LabelledRow) -> Hashable:
        return content(item.feed)

    def check(self, suite: Suite) -> None:
        items, parts, expected = suite.items, self.subject.parts.values(), self.inputs
        if items and set(items[0].feed) != expected:
            arrays, names = ", ".join(sorted(items[0].feed)), ", ".join(sorted(expected))
            hint = "give each array of the .npz file the name of its input"
            raise InputError(f"the evaluation suite holds {arrays}, the model takes {names}", hint)
        if not items or items[0].label is not None:
            return
        # the members of a family have classes, and no outputs on a sample
        for runs in (part.expected for part in parts):
            for name, array in runs[0].items():
                # the cosine of two numbers says only if their signs agree
                is_single = all(run[name] is not None and math.prod(run[name].shape[1:]) == 1 for run in runs)
                if is_single and array.dtype.kind == "f":
                    raise InputError(
                        f"the output {name} is one number for each row, which a cosine cannot judge",
                        f"give a suite with the class of each row ({LABELS}), or leave the suite out: the file stays unjudged",
                    )

    def reading(self, item: LabelledRow) -> Reading:
        if item.label is None:
            return Reading([item.feed], _vectors)
        name = next(iter(self.subject.part.expected[0]))
        return Reading([item.feed], partial(self.compare, name, item.label))

    def compare(self, name: str, label: Any, outputs: Mapping[str, Any]) -> Any:
        """Compare the output `name` with the right answer `label` of a row. Return the prediction."""
        row = output(outputs, name)
        if row.ndim != 1:
            raise ConversionError(f"the output {name} is not one vector for each row")
        if label >= len(row):
            message = f"the evaluation suite has the class {label}, the output {name} has {len(row)} classes"
            raise InputError(message, "classes are counted from 0")
        rank = np.count_nonzero(row > row[label]) + np.count_nonzero(row[label + 1 :] == row[label])
        return int(rank), len(row)


class LabelledPixels(LabelledRows):
    """The evaluator of images with a class for each pixel (`labels`; 255 is not counted).

    For each label, a prediction counts the pixels in the intersection and in the union of the suite's map and the
    model's map: int64 `[labels, 2]`. The suite's map is scaled to the size of the model's.
    """

    tasks = ("image-segmentation",)

    @classmethod
    def read_label(cls, value: Any, path: Path) -> Any:
        if value is not None and (value.ndim != 3 or value.dtype.kind not in "iu"):
            raise InputError(f"evaluation suite {path}: {LABELS} must be a map of classes for each row")
        return None if value is None else value[0]

    def compare(self, name: str, label: Any, outputs: Mapping[str, Any]) -> Any:
        logits, count = output(outputs, name), len(self.labels)
        if logits.ndim != 3 or len(logits) != count:
            raise ConversionError(f"the model gives {name} of shape {logits.shape}, not a map for each label")
        down, along = (
            np.arange(size) * given // size for size, given in zip(logits.shape[1:], label.shape, strict=True)
        )
        gold, predicted = label[down][:, along].astype(np.int64), logits.argmax(0)
        is_counted = (gold >= 0) & (gold < count)
        hits, *sides = (
            np.bincount(pixels, minlength=count)
            for pixels in (gold[is_counted & (gold == predicted)], gold[is_counted], predicted[is_counted])
        )
        return np.stack([hits, sum(sides) - hits], axis=1)


class ImagePrompts(LabelledRows):
    """The evaluator of images with the tokens of a prompt. A prediction has the logits of the next token."""

    tasks = ("image-text-to-text",)

    @property
    def inputs(self) -> set[str]:
        return {TOKENS, *self.subject.parts[VISION].feeds[0]}


class LabelledBoxes(LabelledRows):
    """The evaluator of images in a `.npz` file. Its array `labels`, if any, has the right boxes of each image.

    `labels` is `[rows, boxes, 5]`: the class (-1: no box), and left, top, right and bottom as shares of the image. With
    labels, a prediction has a row for each of the `MOST_OBJECTS` best objects: class, score, left, top, right, bottom.
    """

    tasks = ("object-detection",)

    @classmethod
    def read_label(cls, value: Any, path: Path) -> Any:
        if value is not None and (value.shape[2:] != (5,) or value.dtype.kind not in "fiu"):
            raise InputError(f"evaluation suite {path}: {LABELS} must be five numbers for each box of a row")
        return None if value is None else value[0][value[0, :, 0] >= 0].astype(np.float64)

    def compare(self, name: str, label: Any, outputs: Mapping[str, Any]) -> Any:
        if label[:, 0].max(initial=0) >= len(self.labels):
            raise InputError(f"the evaluation suite has a class above those of the model: {len(self.labels)}")
        scores, classes, boxes = objects(output(outputs, name), output(outputs, "pred_boxes"), self.labels)
        best = np.argsort(-scores, kind="stable")[:MOST_OBJECTS]
        return np.column_stack([classes, scores, boxes])[best]


def _vectors(outputs: Mapping[str, Any]) -> Any:
    rows = [numbers(array).ravel() for array in outputs.values() if array.dtype.kind == "f" and array.size]
    if not rows:
        raise ConversionError("the model has no output of numbers to compare", "give a suite with labels")
    vectors = np.zeros((len(rows), max(map(len, rows))))
    for vector, row in zip(vectors, rows, strict=True):
        vector[: len(row)] = row
    return vectors


def content(feed: Feed) -> Digest:
    """Return the digest of a row's values. It does not depend on the width of float and integer types."""
    wide = {"f": "float64", "i": "int64", "u": "int64", "b": "int64"}
    return samples.digest(
        [{name: array.astype(wide.get(array.dtype.kind, array.dtype)) for name, array in feed.items()}]
    )


def _integer(value: Any, name: str, path: Path) -> int | None:
    if value is not None and (value.ndim != 1 or value.dtype.kind not in "iu"):
        raise InputError(f"evaluation suite {path}: {name} must be one integer for each row")
    return None if value is None else int(value[0])
