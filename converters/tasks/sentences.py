"""The settings by which sentence-transformers makes a vector of a text, and a torch module that follows them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import msgspec

from onnxreg.converters.passes.conversion import module_of
from onnxreg.converters.source.source_files import read_json, read_object
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import InputError, about

MODULES_FILE, SETTINGS_FILE = "modules.json", "config_sentence_transformers.json"
TRANSFORMER_FILES = "sentence_*_config.json"
STATIC, WEIGHTS_FILE = "StaticEmbedding", "model.safetensors"
MODULES = ("[0-9]*_*/config.json", f"[0-9]*_*/{WEIGHTS_FILE}", "*_Dense/*", f"*_{STATIC}/*")
PATTERNS = (MODULES_FILE, TRANSFORMER_FILES, SETTINGS_FILE, "*_Pooling/config.json", *MODULES)
"""The files that sentence-transformers reads beside the model itself."""
EXPECTED = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "modality_config.text": {"method": "forward", "method_output_name": "last_hidden_state"},
    "include_prompt": True,
}
"""The only supported value of each of these settings, which is also the default."""
NEUTRAL = re.compile(
    r"(max_seq_length|do_lower_case|unpad_inputs|(word_)?embedding_dimension|pooling_mode\w*)"
    r"|modality_config\.(?!text$).*|\w+_(kw)?args\.(attn_implementation|cache_dir|device_map|(torch_)?dtype|low_cpu_mem_usage"
    r"|use_fast|trust_remote_code|revision|token|local_files_only|add_pooling_layer|use_safetensors)"
)
"""The settings that may have any value: the task applies them, or they change no vector of a text."""
WITHOUT_WEIGHTS = {"Transformer", "Pooling", "Normalize", "Dropout"}
Mode = Literal["mean", "cls", "max", "last"]
SUPPORTED = re.compile("(Transformer Pooling|StaticEmbedding)( Dense)*( Normalize)?")
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_SPELLINGS = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}


class _Module(msgspec.Struct):
    type: str
    path: str

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


@dataclass(frozen=True)
class SentenceConfig:
    """The settings by which a text becomes a vector. `max_length` is in tokens.

    `prompts` are texts to put before an input, by name. `dense` has the file of weights and the activation (a class of
    `torch.nn`) of each layer after the pooling.
    """

    mode: Mode = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    dense: tuple[tuple[Path, str], ...] = ()


def modules_of(directory: Path) -> tuple[list[_Module], str]:
    """Return the modules of sentence-transformers, and the path of the pooling's settings."""
    path, modules = directory / MODULES_FILE, list[_Module]()
    if path.is_file():
        hint = f"save it again; if its texts give no vectors, delete {MODULES_FILE}"
        with about("the checkpoint", hint=hint):
            modules = convert(read_json(path), list[_Module], MODULES_FILE)
    for module in modules:
        if PurePosixPath(module.path).is_absolute() or ".." in PurePosixPath(module.path).parts:
            raise InputError(f"{MODULES_FILE} names a place outside the checkpoint: {module.path[:80]!r}")
    folder = next((module.path for module in modules if module.kind == "Pooling"), "1_Pooling")
    return modules, f"{folder}/config.json"


def table_of(directory: Path) -> str | None:
    """Return the folder of a static embedding's table; None if there is none."""
    return next((module.path for module in modules_of(directory)[0] if module.kind == STATIC), None)


def files_of(directory: Path, all_modules: bool = False) -> list[str]:
    """Return the files of sentence-transformers that affect a vector; with `all_modules`, all of its files.

    Raises InputError if `modules.json` is malformed, or if a module has no safetensors.
    """
    modules, pooling_file = modules_of(directory)
    names = [MODULES_FILE, SETTINGS_FILE, *(path.name for path in directory.glob(TRANSFORMER_FILES))]
    if not all_modules:
        names.append(pooling_file)
    elif "" not in (module.path for module in modules):
        return []
    for module in modules if all_modules else [module for module in modules if module.kind == "Dense"]:
        path, weights = module.path, f"{module.path}/{WEIGHTS_FILE}"
        if path and module.kind not in WITHOUT_WEIGHTS and not (directory / weights).is_file():
            hint = "save it with sentence-transformers of today: weights in a pickle are not published"
            raise InputError(f"the module {path} ({module.kind}) has no {WEIGHTS_FILE}", hint)
        names += [f"{path}/config.json", weights] if path else []
    return sorted(name for name in names if (directory / name).is_file())


