"""Every task by name."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnxreg.converters.source.source_files import CONFIG
from onnxreg.converters.tasks import heads
from onnxreg.converters.tasks.checkpoint import read_config
from onnxreg.converters.tasks.choose import small_files
from onnxreg.converters.tasks.code import is_factory
from onnxreg.converters.tasks.decoder import CausalDecoder
from onnxreg.converters.tasks.image_classification import ImageClassification
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.processed import Processed
from onnxreg.converters.tasks.seq2seq import ProcessedSeq2Seq, Seq2Seq
from onnxreg.converters.tasks.static import StaticPooling, table_of
from onnxreg.converters.tasks.task import Task
from onnxreg.converters.tasks.text import Pooling, TextGeneration, TextTask
from onnxreg.converters.tasks.towers import SoundTowers, Towers
from onnxreg.schema.core.errors import InputError, RegError, nearest

CLASSES: Sequence[type[Task]] = (
    TextTask.of(heads.ENCODER),
    StaticPooling.of(heads.VECTORS),
    Pooling.of(heads.VECTORS),
    *map(TextTask.of, (heads.SPANS, heads.TEXTS, heads.TOKENS, heads.MASKED)),
    *map(Processed.of, (heads.IMAGES, heads.IMAGE_FEATURES, heads.DEPTH, heads.SEGMENTS)),
    ProcessedSeq2Seq.of(heads.SPEECH),
    *map(Processed.of, (heads.OBJECTS, heads.CTC, heads.SOUNDS, heads.AUDIO_FEATURES)),
    Towers.of(heads.TOWERS),
    SoundTowers.of(heads.SOUND_TOWERS),
    ImageClassification,
    Seq2Seq.of(heads.SEQ2SEQ),
    ProcessedSeq2Seq.of(heads.IMAGE_TEXTS),
    TextGeneration.of(heads.DECODER),
    CausalDecoder.of(heads.DECODER),
    OnnxFile,
)
TASKS: Mapping[str, type[Task]] = {task.id: task for task in CLASSES}
ALIASES: Mapping[str, str] = {alias: task.id for task in CLASSES for alias in task.aliases}


def of_source(
    task: type[Task], source: str, options: Mapping[str, Any], passes: Collection[str] = ()
) -> type[Task]:
    """Return the class with this task's name that fits a source, its options, and the passes of a recipe.

    There are classes for static embeddings, for an image classifier that a function makes, for a speech recognizer that is
    an encoder-decoder, and for a decoder that the pass `ModelBuilder` reads.
    """
    if task.id == heads.SPEECH.task and source:
        has_decoder = read_config(small_files(source)).get("is_encoder_decoder") is True
        return next(one for one in CLASSES if one.id == task.id and issubclass(one, Seq2Seq) == has_decoder)
    if issubclass(task, Pooling) and source:
        with suppress(RegError):  # the class below says what is wrong with the source
            if table_of(small_files(source)) is not None:
                return next(one for one in CLASSES if issubclass(one, StaticPooling))
    if issubclass(task, CausalDecoder) and TextGeneration.exporter in passes:
        return next(one for one in CLASSES if one.id == task.id and issubclass(one, TextGeneration))
    is_made = {"input", "factory", "checkpoint"} & options.keys() or is_factory(source)
    is_saved = not Path(source).is_dir() or (Path(source) / CONFIG).is_file()
    if task is not ImageClassification or is_made or not is_saved:
        return task
    return next(saved for saved in CLASSES if saved.id == task.id and issubclass(saved, Processed))


def find(name: str) -> type[Task]:
    """Return the task with this id or alias; case and underscores do not matter.

    Raises InputError for an unknown name, and for a task that no class exports; the hint suggests a name or another way.
    """
    typed = name.lower().replace("_", "-")
    task = TASKS.get(ALIASES.get(typed, typed))
    if task is None:
        if head := next((head for head in heads.HEADS if typed in (head.task, *head.aliases)), None):
            raise InputError(f"no task here exports {head.task}", head.way)
        tasks = [task.id for task in TASKS.values() if task.exporter]
        names = [*tasks, *(alias for alias, own in ALIASES.items() if own in tasks)]
        alike = nearest(typed, names, 0.85 if "-" in typed else 0.7, most=1)
        hint = f"did you mean {alike[0]}? " if alike else ""
        hint += f"one of: {', '.join(tasks)}; for another, export with Optimum, then reg import the directory"
        raise InputError(f"no task is called {name[:80]!r}", hint)
    return task
