"""Translate other tools' documents into recipes: Olive's workflows, and the section `export:` of Orchard ML.

A field that a recipe cannot express is an error. For every other field, the recipe records its translation.
`olive.yaml` lists Olive's passes (olive-ai 0.13, https://microsoft.github.io/Olive/reference/options.html).
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.converters.passes import pass_catalog
from onnxreg.schema.core import canonical
from onnxreg.schema.core.document import Count, WrittenDocument
from onnxreg.schema.core.errors import InputError, about, suggest
from onnxreg.schema.core.files import read_yaml

WEIGHT_TYPES = {"int8": "QInt8", "uint8": "QUInt8"}
UNUSED = "not used"
TABLE = Path(__file__).with_name("olive.yaml")
DEFAULT_TASK = "text-generation-with-past"
AXES = {"batch_size": "batch", "sequence_length": "sequence"}
Notes = list[dict[str, Any]]
"""For each field of a document: its name, its value, and its translation (`recipe_file.FieldTranslation`)."""


@cache
def table() -> Any:
    return read_yaml(TABLE.read_bytes(), TABLE.name, "export")


def translate_olive(value: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a document of Olive into a recipe in JSON form. Raise InputError if a recipe cannot express it."""
    canonical.encode(value)
    if unknown := sorted(set(value) - {"input_model", "passes", *table()["engine"]}):
        raise InputError(f"{unknown[0]!r} is not read in documents of Olive", "take it out")
    notes = [_note(key, None, UNUSED) for key in value if key in table()["engine"]]
    model = _mapping(value.get("input_model"), "input_model")
    passes = _mapping(value.get("passes") or {}, "passes")
    fields = _source_and_task(model, notes)
    if not passes:
        raise InputError("there are no passes to run")
    axes, steps = AXES if fields["task"] != "onnx" else {}, list[dict[str, Any]]()
    for name, config in passes.items():
        settings = _mapping(config, f"passes.{name}")
        with about(f"passes.{name}"):
            step = {"name": name, **_step(f"passes.{name}", settings, notes)}
        axes = {} if step["pass"] == "ModelBuilder" else axes  # its graphs have Olive's names already
        names = step["params"].get("dim_param")
        if isinstance(names, list) and not axes.keys().isdisjoint(map(str, names)):
            step["params"]["dim_param"] = renamed = [axes.get(str(axis), axis) for axis in names]
            became = f"dim_param: {', '.join(map(str, renamed))}"
            notes.append(_note(f"passes.{name}.dim_param", names, became))
        steps.append({**step, "input": steps[-1]["name"]} if steps else step)
    outputs = [{"step": steps[-1]["name"], "path": "model.onnx"}]
    return {**fields, "steps": steps, "outputs": outputs, "translation": notes}


def _note(field: str, value: Any, outcome: str) -> dict[str, Any]:
    return {"field": field, "value": value, "became": outcome}


