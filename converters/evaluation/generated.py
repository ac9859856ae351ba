"""Evaluators of sounds, and of models that generate text. A suite names a sound file relative to the suite's directory."""

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from onnxreg.converters.evaluation.evaluators import (
    ModelInput,
    TaskEvaluator,
    TextClasses,
    output,
    plain,
)
from onnxreg.converters.evaluation.run_images import run_numbers
from onnxreg.converters.evaluation.suite import Suite, Word, check_unique
from onnxreg.converters.evaluation.tokens import TextTokenizer
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.source.source_files import CONFIG, digest_file, read_json
from onnxreg.converters.tasks.checkpoint import TOKENIZER_FILE
from onnxreg.converters.tasks.greedy import ENCODER, TOKENS
from onnxreg.converters.tasks.sound import read_sound
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.parts import AudioPreprocessing

VOCABULARY = "vocab.json"


class TextPair(msgspec.Struct, frozen=True):
    """A text, and the text that a model should generate from it."""

    text: Word
    target: Word

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.target,)


class Transcript(msgspec.Struct, frozen=True):
    """A sound file, and the words in it; "" for silence."""

    audio: Word
    text: str

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.text,)


class LabelledSound(msgspec.Struct, frozen=True):
    """A sound file, and its right label."""

    audio: Word
    label: Word


class GeneratedTexts(TaskEvaluator):
    """Evaluator of items `{text, target}`. A prediction is the text that an encoder-decoder generates greedily."""

    tasks = ("text2text-generation",)
    Item: ClassVar[type[msgspec.Struct]] = TextPair
    shares_runs = False

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        length = int(self.subject.resolved_options.get("max_seq_length", 1))
        return TextTokenizer.read(self.subject.directory / TOKENIZER_FILE, length)

    @classmethod
    def identity(cls, item: Any) -> Hashable:
        return plain(item.text)

    def runs(self, item: Any) -> Iterable[tuple[Feed, None]]:
        row = self.tokenizer.row(item.text).inputs
        return [({name: row[name] for name in self.subject.parts[ENCODER].sample.feeds[0]}, None)]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> str:
        return self.tokenizer.text(outputs[TOKENS][0].tolist())


class Sounds(TaskEvaluator):
    """Evaluator of items with a sound file. The digest of the suite covers the bytes of the sound files."""

    shares_runs = False

    @classmethod
    def load_suite(cls, path: Path) -> Suite:
        read = super().load_suite(path)
        items, digests = [], dict[str, Digest]()
        for position, item in zip(read.positions, read.items, strict=True):
            file = path.parent / item.audio
            if not file.is_file():
                message = f"{position}: there is no file {item.audio[:200]}"
                raise InputError(message, "`audio` is a path, relative to the directory of the suite")
            digests[position] = digest_file(file)
            items.append(replace(item, audio=str(file)))
        check_unique(digests, "the same sound")
        key = {"suite": str(read.digest), "files": [str(digest) for digest in digests.values()]}
        positions = read.positions
        return Suite(Digest.of(canonical.encode(key)), tuple(items), read.groups, read.synthetic, positions)

    @classmethod
    def identity(cls, item: Any) -> Hashable:
        return digest_file(Path(item.audio))

    @cached_property
    def _preprocessing(self) -> AudioPreprocessing:
        stated = self.subject.fields.get("audio_preprocessing")
        if stated is None:
            message = "nothing says how a sound becomes the model's input, so no suite of sounds judges it"
            raise InputError(message, "docs/howto-speech.md has the feature extractors that are known")
        return AudioPreprocessing.from_json(stated, "audio_preprocessing")

    def runs(self, item: Any) -> Iterable[tuple[Feed, None]]:
        sample = self.subject.parts[ENCODER].sample if self.subject.parts else self.subject.sample
        (name,) = sample.feeds[0]
        return [({name: read_sound(Path(item.audio), self._preprocessing)}, None)]


class Transcripts(Sounds, GeneratedTexts):
    """Evaluator of items `{audio, text}`. A prediction is an encoder-decoder's generated text, or the best path of CTC."""

    tasks = ("automatic-speech-recognition",)
    Item = Transcript

    @cached_property
    def _settings(self) -> list[Any]:
        """The checkpoint's config, and its vocabulary for CTC, in JSON form."""
        return [read_json(self.subject.directory / name) for name in (CONFIG, VOCABULARY)]

    def check(self, suite: Suite) -> None:
        if not self.subject.parts and not (self.subject.directory / VOCABULARY).is_file():
            raise InputError(
                f"the checkpoint has no {VOCABULARY}, whose tokens CTC gives", "save its tokenizer"
            )

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> str:
        if self.subject.parts:
            return super().read(model_input, outputs)
        (config, words), logits = self._settings, output(outputs, "logits")[None]
        return str(run_numbers({"logits": logits}, (), config, "the model", words)["transcript"])


class SoundClasses(Sounds, TextClasses):
    """Evaluator of items `{audio, label}`. A prediction is the number of the class with the largest logit."""

    tasks = ("audio-classification",)
    Item = LabelledSound
