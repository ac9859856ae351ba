"""Orchard's `export:` section, all twelve fields, as a recipe; its defaults and field names are Orchard ML's.

Values that Orchard accepts and cannot mean are errors: an opset that no exporter has, an unbounded deviation,
more samples than anybody waits for. The recipe's `translation` states the effect of each field.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.schema.core.document import Count, WrittenDocument
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

SECTIONS = frozenset(
    [
        "task_type",
        "hardware",
        "telemetry",
        "training",
        "augmentation",
        "dataset",
        "evaluation",
        "architecture",
        "optuna",
        "tracking",
    ]
)
"""Orchard's other sections, which configure training: an export does not need them."""
RECIPE_KEYS = frozenset({"name", "source", "options", "checks"})
"""Recipe keys allowed beside the section: see `recipe_file.RecipeFile`."""
FP32_PATH, INT8_PATH = "exports/model.onnx", "exports/model_quantized.onnx"
WEIGHT_TYPES = {"int8": "QInt8", "uint8": "QUInt8"}
BLOCK_SIZE = 32


class OrchardExport(WrittenDocument):
    """The section. Flags are true or false, and nothing that merely looks like it."""

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


def translate(document: Mapping[str, Any], label: str) -> RecipeFile:
    """Translate a document with an `export` section into a recipe.

    Raises InputError, naming the key, for an unknown key and for a value that makes no sense.
    """
    section = document["export"]
    if not isinstance(section, Mapping):
        raise InputError(f"{label}: export must be a section with keys")
    export = OrchardExport.from_json(section, f"{label}: export")
    if unknown := sorted(document.keys() - {"export", *SECTIONS, *RECIPE_KEYS}):
        raise InputError(
            f"{label}: there is no key {unknown[0][:80]!r} beside export",
            f"these may be there: {', '.join(sorted(RECIPE_KEYS))}",
        )
    beside = {key: document[key] for key in RECIPE_KEYS & document.keys()}
    steps, outputs = [_conversion(export)], [{"step": "fp32", "path": FP32_PATH}]
    if export.quantize:
        steps.append({"name": "quantized", "input": "fp32", **_quantization(export)})
        outputs.append({"step": "quantized", "path": INT8_PATH})
    limit = {"output": FP32_PATH, "metric": "max_abs_diff", "max": export.max_deviation}
    value = {
        **beside,
        "task": "image-classification",
        "options": _options(export, beside.get("options") or {}, document.get("dataset"), label),
        "steps": steps,
        "outputs": outputs,
        "checks": [*([limit] if export.validate_export else []), *(beside.get("checks") or [])],
        **({"benchmark": {"runs": export.benchmark_runs}} if export.benchmark else {}),
        "translation": [
            {"field": name, "value": getattr(export, name), "became": outcome}
            for name, outcome in _outcomes(export).items()
        ],
    }
    return RecipeFile.from_json(value, label)


def _options(export: OrchardExport, options: Any, dataset: Any, label: str) -> dict[str, Any]:
    """Merge the task's options with those that the section implies: samples and axes."""
    if not isinstance(options, dict):
        raise InputError(f"{label}: options must be a section with keys")
    derived = {"samples": export.validation_samples, "fixed_batch": not export.dynamic_axes}
    if duplicate := sorted(derived.keys() & options.keys()):
        raise InputError(f"{label}: the option {duplicate[0]} is set by the export section too")
    if "input" in options:
        return {**options, **derived}
    size = dataset.get("img_size") or dataset.get("resolution") if isinstance(dataset, Mapping) else None
    if not isinstance(size, int) or dataset.get("force_rgb", True) is not True:
        raise InputError(
            f"{label} does not say the shape of the input", "add: options: {input: [CHANNELS, HEIGHT, WIDTH]}"
        )
    return {**options, **derived, "input": [3, size, size]}


def _conversion(export: OrchardExport) -> dict[str, Any]:
    params = {
        "target_opset": export.opset_version,
        "use_dynamo_exporter": "auto" if export.do_constant_folding else False,
        "dynamic": export.dynamic_axes,
        "do_constant_folding": export.do_constant_folding,
    }
    return {"name": "fp32", "pass": "OnnxConversion", "params": params}


def _quantization(export: OrchardExport) -> dict[str, Any]:
    kind = export.quantization_type
    if kind not in WEIGHT_TYPES:
        params: dict[str, Any] = {
            "bits": 4,
            "block_size": BLOCK_SIZE,
            "is_symmetric": kind == "int4",
            "gemm": True,
        }
        return {"pass": "OnnxBlockWiseRtnQuantization", "params": params}
    params = {
        "weight_type": WEIGHT_TYPES[kind],
        "op_types_to_quantize": ["MatMul", "Gemm", "Conv"],
        "per_channel": export.quantization_backend == "fbgemm",
    }
    return {"pass": "OnnxDynamicQuantization", "params": params}


def _outcomes(export: OrchardExport) -> dict[str, str]:
    """The effect of each field, in Orchard's order."""
    step = _quantization(export)
    params = ", ".join(f"{key}: {value}" for key, value in step["params"].items())
    quantized, limit = export.quantize, f"max_abs_diff: {export.max_deviation:g}"
    unused = {
        "quantization_type": not quantized,
        "quantization_backend": not quantized,
        "max_deviation": not export.validate_export,
        "benchmark_runs": not export.benchmark,
    }
    outcomes = {
        "format": f"{FP32_PATH} and {INT8_PATH}" if quantized else FP32_PATH,
        "opset_version": f"target_opset: {export.opset_version}",
        "dynamic_axes": f"fixed_batch: {not export.dynamic_axes}",
        "do_constant_folding": f"do_constant_folding: {export.do_constant_folding}",
        "quantize": f"{step['pass']} to {INT8_PATH}" if quantized else "nothing is quantized",
        "quantization_type": params,
        "quantization_backend": params,
        "validate_export": f"a limit on {FP32_PATH}" if export.validate_export else "no limit",
        "validation_samples": f"samples: {export.validation_samples}",
        "max_deviation": limit,
        "benchmark": "timed, on record beside the version" if export.benchmark else "nothing is timed",
        "benchmark_runs": f"runs: {export.benchmark_runs}",
    }
    return {key: "not used" if unused.get(key) else outcome for key, outcome in outcomes.items()}