def _source_and_task(model: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    kind = str(model.get("type", ""))
    options = {key: item for key, item in model.items() if key not in ("type", "config")}
    options |= _mapping(model.get("config") or {}, "input_model.config")
    path = options.pop("model_path", None)
    if not isinstance(path, str):
        raise InputError("input_model names no model_path", 'write "model_path": "DIRECTORY" or a hub id')
    if kind.lower() == "onnxmodel":
        file = options.pop("onnx_file_name", None)
        fields = {"source": path if file is None else str(PurePosixPath(path) / str(file)), "task": "onnx"}
    elif kind.lower() == "hfmodel":
        task = str(options.pop("task", None) or DEFAULT_TASK)
        if task not in table()["tasks"]:
            raise InputError(f"no task here is Olive's {task[:80]!r}", suggest(task, table()["tasks"]))
        fields = {"source": path, "task": table()["tasks"][task]}
        options |= _mapping(options.pop("load_kwargs", None) or {}, "input_model.load_kwargs")
    else:
        hint = "a PyTorchModel is loaded by a script: write a recipe whose task loads it (docs/recipes.md)"
        raise InputError(f"input_model is a {kind[:80]!r}; HfModel and OnnxModel are read here", hint)
    for key, item in options.items():
        if key in table()["code"] and item is not None:
            hint = "write a recipe whose task loads it (docs/recipes.md)"
            raise InputError(f"input_model: {key} names code, which a document cannot have run", hint)
        if key not in table()["idle"] and item not in (None, False):
            hint = "take it out, or apply it to the model first; a revision goes into the path: ID@REVISION"
            raise InputError(f"input_model: {key[:80]} changes the model, and is not supported", hint)
        notes.append(_note(f"input_model.{key}", None, UNUSED))  # it may be a token or a path
    return fields


def _step(field: str, config: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """Translate an Olive pass to a step's `pass` and `params`. Changed parameters go into `notes`."""
    kind, rules = _find(str(config.get("type", "")))
    apart = ("type", "config", "host", "evaluator")
    options = {key: item for key, item in config.items() if key not in apart}
    options |= _mapping(config.get("config") or {}, "config")
    notes += [_note(f"{field}.{key}", None, UNUSED) for key in ("host", "evaluator") if key in config]
    aliases = {
        alias: name
        for name, info in pass_catalog.find(kind).Params.model_fields.items()
        for alias in (name, *getattr(info.validation_alias, "choices", ()))
    }
    unused = {**dict.fromkeys(table()["layout"], "files are stored by their size"), **rules.get("unused", {})}
    only, params = rules.get("only", {}), dict[str, Any]()
    for key, item in options.items():
        if item == "SEARCHABLE_VALUES" or (isinstance(item, dict) and "olive_parameter_type" in item):
            raise InputError(f"{key} is to be searched for", "give it a value: nothing is searched here")
        if item == "DEFAULT_VALUE":
            continue
        if key == "precision" and kind == "OnnxDynamicQuantization":
            params["weight_type"] = WEIGHT_TYPES.get(str(item).lower(), item)
            notes.append(_note(f"{field}.{key}", item, f"weight_type: {params['weight_type']}"))
        elif key in unused:
            notes.append(_note(f"{field}.{key}", None, f"{UNUSED}: {unused[key]}"))
        elif key in only:
            if item not in only[key]:
                values = " or ".join(map(repr, only[key]))
                raise InputError(f"{key} can only be {values} here, not {item!r:.80}")
            notes.append(_note(f"{field}.{key}", item, "as it is here anyway"))
        elif key not in aliases:
            known_names = [*aliases, *unused, *only]
            raise InputError(f"{kind} has no parameter {key[:80]!r} here", suggest(key, known_names))
        elif item is not None and aliases[key] in params:
            raise InputError(f"{key} is another name of {aliases[key]}, which is given too")
        elif item is not None:
            params[aliases[key]] = item
    for key, item in rules.get("defaults", {}).items():
        if key not in params:
            params[key] = item
            notes.append(_note(f"{field}.{key}", item, "Olive's default"))
    reasons = rules.get("ours", {}).items()
    notes += [_note(f"{field}.{key}", None, reason) for key, reason in reasons if options.get(key) is None]
    return {"pass": kind, "params": params}


def _find(kind: str) -> tuple[str, Mapping[str, Any]]:
    for name, rules in table()["passes"].items():
        if name.lower() == kind.lower():
            return name, rules
    for name, instead in table()["refused"].items():
        if name.lower() == kind.lower():
            raise InputError(f"{name} cannot be taken over from Olive", instead)
    raise InputError(f"no pass here is Olive's {kind[:80]!r}", suggest(kind, table()["passes"]))


def _mapping(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{field} is not a JSON object")
    return value


# fmt: off
SECTIONS = frozenset({
    "task_type", "hardware", "telemetry", "training", "augmentation", "dataset", "evaluation", "architecture", "optuna",
    "tracking",
})
# fmt: on
"""Orchard's sections that are ignored."""
RECIPE_KEYS = frozenset({"name", "source", "options", "checks"})
"""The keys of a recipe that are allowed beside the section `export`."""
FP32_PATH, INT8_PATH = "exports/model.onnx", "exports/model_quantized.onnx"


class OrchardExport(WrittenDocument):
    """The `export` section of an Orchard document. Flags must be true or false, not numbers or texts."""

    format: Literal["onnx"] = "onnx"
    opset_version: Annotated[Count, Field(ge=7, le=26)] = 18
    dynamic_axes: bool = True
    do_constant_folding: bool = True
    quantize: bool = False
    quantization_type: Literal["int8", "uint8", "int4", "uint4"] = "int8"
    quantization_backend: Literal["qnnpack", "fbgemm"] = "qnnpack"
    validate_export: bool = True
    validation_samples: Annotated[Count, Field(gt=0, le=10_000)] = 10
    max_deviation: Annotated[float, Field(gt=0, le=1)] = 1e-4
    benchmark: bool = False
    benchmark_runs: Annotated[Count, Field(gt=0, le=100_000)] = 100

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.quantization_type not in WEIGHT_TYPES and self.quantization_backend == "fbgemm":
            raise ValueError(
                f"{self.quantization_type} has a scale for each block, not per channel as fbgemm"
            )
        return self


def translate_orchard(document: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a document of Orchard into a recipe in JSON form. Raise InputError about a wrong key or value."""
    section = document["export"]
    if not isinstance(section, Mapping):
        raise InputError("export must be a section with keys")
    export = OrchardExport.from_json(section, "export")
    if unknown := sorted(document.keys() - {"export", *SECTIONS, *RECIPE_KEYS}):
        hint = f"these may be there: {', '.join(sorted(RECIPE_KEYS))}"
        raise InputError(f"there is no key {unknown[0][:80]!r} beside export", hint)
    beside = {key: document[key] for key in RECIPE_KEYS & document.keys()}
    conversion = {
        "target_opset": export.opset_version,
        "use_dynamo_exporter": "auto" if export.do_constant_folding else False,
        "dynamic": export.dynamic_axes,
        "do_constant_folding": export.do_constant_folding,
    }
    steps: list[dict[str, Any]] = [{"name": "fp32", "pass": "OnnxConversion", "params": conversion}]
    outputs = [{"step": "fp32", "path": FP32_PATH}]
    if export.quantize:
        steps.append({"name": "quantized", "input": "fp32", **_quantization(export)})
        outputs.append({"step": "quantized", "path": INT8_PATH})
    limit = {"output": FP32_PATH, "metric": "max_abs_diff", "max": export.max_deviation}
    return {
        **beside,
        "task": "image-classification",
        "options": _options(export, beside.get("options") or {}, document.get("dataset")),
        "steps": steps,
        "outputs": outputs,
        "checks": [*([limit] if export.validate_export else []), *(beside.get("checks") or [])],
        **({"benchmark": {"runs": export.benchmark_runs}} if export.benchmark else {}),
        "translation": [_note(name, getattr(export, name), text) for name, text in _outcomes(export).items()],
    }


def _options(export: OrchardExport, options: Any, dataset: Any) -> dict[str, Any]:
    if not isinstance(options, dict):
        raise InputError("options must be a section with keys")
    derived = {"samples": export.validation_samples, "fixed_batch": not export.dynamic_axes}
    if duplicate := sorted(derived.keys() & options.keys()):
        raise InputError(f"the option {duplicate[0]} is set by the export section too")
    if "input" in options:
        return {**options, **derived}
    size = dataset.get("img_size") or dataset.get("resolution") if isinstance(dataset, Mapping) else None
    if not isinstance(size, int) or dataset.get("force_rgb", True) is not True:
        hint = "add: options: {input: [CHANNELS, HEIGHT, WIDTH]}"
        raise InputError("nothing says the shape of the input", hint)
    return {**options, **derived, "input": [3, size, size]}


def _quantization(export: OrchardExport) -> dict[str, Any]:
    kind = export.quantization_type
    if kind not in WEIGHT_TYPES:
        params: dict[str, Any] = {"bits": 4, "block_size": 32, "is_symmetric": kind == "int4", "gemm": True}
        return {"pass": "OnnxBlockWiseRtnQuantization", "params": params}
    params = {
        "weight_type": WEIGHT_TYPES[kind],
        "op_types_to_quantize": ["MatMul", "Gemm", "Conv"],
        "per_channel": export.quantization_backend == "fbgemm",
    }
    return {"pass": "OnnxDynamicQuantization", "params": params}


def _outcomes(export: OrchardExport) -> dict[str, str]:
    step, quantized = _quantization(export), export.quantize
    params = ", ".join(f"{key}: {value}" for key, value in step["params"].items()) if quantized else UNUSED
    return {
        "format": f"{FP32_PATH} and {INT8_PATH}" if quantized else FP32_PATH,
        "opset_version": f"target_opset: {export.opset_version}",
        "dynamic_axes": f"fixed_batch: {not export.dynamic_axes}",
        "do_constant_folding": f"do_constant_folding: {export.do_constant_folding}",
        "quantize": f"{step['pass']} to {INT8_PATH}" if quantized else "nothing is quantized",
        "quantization_type": params,
        "quantization_backend": params,
        "validate_export": f"a limit on {FP32_PATH}" if export.validate_export else "no limit",
        "validation_samples": f"samples: {export.validation_samples}",
        "max_deviation": f"max_abs_diff: {export.max_deviation:g}" if export.validate_export else UNUSED,
        "benchmark": "timed, on record beside the version" if export.benchmark else "nothing is timed",
        "benchmark_runs": f"runs: {export.benchmark_runs}" if export.benchmark else UNUSED,
    }
