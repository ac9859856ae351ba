"""Rows of arrays: images, or what any graph takes; for a graph with a tokenizer also texts."""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from onnxreg.converters.evaluation.suite import Suite, Word, check_unique, load, numbered, read_bytes
from onnxreg.converters.evaluation.text_tasks import ModelInput, TaskEvaluator, numbers, plain
from onnxreg.converters.evaluation.tokens import TextTokenizer, load_tokenizer
from onnxreg.converters.onnx.onnx_graph import graph_inputs, load_onnx
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.tasks.onnx_file import text_files_of
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError

TOKENS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
"""The inputs that a tokenizer makes."""
MAX_TOKENS = 2**20
"""A longer `model_max_length` means none."""
FIRST_POSITION = 2
"""Of a token in RoBERTa and its kind, after the padding's."""
LABELS = "labels"
GROUPS = "groups"
"""Name of the optional array with the number of the group of each row."""


class LabelledRow(msgspec.Struct, frozen=True, eq=False):
    """One row of every input, arrays of batch 1, and the class of the output that is right, if it is known.

    In place of the arrays an item may have a text, or a pair.
    """

    feed: Feed
    label: int | None = None
    output: str | None = None
    texts: tuple[str, ...] = ()


class _TextRow(msgspec.Struct, frozen=True):
    text: Word
    text_pair: Word | None = None


class LabelledRows(TaskEvaluator):
    """A `.npz` file: an array for each input, and perhaps `labels` (classes of the first output) or `labels_<output>`.

    For a graph with a tokenizer also `{text}` or `{text, text_pair}`. With labels a prediction is (the rank of the right class, from 0; the number of classes). Of
    equal values the one that comes last ranks first, as in scikit-learn. Without labels it is float64 `[outputs,
    values]`: each output of floats as one vector, with zeros at its end.
    """

    tasks = ("image-classification", "onnx")
    Item = LabelledRow
    shares_runs = False

    @classmethod
    def load_suite(cls, path: Path) -> Suite:
        data = read_bytes(path)
        if path.suffix in (".json", ".jsonl"):
            suite = load(path, cls.read_item)
            if not suite.items:
                raise InputError(f"evaluation suite {path} has no items", "give rows, or texts")
            _check_repeated(suite.items, path, "item")
            return suite
        if path.suffix != ".npz":
            raise InputError(
                f"evaluation suite {path} is not an .npz, .json or .jsonl file",
                "a suite of this task holds arrays, or texts for a graph with a tokenizer",
            )
        rows = [dict(row) for row in samples.read(path)]
        groups = numbered([_integer(row.pop(GROUPS, None), GROUPS, path) for row in rows], path)
        keys = [key for key in rows[0] if key == LABELS or key.startswith(f"{LABELS}_")]
        if len(keys) > 1:
            raise InputError(
                f"evaluation suite {path} has {' and '.join(keys)}, expected the classes of one output",
                f"np.savez(FILE, INPUT=..., {LABELS}=...)",
            )
        items = []
        for row in rows:
            label = _integer(row.pop(keys[0]), LABELS, path) if keys else None
            if label is not None and label < 0:
                raise InputError(
                    f"evaluation suite {path}: {LABELS} must be one class, 0 or more, for each row"
                )
            name = keys[0].removeprefix(LABELS).removeprefix("_") if keys else ""
            items.append(LabelledRow(row, label, name or None))
        _check_repeated(items, path, "row")
        return Suite(Digest.of(data), tuple(items), groups)

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Any:
        item = convert(row, _TextRow, position)
        return LabelledRow({}, texts=tuple(text for text in (item.text, item.text_pair) if text is not None))

    @classmethod
    def identity(cls, item: LabelledRow) -> Hashable:
        return frozenset(map(plain, item.texts)) if item.texts else content(item.feed)

    def check(self, items: Sequence[LabelledRow]) -> None:
        expected = set(self.subject.sample.feeds[0])
        if items and items[0].texts:
            self._check_texts(expected)
        elif items and set(items[0].feed) != expected:
            raise InputError(
                f"the evaluation suite holds {', '.join(sorted(items[0].feed))}, the model takes {', '.join(sorted(expected))}"
            )
        if items and items[0].label is None:
            self._check_outputs()

    def inputs(self, items: Sequence[LabelledRow]) -> list[ModelInput]:
        first = next(iter(self.subject.sample.expected[0]))
        feeds = self._tokens(items) if items and items[0].texts else [item.feed for item in items]
        return [
            ModelInput(number, feed, (item.output or first, item.label))
            for number, (item, feed) in enumerate(zip(items, feeds, strict=True))
        ]

    def _check_outputs(self) -> None:
        """Raise InputError for an output of one number for each row: the cosine of two numbers says only if their signs agree.

        The members of a family have classes, and no outputs on a sample.
        """
        runs = self.subject.sample.expected
        for name, array in runs[0].items():
            if (
                array is not None
                and array.dtype.kind == "f"
                and all(math.prod(run[name].shape[1:]) == 1 for run in runs)
            ):
                raise InputError(
                    f"the output {name} is one number for each row, which a cosine cannot judge",
                    f"give a suite with the class of each row ({LABELS}), or leave the suite out: the file stays unjudged",
                )

    def _check_texts(self, expected: Collection[str]) -> None:
        if unknown := sorted(set(expected) - TOKENS):
            raise InputError(
                f"the evaluation suite holds texts, and the model takes {', '.join(unknown)}",
                "give rows of arrays: an .npz file",
            )
        if not text_files_of(self.subject.start):
            raise InputError(
                "the evaluation suite holds texts, and no tokenizer.json is beside the model",
                "put it there, or give rows of arrays: an .npz file",
            )

    def _tokens(self, items: Sequence[LabelledRow]) -> list[Feed]:
        """The tokens of each text, cut as tokenizer.json says, else to the length that its config gives, and to a fixed one."""
        files = {file.name: file for file in text_files_of(self.subject.start)}
        tokenizer = load_tokenizer(files["tokenizer.json"])
        cut = tokenizer.truncation or {"max_length": _max_length(files), "direction": "right"}
        inputs = graph_inputs(load_onnx(self.subject.start).graph)
        fixed = [dim.dim_value for item in inputs for dim in item.type.tensor_type.shape.dim[1:2]]
        length = min((length for length in (cut["max_length"], *fixed) if length), default=MAX_TOKENS)
        reader = TextTokenizer(tokenizer, length, cut["direction"])
        types = {name: array.dtype for name, array in self.subject.sample.feeds[0].items()}
        rows = (reader.row(*item.texts).inputs for item in items)
        return [{name: row[name].astype(dtype) for name, dtype in types.items()} for row in rows]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> Any:
        name, label = model_input.context
        if label is None:
            return _vectors(outputs)
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

    def prediction(self, item: LabelledRow, parts: Sequence[Any]) -> Any:
        return parts[0]


