"""The evaluators of all tasks. Items are texts, rows of arrays, sounds, images, or texts to generate."""

import math
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np

from onnxreg.converters.evaluation import suite
from onnxreg.converters.evaluation.metric import Floats, Integers
from onnxreg.converters.evaluation.suite import Fixture, Suite, Word, match_labels, read_fixture
from onnxreg.converters.evaluation.tokens import TextTokenizer, TokenRow, decode, tag_scheme
from onnxreg.converters.passes import samples
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.source.source_files import CONFIG, digest_file, read_json
from onnxreg.converters.tasks.checkpoint import TOKENIZER_FILE, load_tokenizer
from onnxreg.converters.tasks.generation import ENCODER, TOKENS, VISION
from onnxreg.converters.tasks.processed import read_image, read_sound
from onnxreg.converters.tasks.task import ExportSubject
from onnxreg.schema.core.canonical import Digest, convert
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest
from onnxreg.schema.manifest.manifest import AudioPreprocessing, Preprocessing

Run = Callable[[Feed], Mapping[str, Any]]
"""A function that runs a model on arrays by name. Several threads may call it at once."""


class Reading(NamedTuple):
    """The inputs of the runs for an item, and a function that turns their outputs into the item's prediction."""

    feeds: Sequence[Feed]
    predict: Callable[..., Any]


class TaskEvaluator(ABC):
    """The evaluator of a kind of task. `tasks` are ids of export tasks, `Item` is the class of an item.

    `shares_runs` is True if several items may be rows of the same run.
    """

    tasks: ClassVar[tuple[str, ...]]
    Item: ClassVar[type[msgspec.Struct]]
    form: ClassVar[str]
    texts: ClassVar[tuple[str, ...]] = ("text",)
    shares_runs: ClassVar[bool] = True
    distinct: ClassVar[tuple[str | None, str | None]] = ("the same item", None)
    """The words of errors for a repeated item and a repeated model input. The value None allows such repeats."""
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


def numbers(values: Any) -> Any:
    """Return the values of an output. Raise ConversionError for NaN."""
    if np.isnan(values).any():
        raise ConversionError("the model gives NaN for an item of the evaluation suite")
    return values


def output(outputs: Mapping[str, Any], name: str, shape: tuple[int, ...] | None = None) -> Any:
    """Return an output for a single row, without the first axis.

    Raises ConversionError if the output is missing or has another shape than `shape`. None allows every shape, but no
    NaN.
    """
    if name not in outputs or outputs[name].shape[:1] != (1,):
        raise ConversionError(f"the model has no output called {name} with one row for each row of its input")
    row = outputs[name][0]
    if shape is not None and row.shape != shape:
        message = f"the model gives {name} of shape {row.shape}, expected {shape}"
        raise ConversionError(message, "the number of labels in config.json must be the number of logits")
    return row if shape is not None else numbers(row)


def plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


class TokenSpans(TaskEvaluator):
    """The evaluator of texts with spans. A prediction is each character's label index, or -1: int64 `[characters]`."""

    tasks = ("token-classification",)
    Item = Fixture
    form = "{text, gold_spans: [{start, end, label}]}"
    distinct = (None, None)

    @property
    def labels(self) -> tuple[str, ...]:
        return tag_scheme(self.subject.loaded.labels).names

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str, directory: Path) -> Fixture:
        return read_fixture(row, position)

    def match(
        self, items: Sequence[Fixture], request: EvaluationRequest
    ) -> tuple[Sequence[Fixture], Mapping[str, Any]]:
        matched, facts = match_labels(items, self.labels, request)
        spans = Counter(span.label for item in matched for span in item.spans)
        others = {label: spans[label] for label in sorted(spans.keys() - set(self.labels))}
        return matched, {"other_labels": others, **facts}

    def reading(self, item: Fixture) -> Reading:
        tags, windows = self.subject.loaded.labels, [*self.tokenizer.windows(item.text)]
        return Reading(
            [window.inputs for window in windows],
            lambda *outputs: labels_of(len(item.text), windows, outputs, tags),
        )


