"""Olive's workflow documents as recipes: `{"input_model": ..., "passes": {...}}`, for the passes that are here.

The passes run one after the other, in the order of their keys, as Olive runs them without a search; the last one's result
is published as `model.onnx`. Parameters stand under `config` or beside `type`. Olive's own defaults are filled in where ours
are others. What says nothing here (systems, caches, evaluators, a search) is left, and told as such.

Format: https://microsoft.github.io/Olive/reference/options.html (olive-ai 0.13).
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from onnxreg.converters.engine.foreign.olive_passes import PASSES, REFUSED, OlivePass
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.suggest import suggest

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
"""Names of axes in Olive's graphs of a checkpoint, and in ours."""

OURS = ("input_model", "passes", "pass_flows")
ENGINE = (
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
"""Keys that say how Olive itself runs."""
CODE = ("model_script", "script_dir", "model_loader", "custom_task_class_name", "custom_task_class_module")
"""Keys of an input model that name Python code."""
STEP_KEYS = ("type", "config", "host", "evaluator")
UNUSED = "not used"

Note = dict[str, Any]
"""One field of the document, its value, and what became of it: see `recipe_file.Translated`."""


def is_olive(value: Mapping[str, Any]) -> bool:
    return "input_model" in value or "passes" in value


def translate(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A recipe, in its JSON form, out of Olive's document.

    Raises InputError, naming the key, for what is no JSON or not Olive's, for passes and parameters that are not here,
    and for values that would have to be searched for.
    """
    canonical.encode(value, what)
    if unknown := sorted(set(value) - {*OURS, *ENGINE}):
        raise InputError(f"{what}: Olive's documents have no key {unknown[0]!r}")
    notes = [_note(key, None, UNUSED) for key in value if key in ENGINE]
    axes: Mapping[str, str] = AXES if str(_kind(value)).lower() == "hfmodel" else {}
    recipe = _input(_mapping(value.get("input_model"), f"{what}: input_model"), what, notes)
    passes = _ordered(value, what)
    before, steps = None, []
    for name, asked in passes.items():
        step = {"name": name, **_step(name, asked, what, notes)}
        step["params"] = _with_axes(step["params"], axes, f"passes.{name}", notes)
        steps.append(step if before is None else {**step, "input": before})
        before = name
    return {**recipe, "steps": steps, "outputs": [_output(steps[-1])], "translation": notes}


def _note(field: str, value: Any, became: str) -> Note:
    return {"field": field, "value": value, "became": became}


def _input(model: Mapping[str, Any], what: str, notes: list[Note]) -> dict[str, Any]:
    """`source` and `task` of the recipe."""
    kind = str(model.get("type", "")).lower()
    given = {**{key: item for key, item in model.items() if key not in ("type", "config")}}
    given |= _mapping(model.get("config") or {}, f"{what}: input_model.config")
    path = given.pop("model_path", None)
    if isinstance(path, dict):
        path = _mapping(path.get("config") or path, f"{what}: input_model.model_path.config").get("path")
    if not isinstance(path, str):
        raise InputError(f"{what}: input_model names no model_path")
    if kind == "onnxmodel":
        file = given.pop("onnx_file_name", None)
        found = {"source": path if file is None else str(PurePosixPath(path) / str(file)), "task": "onnx"}
    elif kind == "hfmodel":
        found = {"source": path, "task": _task(str(given.pop("task", None) or DEFAULT_TASK), what)}
    else:
        raise InputError(
            f"{what}: input_model is a {model.get('type')!r}; HfModel and OnnxModel are read here",
            "a PyTorchModel is loaded by a script: write a recipe whose task loads it (docs/recipes.md)",
        )
    if code := next((key for key in CODE if given.get(key) is not None), None):
        raise InputError(
            f"{what}: input_model: {code} names code, which a document cannot have run",
            "write a recipe whose task loads it (docs/recipes.md)",
        )
    notes += [_note(f"input_model.{key}", None, UNUSED) for key in given]
    return found


def _task(name: str, what: str) -> str:
    if name not in TASKS:
        raise InputError(f"{what}: no task here is Olive's {name[:80]!r}", suggest(name, TASKS))
    return TASKS[name]


def _ordered(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The passes in the order in which they run."""
    passes = _mapping(value.get("passes") or {}, f"{what}: passes")
    flows = value.get("pass_flows") or []
    if not isinstance(flows, list) or not all(isinstance(flow, list) for flow in flows):
        raise InputError(f"{what}: pass_flows is not a list of lists of names")
    if flows:
        if len(flows) != 1:
            raise InputError(f"{what}: pass_flows has more than one flow", "export them one by one")
        if missing := [name for name in flows[0] if name not in list(passes)]:
            raise InputError(f"{what}: pass_flows names {missing[0]!r}, which is no pass there")
        passes = {name: passes[name] for name in flows[0]}
    if not passes:
        raise InputError(f"{what}: there are no passes to run")
    return dict(passes)


def _step(name: str, asked: Any, what: str, notes: list[Note]) -> dict[str, Any]:
    """`pass` and `params` of a step."""
    where = f"passes.{name}"
    if isinstance(asked, list) and asked:
        notes += [
            _note(f"{where}[{index}]", None, f"{UNUSED}: Olive would search")
            for index in range(1, len(asked))
        ]
        asked = asked[0]
    found = dict(_mapping(asked, f"{what}: {where}"))
    kind = _find(str(found.get("type", "")), f"{what}: {where}")
    given = {key: item for key, item in found.items() if key not in STEP_KEYS}
    given |= _mapping(found.get("config") or {}, f"{what}: {where}.config")
    notes += [_note(f"{where}.{key}", None, UNUSED) for key in ("host", "evaluator") if key in found]
    params, told = kind.translate(dict(_settled(given, f"{what}: {where}")), f"{what}: {where}")
    notes += [_note(f"{where}.{key}", item, became) for key, item, became in told]
    return {"pass": kind.id, "params": params}


def _kind(value: Mapping[str, Any]) -> Any:
    model = value.get("input_model")
    return model.get("type", "") if isinstance(model, dict) else ""


def _with_axes(
    params: Mapping[str, Any], axes: Mapping[str, str], where: str, notes: list[Note]
) -> dict[str, Any]:
    """Parameters with the names that axes have here: a graph that is made of a checkpoint has ours."""
    given = params.get("dim_param")
    if not isinstance(given, list) or axes.keys().isdisjoint(map(str, given)):
        return dict(params)
    ours = [axes.get(str(name), name) for name in given]
    notes.append(_note(f"{where}.dim_param", given, f"dim_param: {', '.join(map(str, ours))}"))
    return {**params, "dim_param": ours}


def _settled(given: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    """The parameters that have a value; InputError for one that Olive would search for."""
    for key, item in given.items():
        if item == "SEARCHABLE_VALUES" or (isinstance(item, dict) and "olive_parameter_type" in item):
            raise InputError(
                f"{where}: {key} is to be searched for", "give it a value: nothing is searched here"
            )
        if item != "DEFAULT_VALUE":
            yield key, item


def _find(kind: str, where: str) -> OlivePass:
    for each in PASSES:
        if each.id.lower() == kind.lower():
            return each
    for name, instead in REFUSED.items():
        if name.lower() == kind.lower():
            raise InputError(f"{where}: {name} cannot be taken over from Olive", instead)
    raise InputError(
        f"{where}: no pass here is Olive's {kind[:80]!r}", suggest(kind, [each.id for each in PASSES])
    )


def _output(step: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": step["name"], "path": "model.onnx"}


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what} is not a JSON object")
    return value
