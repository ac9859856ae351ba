"""The evaluators of all tasks. Items are texts, rows of arrays (`rows.py`), sounds, images, or texts to generate."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np

from onnxreg.converters.evaluation import decoding
from onnxreg.converters.evaluation.evaluator import Reading, TaskEvaluator, plain
from onnxreg.converters.evaluation.rows import ImagePrompts, LabelledBoxes, LabelledPixels, LabelledRows
from onnxreg.converters.evaluation.suite import Fixture, Suite, Word, match_labels, read_fixture
from onnxreg.converters.evaluation.tokens import Floats, TextTokenizer
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.source.source_files import CONFIG, digest_file, read_json
from onnxreg.converters.tasks.checkpoint import TOKENIZER_FILE, load_tokenizer
from onnxreg.converters.tasks.generation import ENCODER, TOKENS
from onnxreg.converters.tasks.preprocessing import read_image, read_sound
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import EvaluationRequest
from onnxreg.schema.manifest.manifest import AudioPreprocessing, Preprocessing

MAX_TOKENS = 2048
VOCABULARY = "vocab.json"


class TokenSpans(TaskEvaluator):
    """The evaluator of texts with spans. A prediction is each character's label index, or -1: int64 `[characters]`."""

    tasks = ("token-classification",)
    Item = Fixture
    form = "{text, gold_spans: [{start, end, label}]}"
    distinct = (None, None)

    @property
    def labels(self) -> tuple[str, ...]:
        return decoding.tag_scheme(self.subject.loaded.labels).names

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
            lambda *outputs: decoding.labels_of(len(item.text), windows, outputs, tags),
        )


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
        logits = decoding.output(outputs, "logits", (len(self.labels),))
        return int(decoding.numbers(logits).argmax())


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
            best = decoding.best_answer(outputs, rows)
            return "" if best is None else item.context[best[0] : best[1]]

        return Reading([row.inputs for row in rows], predict)


class Passage(msgspec.Struct, frozen=True):
    text: Word
    relevance: Annotated[float, msgspec.Meta(ge=0)]


class Texts(msgspec.Struct, frozen=True):
    """A text. It may have a second text and their similarity (`score`), or documents to rank for it."""

    text: Word
    text_pair: Word | None = None
    score: float | None = None
    documents: Annotated[tuple[Passage, ...], msgspec.Meta(min_length=2, max_length=1000)] | None = None

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
            return np.stack(
                [decoding.text_vector(own, feed)[0] for own, feed in zip(outputs, feeds, strict=True)]
            )

        return Reading(feeds, predict)


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
            logits = decoding.output(outputs, "logits")[np.array(scored) - 1].astype(np.float64)
            own = logits[np.arange(len(tokens)), tokens]
            largest = logits.max(axis=1)
            nats = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1)) - own
            return float(nats.sum()), len(tokens), logits.shape[1]

        return Reading([feed], predict)


class TextPair(msgspec.Struct, frozen=True):
    text: Word
    target: Word

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.target,)


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


class FileItems(TaskEvaluator):
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


class Transcripts(FileItems, GeneratedTexts):
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
        return decoding.transcript(decoding.output(outputs, "logits"), words, config, "the model")


class Pages(Transcripts):
    """The evaluator of encoder-decoders that read the text in an image."""

    tasks, Item, settings_key = ("image-to-text",), Page, "preprocessing"
    form = "{image, text}"

    def read(self, path: Path, settings: Any) -> Any:
        return read_image(path, Preprocessing.from_json(settings, self.settings_key))


class SoundClasses(FileItems, TextClasses):
    """The evaluator of sounds with classes. A prediction is the number of the class with the largest logit."""

    tasks = ("audio-classification",)
    Item = LabelledSound
    form = "{audio, label}"


EVALUATORS: tuple[type[TaskEvaluator], ...] = (
    *(
        TokenSpans,
        TextClasses,
        Answers,
        Embeddings,
        Completions,
        GeneratedTexts,
        Transcripts,
        Pages,
        SoundClasses,
    ),
    *(LabelledRows, LabelledPixels, LabelledBoxes, ImagePrompts),
)