def labels_of(
    length: int, windows: Sequence[TokenRow], outputs: Sequence[Mapping[str, Any]], tags: Sequence[str]
) -> Integers:
    """Label the characters of a text from the outputs for its windows (`tokens.decode`).

    Raises ConversionError if the logits have NaN, or another shape than `[1, tokens, tags]`.
    """
    best, offsets = [], []
    for window, own in zip(windows, outputs, strict=True):
        logits = output(own, "logits", (len(window.offsets), len(tags)))
        best.append(numbers(logits[window.positions]).argmax(axis=-1))
        offsets.append(window.offsets[window.positions])
    return decode(np.concatenate(best), np.concatenate(offsets), length, tag_scheme(tags))


MAX_ANSWER_TOKENS = 30  # the maximum number of tokens of an answer, as in the example scripts of Transformers
MAX_TOKENS = 2048
OF_TEXTS = ("embeddings", "sentence_embedding", "text_embeds")
OF_TOKENS = ("last_hidden_state", "token_embeddings")
"""The outputs with vectors of tokens. `OF_TEXTS` are outputs with vectors of texts."""


class LabelledText(msgspec.Struct, frozen=True):
    text: Word
    label: Word
    text_pair: Word | None = None


class TextClasses(TaskEvaluator):
    """The evaluator of texts with classes. A prediction is the number of the class with the largest logit."""

    tasks = ("text-classification",)
    Item: ClassVar[type[msgspec.Struct]] = LabelledText
    form = "{text, text_pair?, label}"
    texts = ("text", "text_pair")

    def check(self, suite: Suite) -> None:
        for position, item in zip(suite.positions, suite.items, strict=True):
            if item.label not in self.labels:
                message = f"{position} has a label that the model does not have: {item.label[:80]!r}"
                raise InputError(message, f"its labels are {', '.join(self.labels[:20])}")
        if len({getattr(item, "text_pair", None) is None for item in suite.items}) > 1:
            raise InputError("some items of the evaluation suite have a `text_pair`, and others have none")

    def reading(self, item: LabelledText) -> Reading:
        return Reading([self.tokenizer.row(item.text, item.text_pair).inputs], self.best)

    def best(self, outputs: Mapping[str, Any]) -> int:
        return int(numbers(output(outputs, "logits", (len(self.labels),))).argmax())


class Question(msgspec.Struct, frozen=True):
    """A question about a context. `answers` has all right answers; it is empty if the context has no answer."""

    question: Word
    context: Word
    answers: tuple[Word, ...]


class Answers(TaskEvaluator):
    """The evaluator of questions. A prediction is a part of the context; "" means no answer."""

    tasks = ("question-answering",)
    Item = Question
    form = "{question, context, answers: [text]}"
    texts = ("question", "context")

    def reading(self, item: Question) -> Reading:
        rows = [*self.tokenizer.windows(item.question, item.context)]

        def predict(*outputs: Mapping[str, Any]) -> str:
            best = best_answer(outputs, rows)
            return "" if best is None else item.context[best[0] : best[1]]

        return Reading([row.inputs for row in rows], predict)


