"""Olive's workflow documents as recipes: `{"input_model": ..., "passes": {...}}`.

The passes run one after the other, in the order of their keys, as Olive runs them without a search; the
result of the last one is published as `model.onnx`. Parameters are under `config` or beside `type`. Olive's
defaults are filled in if our defaults differ. Keys without a meaning here (systems, caches, evaluators, a
search) are reported as not used.

Format: https://microsoft.github.io/Olive/reference/options.html (olive-ai 0.13).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.engine.foreign.olive_passes import PASSES, REFUSED, OlivePass
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError, suggest

TASKS = {
    "feature-extraction": "feature-extraction",
    "question-answering": "question-answering",
    "text-classification": "text-classification",
    "text-generation": "text-generation",
    "text-generation-with-past": "text-generation",
    "token-classification": "token-classification",
}
DEFAULT_TASK = "text-generation-with-past"
"""Olive's, for an `HfModel` that names none."""

AXES = {"batch_size": "batch", "sequence_length": "sequence"}
"""Names of axes in Olive's graphs of a checkpoint, and the names used here."""

RECIPE_KEYS = ("input_model", "passes", "pass_flows")
ENGINE_KEYS = (
    "azureml_client",
    "cache_config",
    "cache_dir",
    "clean_cache",
    "clean_evaluation_cache",
    "data_configs",
    "enable_shared_cache",
    "engine",
    "evaluate_input_model",
    "evaluator",
    "evaluators",
    "host",
    "log_severity_level",
    "log_to_file",
    "no_artifacts",
    "ort_log_severity_level",
    "ort_py_log_severity_level",
    "output_dir",
    "output_name",
    "packaging_config",
    "plot_pareto_frontier",
    "search_strategy",
    "systems",
    "target",
    "workflow_host",
    "workflow_id",
)
"""Keys that configure Olive itself."""
CODE_KEYS = (
    "model_script",
    "script_dir",
    "model_loader",
    "custom_task_class_name",
    "custom_task_class_module",
)
"""Keys of an input model that name Python code."""
IDLE_KEYS = ("generative", "inference_settings", "model_attributes", "model_file_format")
"""Keys of an input model that do not change the graph."""
IDLE_LOAD_KEYS = (
    *("attn_implementation", "cache_dir", "device_map", "force_download", "local_files_only"),
    *("low_cpu_mem_usage", "max_memory", "offload_folder", "token", "trust_remote_code", "use_safetensors"),
)
"""Keys of `load_kwargs` that do not change the weights. Remote code needs consent on the command line."""
FLOAT32 = (None, "auto", "fp32", "float32")
INSTEAD = {
    "adapter_path": "merge it into the model first (peft: merge_and_unload, then save_pretrained), and name the result",
    "io_config": "take it out: graphs have the tensor names of docs/tasks.md",
    "use_ort_extensions": "take it out: no operator library is loaded",
}
"""The way out for a key of an input model that is refused."""
STEP_KEYS = ("type", "config", "host", "evaluator")
UNUSED = "not used"

Note = dict[str, Any]
"""One field of the document, its value and its outcome: see `recipe_file.FieldTranslation`."""