def read_pooling(directory: Path) -> SentenceConfig:
    """Read the settings of sentence-transformers, or its defaults. Raise InputError if a setting is not supported."""
    modules, pooling_file = modules_of(directory)
    classes = [module.kind for module in modules if module.kind != "Dropout"]
    if (directory / MODULES_FILE).is_file() and not SUPPORTED.fullmatch(" ".join(classes)):
        message = f"{MODULES_FILE} runs a text through {', '.join(classes)[:200]}"
        message = f"{message}; the task does Transformer, Pooling or StaticEmbedding, then Dense, Normalize"
        raise InputError(message)
    dense = tuple(_dense(directory, module.path) for module in modules if module.kind == "Dense")
    pooling, settings = read_object(directory / pooling_file), read_object(directory / SETTINGS_FILE)
    transformer = next(map(read_object, sorted(directory.glob(TRANSFORMER_FILES))), {})
    prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(text, str) for text in prompts.values()):
        raise InputError(f"prompts in {SETTINGS_FILE} of the checkpoint are not texts by name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise InputError(f"default_prompt_name in {SETTINGS_FILE} is {default!r}, which is not in prompts")
    shaping = {
        key: child for key, child in pooling.items() if key != "include_prompt" or any(prompts.values())
    }
    _check_settings(TRANSFORMER_FILES, transformer)
    _check_settings(SETTINGS_FILE, {"truncate_dim": settings.get("truncate_dim")})
    _check_settings(pooling_file, shaping)
    length = transformer.get("max_seq_length")
    longest = length if isinstance(length, int) and length > 0 else None
    lower = transformer.get("do_lower_case") is True
    return SentenceConfig(_mode(pooling), "Normalize" in classes, longest, lower, prompts, default, dense)


def _dense(directory: Path, path: str) -> tuple[Path, str]:
    settings, weights = read_object(directory / path / "config.json"), directory / path / WEIGHTS_FILE
    package, _, activation = str(settings.get("activation_function", "torch.nn.Tanh")).rpartition(".")
    name = "sentence_embedding"
    shaping = {"module_input_name": name, "module_output_name": name, "use_residual": False}
    if odd := [key for key, value in shaping.items() if settings.get(key, value) not in (value, None)]:
        raise InputError(f"{odd[0]} in {path}/config.json of the checkpoint is one that the task does not do")
    if package.partition(".")[0] != "torch" or activation not in ACTIVATIONS:
        message = f"{path}/config.json of the checkpoint has the activation {activation[:80]!r}"
        raise InputError(message, f"the task does {', '.join(ACTIVATIONS)}")
    return weights, activation


def _check_settings(file: str, settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        for key, child in (value if isinstance(value, dict) else {"": value}).items():
            dotted = f"{name}.{key}" if key else name
            is_off = child in (None, {}, []) or (child is False and dotted not in EXPECTED)
            if not (is_off or NEUTRAL.fullmatch(dotted) or child == EXPECTED.get(dotted)):
                hint = "pool otherwise by a recipe: task: pooling, options: {mode: mean, normalize: false}"
                message = f"{dotted} in {file} is {json.dumps(child)[:100]}, which the task does not do"
                raise InputError(message, hint)


def _mode(config: dict[str, Any]) -> Mode:
    """Return the mode in a pooling's settings: `pooling_mode: cls` or, in old files, `pooling_mode_cls_token: true`."""
    newer = config.get("pooling_mode") or []
    older = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    named = [key.removeprefix("pooling_mode_") for key in older]
    named += newer if isinstance(newer, list) else [newer]
    modes: list[Any] = list(dict.fromkeys(_SPELLINGS.get(str(name), str(name)) for name in named))
    if len(modes) > 1:
        raise InputError(f"the checkpoint pools in several ways at once: {', '.join(modes)[:200]}")
    if modes and modes[0] not in get_args(Mode):
        hint = f"the task does {', '.join(get_args(Mode))}"
        raise InputError(f"the checkpoint pools by {modes[0][:80]!r}", hint)
    return next(iter(modes), "mean")


def pooling_module(encoder: Any, pooling: SentenceConfig) -> Any:
    """Wrap an encoder so that it returns the same vectors as sentence-transformers: float32 `[batch, hidden]`."""
    import torch

    layers = torch.nn.Sequential(*(_layer(*dense) for dense in pooling.dense))

    def pool(hidden: Any, mask: Any) -> Any:
        if pooling.mode == "mean":
            counts = mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * counts).sum(1) / counts.sum(1).clamp(min=1e-9)
        if pooling.mode == "max":
            return hidden.masked_fill(mask.unsqueeze(-1) == 0, -1e9).amax(1)
        if pooling.mode == "cls":
            return hidden[:, 0]
        last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        return hidden.gather(1, last[:, None, None].expand(-1, 1, hidden.shape[-1])).squeeze(1)

    def embed(**inputs: Any) -> Any:
        hidden = encoder(**inputs, return_dict=True).last_hidden_state
        embeddings = layers(pool(hidden, inputs["attention_mask"]))
        return torch.nn.functional.normalize(embeddings, p=2.0, dim=1) if pooling.normalize else embeddings

    return module_of(embed, encoder=encoder, layers=layers)


def _layer(file: Path, activation: str) -> Any:
    import torch
    from safetensors.torch import load_file

    weights = {name.removeprefix("linear."): tensor for name, tensor in load_file(file).items()}
    if not weights.keys() <= {"weight", "bias"} or weights.get("weight", torch.zeros(0)).ndim != 2:
        raise InputError(f"{file.parent.name}/{file.name} is not of a dense layer")
    width, before = weights["weight"].shape
    linear = torch.nn.Linear(before, width, bias="bias" in weights)
    linear.load_state_dict(weights)
    return torch.nn.Sequential(linear, getattr(torch.nn, activation)())