def best_answer(
    outputs: Sequence[Mapping[str, Any]], windows: Sequence[TokenRow]
) -> tuple[int, int, int] | None:
    """Return (start, end, window) of the best part of the second text; None if "no answer" (the first token) is better.

    The part has the largest sum of start and end logits, and at most `MAX_ANSWER_TOKENS` tokens.
    """
    most, best, nothing = -math.inf, (0, 0, 0), math.inf
    for number, (own, row) in enumerate(zip(outputs, windows, strict=True)):
        start, end = (np.asarray(output(own, f"{name}_logits"), np.float64) for name in ("start", "end"))
        tokens, nothing = np.flatnonzero(row.sequences == 1), min(nothing, float(start[0] + end[0]))
        if not len(tokens):
            continue
        sums = start[tokens][:, None] + end[tokens][None]
        distance = np.arange(len(tokens))[None] - np.arange(len(tokens))[:, None]
        sums = np.where((distance >= 0) & (distance < MAX_ANSWER_TOKENS), sums, -np.inf)
        first, last = np.unravel_index(int(sums.argmax()), sums.shape)
        (begin, _), (_, stop) = row.offsets[tokens[first]], row.offsets[tokens[last]]
        if sums[first, last] > most:
            most, best = float(sums[first, last]), (int(begin), int(stop), number)
    return None if best[1] <= best[0] or nothing > most else best


class Document(msgspec.Struct, frozen=True):
    text: Word
    relevance: Annotated[float, msgspec.Meta(ge=0)]


class Texts(msgspec.Struct, frozen=True):
    """A text. It may have a second text and their similarity (`score`), or documents to rank for it."""

    text: Word
    text_pair: Word | None = None
    score: float | None = None
    documents: Annotated[tuple[Document, ...], msgspec.Meta(min_length=2, max_length=1000)] | None = None

    def __post_init__(self) -> None:
        if (self.text_pair is None) != (self.score is None):
            raise ValueError("a pair has both text_pair and score")
        if self.documents and not any(document.relevance for document in self.documents):
            raise ValueError("no document is relevant")

    @property
    def texts(self) -> tuple[str, ...]:
        pair = () if self.text_pair is None else (self.text_pair,)
        return (self.text, *pair, *(document.text for document in self.documents or ()))


class Embeddings(TaskEvaluator):
    """The evaluator of text vectors. A prediction has a vector for each text of an item: float64 `[texts, size]`."""

    tasks = ("pooling", "feature-extraction")
    Item = Texts
    form = "{text}, {text, text_pair, score} or {text, documents: [{text, relevance}]}"

    @classmethod
    def identity(cls, item: Texts) -> Hashable:
        return frozenset(map(plain, item.texts))

    def reading(self, item: Texts) -> Reading:
        prompt = self.subject.resolved_options.get("pooling", {}).get("prompt", "")
        feeds = [self.tokenizer.row(prompt + text).inputs for text in item.texts]

        def predict(*outputs: Mapping[str, Any]) -> Floats:
            return np.stack([text_vector(own, feed)[0] for own, feed in zip(outputs, feeds, strict=True)])

        return Reading(feeds, predict)


def text_vector(
    outputs: Mapping[str, Any], feed: Feed, name: str = "the model"
) -> tuple[Floats, Floats | None]:
    """Return (text vector, None). For a graph with only token vectors, return (their mean, the token vectors).

    Raises ConversionError about the graph `name` if it gives no vectors.
    """
    for axes, names in ((2, OF_TEXTS), (3, OF_TOKENS)):
        fitting = [one for one, array in outputs.items() if array.ndim == axes and array.shape[0] == 1]
        chosen = [one for one in names if one in fitting] or (fitting if len(outputs) == 1 else [])
        if chosen:
            values = np.asarray(output(outputs, chosen[0]), dtype=np.float64)
            if axes == 2:
                return values, None
            return values[feed["attention_mask"][0].astype(bool)].mean(axis=0), values
    raise ConversionError(f"{name} gives no vectors: {', '.join(outputs)}")


class Completion(msgspec.Struct, frozen=True):
    completion: Word
    prompt: str | None = None