def translate(value: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Translate Olive's document into a recipe in its JSON form.

    Raises InputError, naming the key, for invalid JSON or unknown keys, for passes and parameters without a
    counterpart, and for values that would have to be searched for.
    """
    canonical.encode(value, label)
    if unknown := sorted(set(value) - {*RECIPE_KEYS, *ENGINE_KEYS}):
        raise InputError(f"{label}: Olive's documents have no key {unknown[0]!r}")
    notes = [_note(key, None, UNUSED) for key in value if key in ENGINE_KEYS]
    axes: Mapping[str, str] = AXES if str(_kind(value)).lower() == "hfmodel" else {}
    recipe = _input(_mapping(value.get("input_model"), f"{label}: input_model"), label, notes)
    passes = _ordered(value, label)
    previous, steps = None, []
    for name, pass_config in passes.items():
        step = {"name": name, **_step(name, pass_config, label, notes)}
        axes = {} if step["pass"] == "ModelBuilder" else axes  # its graphs have the names that Olive uses
        step["params"] = _with_axes(step["params"], axes, f"passes.{name}", notes)
        steps.append(step if previous is None else {**step, "input": previous})
        previous = name
    return {**recipe, "steps": steps, "outputs": [_output(steps[-1])], "translation": notes}


def _note(field: str, value: Any, outcome: str) -> Note:
    return {"field": field, "value": value, "became": outcome}


def _input(model: Mapping[str, Any], label: str, notes: list[Note]) -> dict[str, Any]:
    """Return `source` and `task` of the recipe."""
    kind = str(model.get("type", "")).lower()
    options = {**{key: item for key, item in model.items() if key not in ("type", "config")}}
    options |= _mapping(model.get("config") or {}, f"{label}: input_model.config")
    path = options.pop("model_path", None)
    if isinstance(path, dict):
        store = str(path.get("type", ""))
        path = _mapping(path.get("config") or path, f"{label}: input_model.model_path.config").get("path")
        if not isinstance(path, str) and store:
            raise InputError(
                f"{label}: input_model.model_path is of the type {store[:80]!r}, which is not read here",
                "download the model, and write its path as model_path",
            )
    if not isinstance(path, str):
        raise InputError(
            f"{label}: input_model names no model_path", 'write "model_path": "DIRECTORY" or a hub id'
        )
    if kind == "onnxmodel":
        file = options.pop("onnx_file_name", None)
        fields = {"source": path if file is None else str(PurePosixPath(path) / str(file)), "task": "onnx"}
    elif kind == "hfmodel":
        path = _with_revision(path, options.pop("load_kwargs", None) or {}, label, notes)
        fields = {"source": path, "task": _task(str(options.pop("task", None) or DEFAULT_TASK), label)}
    else:
        raise InputError(
            f"{label}: input_model is a {model.get('type')!r}; HfModel and OnnxModel are read here",
            "a PyTorchModel is loaded by a script: write a recipe whose task loads it (docs/recipes.md)",
        )
    if code := next((key for key in CODE_KEYS if options.get(key) is not None), None):
        raise InputError(
            f"{label}: input_model: {code} names code, which a document cannot have run",
            "write a recipe whose task loads it (docs/recipes.md)",
        )
    for key, item in options.items():
        if key not in IDLE_KEYS and item not in (None, False):
            raise InputError(
                f"{label}: input_model.{key[:80]} changes the model, and is not supported",
                INSTEAD.get(key, "take it out, or apply it to the model first"),
            )
    notes += [_note(f"input_model.{key}", item, UNUSED) for key, item in options.items()]
    return fields


def _with_revision(path: str, load_kwargs: Any, label: str, notes: list[Note]) -> str:
    """The source with the revision that Olive would load. InputError for a setting that changes the weights otherwise."""
    settings = dict(_mapping(load_kwargs, f"{label}: input_model.load_kwargs"))
    revision = settings.pop("revision", None)
    for key, item in settings.items():
        is_idle = key in IDLE_LOAD_KEYS or (key in ("dtype", "torch_dtype") and item in FLOAT32)
        if not is_idle and item is not None:
            raise InputError(
                f"{label}: input_model.load_kwargs.{key[:80]} changes the model, and is not supported",
                "take it out: the weights are exported in float32, and passes make the other precisions",
            )
    notes += [_note(f"input_model.load_kwargs.{key}", item, UNUSED) for key, item in settings.items()]
    if revision is None:
        return path
    if "@" in path or path.startswith((".", "/")) or path.count("/") > 1 or Path(path).exists():
        raise InputError(
            f"{label}: input_model.load_kwargs.revision: only a model of the Hub has a revision, not {path[:80]}",
            "take it out, or write a hub id as model_path",
        )
    notes.append(_note("input_model.load_kwargs.revision", revision, f"source: {path}@{revision}"))
    return f"{path}@{revision}"


def _task(name: str, label: str) -> str:
    if name not in TASKS:
        raise InputError(f"{label}: no task here is Olive's {name[:80]!r}", suggest(name, TASKS))
    return TASKS[name]


def _ordered(value: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the passes in the order in which they run."""
    passes = _mapping(value.get("passes") or {}, f"{label}: passes")
    flows = value.get("pass_flows") or []
    if not isinstance(flows, list) or not all(isinstance(flow, list) for flow in flows):
        raise InputError(f"{label}: pass_flows is not a list of lists of names")
    if flows:
        if len(flows) != 1:
            raise InputError(f"{label}: pass_flows has more than one flow", "export them one by one")
        if missing := [name for name in flows[0] if name not in list(passes)]:
            raise InputError(f"{label}: pass_flows names {missing[0]!r}, which is not a pass there")
        passes = {name: passes[name] for name in flows[0]}
    if not passes:
        raise InputError(f"{label}: there are no passes to run")
    return dict(passes)


def _step(name: str, pass_config: Any, label: str, notes: list[Note]) -> dict[str, Any]:
    """Return `pass` and `params` of a step."""
    field = f"passes.{name}"
    if isinstance(pass_config, list) and pass_config:
        notes += [
            _note(f"{field}[{index}]", None, f"{UNUSED}: Olive would search")
            for index in range(1, len(pass_config))
        ]
        pass_config = pass_config[0]
    config = dict(_mapping(pass_config, f"{label}: {field}"))
    kind = _find(str(config.get("type", "")), f"{label}: {field}")
    options = {key: item for key, item in config.items() if key not in STEP_KEYS}
    options |= _mapping(config.get("config") or {}, f"{label}: {field}.config")
    notes += [_note(f"{field}.{key}", None, UNUSED) for key in ("host", "evaluator") if key in config]
    params, parameter_notes = kind.translate(
        dict(_settled(options, f"{label}: {field}")), f"{label}: {field}"
    )
    notes += [_note(f"{field}.{key}", item, outcome) for key, item, outcome in parameter_notes]
    return {"pass": kind.id, "params": params}


def _kind(value: Mapping[str, Any]) -> Any:
    model = value.get("input_model")
    return model.get("type", "") if isinstance(model, dict) else ""


def _with_axes(
    params: Mapping[str, Any], axes: Mapping[str, str], field: str, notes: list[Note]
) -> dict[str, Any]:
    """Rename the axes in parameters: a graph made of a checkpoint has the axis names used here."""
    names = params.get("dim_param")
    if not isinstance(names, list) or axes.keys().isdisjoint(map(str, names)):
        return dict(params)
    renamed = [axes.get(str(name), name) for name in names]
    notes.append(_note(f"{field}.dim_param", names, f"dim_param: {', '.join(map(str, renamed))}"))
    return {**params, "dim_param": renamed}


def _settled(options: Mapping[str, Any], label: str) -> Iterator[tuple[str, Any]]:
    """Yield the parameters that have a value; InputError for one that Olive would search for."""
    for key, item in options.items():
        if item == "SEARCHABLE_VALUES" or (isinstance(item, dict) and "olive_parameter_type" in item):
            raise InputError(
                f"{label}: {key} is to be searched for", "give it a value: nothing is searched here"
            )
        if item != "DEFAULT_VALUE":
            yield key, item


def _find(kind: str, label: str) -> OlivePass:
    for olive_pass in PASSES:
        if olive_pass.id.lower() == kind.lower():
            return olive_pass
    for name, instead in REFUSED.items():
        if name.lower() == kind.lower():
            raise InputError(f"{label}: {name} cannot be taken over from Olive", instead)
    raise InputError(
        f"{label}: no pass here is Olive's {kind[:80]!r}",
        suggest(kind, [olive_pass.id for olive_pass in PASSES]),
    )


def _output(step: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": step["name"], "path": "model.onnx"}


def _mapping(value: Any, label: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{label} is not a JSON object")
    return value
