"""The catalogue of tasks: find a task by name, choose one by a source's files, and make its recipe."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.conversion import NEWEST, OLDEST, OLDEST_OF_TRANSFORMERS
from onnxreg.converters.source import source_files
from onnxreg.converters.source.hub import fetch
from onnxreg.converters.source.source_files import CARD, CONFIG, PROCESSOR, TOKENIZER, Location
from onnxreg.converters.tasks import generation, sentences, text
from onnxreg.converters.tasks import task as kinds
from onnxreg.converters.tasks.checkpoint import ADAPTER_CONFIG, SAVED, Saved, find_base, read_config
from onnxreg.converters.tasks.code import is_factory
from onnxreg.converters.tasks.image_classification import ImageClassification
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.processed import Masks, Processed
from onnxreg.converters.tasks.task import ALIASES, Task
from onnxreg.schema.core.errors import InputError, RegError, nearest
from onnxreg.schema.inputs.recipe_file import RecipeFile

CLASSES: Sequence[type[Task]] = (
    text.TextTask.of(kinds.ENCODER, patterns=sentences.PATTERNS),
    text.StaticPooling.of(kinds.VECTORS),
    text.Pooling.of(kinds.VECTORS),
    *map(text.TextTask.of, (kinds.SPANS, kinds.PAGES, kinds.TEXTS, kinds.TOKENS, kinds.MASKED)),
    text.Tables.of(kinds.TABLES),
    text.Speech.of(kinds.VOICES),
    *map(Processed.of, (kinds.IMAGES, kinds.VIDEOS, kinds.IMAGE_FEATURES, kinds.DEPTH, kinds.SEGMENTS)),
    generation.ProcessedSeq2Seq.of(kinds.SPEECH),
    *map(Processed.of, (kinds.OBJECTS, kinds.CTC, kinds.SOUNDS, kinds.AUDIO_FEATURES, kinds.MATCHES)),
    Masks.of(kinds.MASKS),
    text.Towers.of(kinds.TOWERS),
    text.Towers.of(kinds.SOUND_TOWERS, members=text.SOUND_FILES),
    text.NamedObjects.of(kinds.NAMED_OBJECTS),
    ImageClassification,
    generation.Seq2Seq.of(kinds.SEQ2SEQ),
    generation.ProcessedSeq2Seq.of(kinds.IMAGE_TEXTS),
    generation.TextGeneration.of(kinds.DECODER),
    generation.CausalDecoder.of(kinds.DECODER),
    generation.ImageTextDecoder.of(kinds.IMAGE_CHAT),
    OnnxFile,
)
TASKS: Mapping[str, type[Task]] = {task.id: task for task in CLASSES}
PATH = "model.onnx"
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def of_source(
    task: type[Task], source: str, options: Mapping[str, Any], passes: Collection[str] = ()
) -> type[Task]:
    """Return the class that fits the source, options and passes. It is one of the classes with the id of `task`."""
    kind: type[Task] = task
    if task.id == kinds.SPEECH.task and source:
        has_decoder = read_config(small_files(source).directory).get("is_encoder_decoder") is True
        kind = generation.Seq2Seq if has_decoder else Processed
    elif issubclass(task, text.Pooling) and source:
        with suppress(RegError):  # the task reports the error of the source
            kind = task if sentences.table_of(small_files(source).directory) is None else text.StaticPooling
    elif issubclass(task, generation.CausalDecoder) and generation.TextGeneration.exporter in passes:
        kind = generation.TextGeneration
    elif task is ImageClassification:
        is_made = {"input", "factory", "checkpoint"} & options.keys() or is_factory(source)
        is_saved = not Path(source).is_dir() or (Path(source) / CONFIG).is_file()
        kind = Processed if is_saved and not is_made else task
    return next(one for one in CLASSES if one.id == task.id and issubclass(one, kind))


def find(name: str, others: str = kinds.OPTIMUM) -> type[Task]:
    """Return the task with this id or alias. Raise InputError if there is none; its hint ends with `others`."""
    typed = name.lower().replace("_", "-")
    task = TASKS.get(ALIASES.get(typed, typed))
    if task is None:
        if head := next((head for head in kinds.HEADS if typed in (head.task, *head.aliases)), None):
            raise InputError(f"no task here exports {head.task}", head.way)
        alike = nearest(typed, [*TASKS, *ALIASES], 0.85 if "-" in typed else 0.7, most=1)
        hint = f"did you mean {alike[0]}? " if alike else ""
        hint += f"one of: {', '.join(TASKS)}; for another, {others}"
        raise InputError(f"no task is called {name[:80]!r}", hint)
    return task


def task_recipe(
    task: str,
    quantize: bool = False,
    opset: int | None = None,
    max_seq_length: int | None = None,
    path: str = PATH,
    int8_embeddings: bool = False,
    source: str | None = None,
) -> RecipeFile:
    """Return the recipe of a task: a graph in full precision at `path` and, with `quantize`, a graph in INT8 beside it.

    `max_seq_length` is in tokens. With `int8_embeddings`, embedding tables are INT8, too. Raises InputError for an
    unknown task, opset or option.
    """
    kind = of_source(find(task), source or "", {})
    if kind is OnnxFile and (opset, max_seq_length) != (None, None):
        hint = "leave --opset and --max-seq-length out; OnnxOpVersionConversion in a recipe changes the opset"
        raise InputError("an ONNX file keeps its opset and its inputs", hint)
    if int8_embeddings and not quantize:
        raise InputError("--int8-embeddings is of the INT8 artifact, which is not made", "add --quantize")
    if max_seq_length is not None and "max_seq_length" not in kind.Options.model_fields:
        raise InputError("--max-seq-length is of texts, and the task takes none", "leave it out")
    default, oldest = (14, OLDEST) if kind.exporter == "OnnxConversion" else (OLDEST_OF_TRANSFORMERS,) * 2
    target = default if opset is None else opset
    if not oldest <= target <= NEWEST:
        message = f"there is no opset {target} to export to"
        raise InputError(message, f"PyTorch's exporters support {oldest} to {NEWEST}")
    steps: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    products = [*kind.products, *(["Gather"] if int8_embeddings else [])]
    quantization = {"params": {"op_types_to_quantize": products}} if len(products) > 2 else {}
    files: Sequence[tuple[str | None, str]] = [*kind.members.items()] or [(None, path)]
    for member, file in files:
        named, part = ({}, {}) if member is None else ({"member": member}, {"part": member})
        params: dict[str, Any] = {"target_opset": target, **part}
        first: dict[str, Any] = {"name": member or "fp32", "pass": kind.exporter, "params": params}
        if kind is OnnxFile:
            first = {"name": "original", "pass": kind.exporter}
        small: dict[str, Any] = {"name": f"{member}_int8" if member else "int8"}
        small |= {"pass": kind.quantizer, "input": first["name"], **quantization}
        if member in kind.tables:
            small = {**small, "pass": "EmbeddingQuantization", "params": {}}
        for step, mark in ((first, ""), (small, "_int8")) if member in kind.merged else ():
            one, other = kind.merged[str(member)]  # the quantizer skips weights in branches
            params = {"with_past": f"{other}{mark}", "part": member}
            step |= {"pass": "MergeDecoders", "input": f"{one}{mark}", "params": params}
        steps.append(first)
        outputs.append({"step": first["name"], "path": file, **named})
        if quantize:
            steps.append(small)
            quantized = f"{file.removesuffix('.onnx')}_int8.onnx"
            outputs.append({"step": small["name"], "path": quantized, **named})
    value = {
        "task": kind.id,
        "options": {} if max_seq_length is None else {"max_seq_length": max_seq_length},
        "steps": steps,
        "outputs": outputs,
        "checks": [{"output": file, "metric": "max_abs_diff", "share": 0.001} for _, file in files],
    }
    return RecipeFile.from_json(value, f"the recipe of {task}")


def choose(source: str) -> tuple[str, str]:
    """Choose the task of a source by its files. Return the task's id and the reason. No weights are downloaded.

    Raises InputError if no task fits, NotFoundError or RemoteError if the source cannot be read.
    """
    path = Path(source)
    if path.is_file() or path.suffix == ".onnx":
        return _file(path)
    if is_factory(source):
        hint = "write a recipe with its input: reg export --recipe FILE, see docs/vision.md"
        raise InputError(f"{source} makes a module, and nothing says what the module is for", hint)
    path = small_files(source).directory
    quantized = sorted(path.glob("*.gguf"))
    return _file(quantized[0]) if quantized and not (path / CONFIG).is_file() else _checkpoint(path)


def small_files(source: str) -> Location:
    """Return the location of a checkpoint. For a hub id, only its small files are downloaded."""
    hub = source_files.hub_id(source)
    if hub is None:
        return Location(Path(source))
    small = {CARD, CONFIG, ADAPTER_CONFIG, sentences.MODULES_FILE, *PROCESSOR, *TOKENIZER}
    return fetch(hub, source.partition("@")[2] or None, small.intersection)


def _file(path: Path) -> tuple[str, str]:
    if path.suffix == ".onnx":
        return "onnx", f"{path.name} is an ONNX file"
    if path.suffix == ".gguf":
        message = f"{path.name} is a GGUF file: weights that were quantized for llama.cpp, without a graph"
        raise InputError(message, "export the checkpoint that it was made from")
    if path.suffix in WEIGHT_SUFFIXES:
        command = f"reg export module:function --checkpoint {path.name} --recipe FILE"
        message = f"{path.name} holds weights, and nothing says of what model"
        raise InputError(message, f"{SAVED}; or name what makes the module: {command}")
    raise InputError(f"{path.name} is not a model", f"{SAVED}, an .onnx file, or module:function")


def _checkpoint(directory: Path) -> tuple[str, str]:
    modules = [module.kind for module in sentences.modules_of(directory)[0]]
    if (base := find_base(directory, small_files)) is not None:
        task, why = _checkpoint(base.directory)
        return task, f"an adapter of a model whose {why}"
    pooling = "pooling", f"{sentences.MODULES_FILE} says {', '.join(modules)[:200]}"
    if sentences.STATIC in modules:
        return pooling
    config, modality = read_config(directory), kinds.modality_of(directory)
    names = config.get("architectures")
    name = str(names[0] if isinstance(names, list) and names else config.get("architecture", ""))[:80]
    head = kinds.head_of(config, modality)
    if "Pooling" in modules and (head in (None, kinds.ENCODER, kinds.MASKED) or head.way):
        return pooling
    if head is None:
        heads = [kind.head for kind in CLASSES if issubclass(kind, Saved)]
        fitting = dict.fromkeys(head.task for head in heads if modality in (None, head.modality))
        tag = str(source_files.read_metadata(directory).get("pipeline_tag"))
        if (task := ALIASES.get(tag, tag)) in fitting:
            return task, f"the pipeline_tag of {CARD} says {tag}"
        message = f"nothing says what the checkpoint is for: {CONFIG} says {name or 'no architecture'}"
        raise InputError(message, f"name it: --task TASK, one of {', '.join(fitting)}")
    if head.way:
        raise InputError(f"{CONFIG} says {name}, which no task here exports: {head.task}", head.way)
    alone = "" if head.suffix else ", an encoder without a head"
    return head.task, f"{CONFIG} says {name}{alone}"