class Completions(TaskEvaluator):
    """The evaluator of completions. A prediction is (negative log-likelihood in nats, tokens, vocabulary size)."""

    tasks = ("text-generation",)
    Item = Completion
    form = "{prompt?, completion}"

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        checkpoint = self.subject.loaded
        reader = checkpoint.tokenizer if checkpoint else load_tokenizer(self.subject.part.start, False)
        return TextTokenizer(reader.backend_tokenizer, MAX_TOKENS)

    @classmethod
    def identity(cls, item: Completion) -> Hashable:
        return plain((item.prompt or "") + item.completion)

    def reading(self, item: Completion) -> Reading:
        prompt = item.prompt or ""
        row = self.tokenizer.whole(prompt + item.completion)
        if len(row.tokens) > MAX_TOKENS:
            raise InputError(f"it has {len(row.tokens)} tokens, at most {MAX_TOKENS} are read")
        offsets = row.offsets.tolist()
        scored = [at for at, (start, end) in enumerate(offsets) if at and end > start and end > len(prompt)]
        if not scored:
            raise InputError("its completion has no token to score")
        values = {**row.inputs, "position_ids": np.arange(len(row.tokens))[None]}
        taken: Feed = self.subject.part.feeds[0] if self.subject.part.feeds else {"input_ids": None}
        # the past is empty: no token comes before these
        feed = {name: values[name] if name in values else past[:1, :, :0] for name, past in taken.items()}
        tokens = feed["input_ids"][0, scored]

        def predict(outputs: Mapping[str, Any]) -> tuple[float, int, int]:
            logits = output(outputs, "logits")[np.array(scored) - 1].astype(np.float64)
            own = logits[np.arange(len(tokens)), tokens]
            largest = logits.max(axis=1)
            nats = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)) - own
            return float(nats.sum()), len(tokens), logits.shape[1]

        return Reading([feed], predict)


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


def objects(logits: Floats, boxes: Floats, labels: Sequence[str]) -> tuple[Floats, Integers, Floats]:
    """Return the scores of objects, their classes, and their boxes (left, top, right, bottom).

    Scores are by softmax if there is a class "no object", otherwise by sigmoid.
    """
    has_nothing = logits.shape[1] > len(labels)
    scores = softmax(logits)[:, : len(labels)] if has_nothing else sigmoid(logits)
    half = boxes[:, 2:] / 2
    corners = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    return scores.max(1), scores.argmax(1), corners


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def sigmoid(logits: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-logits)))


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


VOCABULARY = "vocab.json"
WORD = "|"


class TextPair(msgspec.Struct, frozen=True):
    text: Word
    target: Word

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.target,)


class Transcript(msgspec.Struct, frozen=True, rename={"file": "audio"}):
    """A sound file, and its spoken words; "" for silence."""

    file: Word
    text: str

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.text,)


class Page(Transcript, frozen=True, rename={"file": "image"}):
    """An image file, and the text on it."""

    file: Word


class LabelledSound(msgspec.Struct, frozen=True, rename={"file": "audio"}):
    file: Word
    label: Word


class GeneratedTexts(TaskEvaluator):
    """The evaluator of texts to generate. A prediction is the text that an encoder-decoder generates greedily."""

    tasks = ("text2text-generation",)
    Item: ClassVar[type[msgspec.Struct]] = TextPair
    form = "{text, target}"
    shares_runs = False

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        length = int(self.subject.resolved_options.get("max_seq_length", 1))
        return TextTokenizer.read(self.subject.directory / TOKENIZER_FILE, length)

    def reading(self, item: Any) -> Reading:
        row = self.tokenizer.row(item.text).inputs
        return Reading([{name: row[name] for name in self.subject.parts[ENCODER].feeds[0]}], self.best)

    def best(self, outputs: Mapping[str, Any]) -> Any:
        return self.tokenizer.text(outputs[TOKENS][0].tolist())


