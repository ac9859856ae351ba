"""Choose the task of a source, if the user names none, from the source's own files."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxreg.converters.source.location import fetch, hub_id
from onnxreg.converters.source.source_files import CONFIG, PROCESSOR, TOKENIZER, read_json
from onnxreg.converters.tasks import adapter
from onnxreg.converters.tasks.checkpoint import SAVED
from onnxreg.converters.tasks.code import is_factory
from onnxreg.converters.tasks.heads import ENCODER, MASKED, head_of, modality_of
from onnxreg.converters.tasks.sentence import MODULES_FILE
from onnxreg.schema.core.errors import InputError

SEE_VISION = "docs/vision.md"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
"""Endings of files that hold weights and nothing else."""


@dataclass(frozen=True)
class Chosen:
    """The id of the chosen task, and the reason: what in the source decided."""

    task: str
    why: str


def choose(source: str) -> Chosen:
    """Choose the task of a source; for a hub id, only small files are fetched.

    Raises InputError, with a hint, if no task takes the source or its files do not say what it is; NotFoundError or
    RemoteError if the source cannot be read.
    """
    path = Path(source)
    if path.is_file() or path.suffix == ".onnx":
        return _file(path)
    if is_factory(source):
        hint = f"write a recipe with its input: reg export --recipe FILE, see {SEE_VISION}"
        raise InputError(f"{source} makes a module, and nothing says what the module is for", hint)
    path = small_files(source)
    quantized = sorted(path.glob("*.gguf"))
    return _file(quantized[0]) if quantized and not (path / CONFIG).is_file() else _checkpoint(path)


def small_files(source: str) -> Path:
    """Return the directory of a checkpoint; for a hub id, only small files are fetched into it."""
    hub = hub_id(source)
    if hub is None:
        return Path(source)
    small = {CONFIG, adapter.CONFIG, MODULES_FILE, *PROCESSOR, *TOKENIZER}
    return fetch(hub, source.partition("@")[2] or None, lambda paths: small & {*paths})


def _file(path: Path) -> Chosen:
    if path.suffix == ".onnx":
        return Chosen("onnx", f"{path.name} is an ONNX file")
    if path.suffix == ".gguf":
        message = f"{path.name} is a GGUF file: weights that were quantized for llama.cpp, without a graph"
        raise InputError(message, "export the checkpoint that it was made from")
    if path.suffix in WEIGHTS:
        command = f"reg export module:function --checkpoint {path.name} --recipe FILE"
        message = f"{path.name} holds weights, and nothing says of what model"
        raise InputError(message, f"{SAVED}; or name what makes the module: {command}")
    raise InputError(f"{path.name} is not a model", f"{SAVED}, an .onnx file, or module:function")


def _checkpoint(directory: Path) -> Chosen:
    def read(name: str, kind: type) -> Any:
        value = read_json(directory / name) if (directory / name).is_file() else None
        return value if isinstance(value, kind) else kind()

    config = read(CONFIG, dict)
    modules = [str(module.get("type")) for module in read(MODULES_FILE, list) if isinstance(module, dict)]
    kinds = [name.rpartition(".")[2][:40] for name in modules]
    if (base := adapter.find_base(directory, small_files)) is not None:
        adapter.refuse_adapter(base)
        chosen = _checkpoint(base)
        return replace(chosen, why=f"an adapter of a model whose {chosen.why}")
    if "StaticEmbedding" in kinds:
        return Chosen("pooling", f"{MODULES_FILE} says {', '.join(kinds)}")
    if not config:
        raise InputError(f"the checkpoint has no {CONFIG} that can be read", SAVED)
    if "pretrained_cfg" in config and "model_type" not in config:
        message = (
            f"a model of timm ({str(config.get('architecture'))[:80]}), which transformers does not load"
        )
        raise InputError(message, f"write a function that makes it: see {SEE_VISION}")
    names, modality = config.get("architectures"), modality_of(directory)
    name, head = str(names[0])[:80] if isinstance(names, list) and names else "", head_of(config, modality)
    if "Pooling" in kinds and (head in (None, ENCODER, MASKED) or head.way):
        return Chosen("pooling", f"{MODULES_FILE} says {', '.join(kinds)}")
    if head is None:
        message = f"nothing says what the checkpoint is for: {CONFIG} says {name or 'no architecture'}"
        raise InputError(message, "name it: --task TASK, one of those of docs/tasks.md")
    if head.way:
        raise InputError(f"{CONFIG} says {name}, which no task here exports: {head.task}", head.way)
    alone = "" if head.suffix else ", an encoder without a head"
    return Chosen(head.task, f"{CONFIG} says {name}{alone}")