def _vectors(outputs: Mapping[str, Any]) -> Any:
    """Each output of floats as one row, with zeros at its end. ConversionError without one, or for NaN."""
    rows = [numbers(array).ravel() for array in outputs.values() if array.dtype.kind == "f" and array.size]
    if not rows:
        raise ConversionError("the model has no output of numbers to compare", "give a suite with labels")
    vectors = np.zeros((len(rows), max(map(len, rows))))
    for vector, row in zip(vectors, rows, strict=True):
        vector[: len(row)] = row
    return vectors


def _max_length(files: Mapping[str, Path]) -> int | None:
    """The most tokens of a row that the files beside a tokenizer name.

    Positions of RoBERTa's kind, whose padding is token 1, begin after it: a table of 514 has room for 512 tokens.
    """
    values: dict[str, Any] = {}
    for name in ("tokenizer_config.json", "config.json"):
        config = read_json(files[name]) if name in files else {}
        values |= config if isinstance(config, dict) else {}
    taken = FIRST_POSITION if values.get("pad_token_id") == FIRST_POSITION - 1 else 0
    keys = {"model_max_length": 0, "max_sequence_length": 0, "max_position_embeddings": taken}
    lengths = [value - less for key, less in keys.items() if isinstance(value := values.get(key), int)]
    return min((length for length in lengths if 0 < length < MAX_TOKENS), default=None)


def content(feed: Feed) -> Digest:
    """The digest of a row's values, whatever number of bits they are stored in."""
    wide = {"f": "float64", "i": "int64", "u": "int64", "b": "int64"}
    return samples.digest(
        [{name: array.astype(wide.get(array.dtype.kind, array.dtype)) for name, array in feed.items()}]
    )


def _integer(value: Any, name: str, path: Path) -> int | None:
    """The number of a row in an array of integers, None without. InputError if it is not one integer."""
    if value is not None and (value.ndim != 1 or value.dtype.kind not in "iu"):
        raise InputError(f"evaluation suite {path}: {name} must be one integer for each row")
    return None if value is None else int(value[0])


def _check_repeated(items: Sequence[LabelledRow], path: Path, kind: str) -> None:
    contents = {
        f"evaluation suite {path}, {kind} {number}": item.texts or content(item.feed)
        for number, item in enumerate(items, start=1)
    }
    check_unique(contents, f"the same {kind}")