class Sounds(TaskEvaluator):
    """The base of evaluators whose items name files: sounds, or images with text."""

    best: Callable[[Mapping[str, Any]], Any]
    """Turns the outputs of an item's run into the prediction."""
    shares_runs, has_files = False, True
    distinct = ("the same item", "the same file")
    settings_key: ClassVar[str] = "audio_preprocessing"
    """The manifest's key for the settings by which a file becomes the model's input."""

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str, directory: Path) -> Any:
        item = super().read_item(row, position, directory)
        file = directory / item.file
        if not file.is_file():
            message = f"{position}: there is no file {item.file[:200]}"
            raise InputError(message, "paths are relative to the directory of the suite")
        return msgspec.structs.replace(item, file=str(file))

    @classmethod
    def identity(cls, item: Any) -> Hashable:
        return digest_file(Path(item.file))

    def read(self, path: Path, settings: Any) -> Any:
        """Turn a file into the model's input. `self.settings_key` is the manifest's key whose value is `settings`."""
        return read_sound(path, AudioPreprocessing.from_json(settings, self.settings_key))

    def reading(self, item: Any) -> Reading:
        part = self.subject.parts[ENCODER] if self.subject.is_joint else self.subject.part
        (name,) = part.feeds[0]
        if (settings := self.subject.fields.get(self.settings_key)) is None:
            message = f"the manifest has no {self.settings_key}, so files of a suite cannot be read"
            raise InputError(message, "docs/format.md says which processors it can state")
        return Reading([{name: self.read(Path(item.file), settings)}], self.best)


class Transcripts(Sounds, GeneratedTexts):
    """The evaluator of spoken words. A prediction is an encoder-decoder's text, or the best path of CTC."""

    tasks = ("automatic-speech-recognition",)
    Item = Transcript
    form = "{audio, text}"

    @cached_property
    def _settings(self) -> list[Any]:
        return [read_json(self.subject.directory / name) for name in (CONFIG, VOCABULARY)]

    def check(self, suite: Suite) -> None:
        if not self.subject.is_joint and not (self.subject.directory / VOCABULARY).is_file():
            message = f"the checkpoint has no {VOCABULARY}, whose tokens CTC gives"
            raise InputError(message, "save its tokenizer")

    def best(self, outputs: Mapping[str, Any]) -> Any:
        if self.subject.is_joint:
            return GeneratedTexts.best(self, outputs)
        config, words = self._settings
        return transcript(output(outputs, "logits"), words, config, "the model")


class Pages(Transcripts):
    """The evaluator of encoder-decoders that read the text in an image."""

    tasks, Item, settings_key = ("image-to-text",), Page, "preprocessing"
    form = "{image, text}"

    def read(self, path: Path, settings: Any) -> Any:
        return read_image(path, Preprocessing.from_json(settings, self.settings_key))


class SoundClasses(Sounds, TextClasses):
    """The evaluator of sounds with classes. A prediction is the number of the class with the largest logit."""

    tasks = ("audio-classification",)
    Item = LabelledSound
    form = "{audio, label}"


def transcript(logits: Floats, words: Mapping[str, int], config: Mapping[str, Any], name: str) -> str:
    """Decode the best path of CTC: drop repeated tokens and blanks (the padding token).

    `words` is the content of vocab.json, and `name` the graph's name in messages. Raises InputError if `words` is empty
    or has values that are not integers.
    """
    if not words or any(not isinstance(number, int) for number in words.values()):
        reason = "gives a value for each frame, and its version has no vocab.json of one language"
        raise InputError(f"{name} {reason}", "run it on tensors: --input")
    tokens, blank = {number: token for token, number in words.items()}, config.get("pad_token_id", 0)
    best = logits.argmax(1)
    starts = best[np.concatenate([[True], best[1:] != best[:-1]])]
    text = "".join(tokens.get(int(number), "") for number in starts if number != blank)
    return text.replace(WORD, " ").strip()


EVALUATORS: tuple[type[TaskEvaluator], ...] = (
    *(
        TokenSpans,
        TextClasses,
        Answers,
        Embeddings,
        LabelledRows,
        LabelledPixels,
        LabelledBoxes,
        ImagePrompts,
        Completions,
    ),
    *(GeneratedTexts, Transcripts, Pages, SoundClasses),
)
