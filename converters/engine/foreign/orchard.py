"""Orchard's `export:` section, all twelve fields, as a recipe; its defaults and field names are Orchard ML's.

Values that Orchard accepts and cannot mean are errors: an opset that no exporter has, an unbounded deviation,
more samples than anybody waits for. The recipe's `translation` states the effect of each field.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.schema.core.document import Count, ModelName, Text, WrittenDocument
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

SECTIONS = (
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
)
"""Orchard's other sections, which configure training: an export does not need them."""
RECIPE_KEYS = ("name", "source", "options", "checks")
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
        if self.blocks and self.quantization_backend == "fbgemm":
            raise ValueError(
                f"{self.quantization_type} has a scale for each block, not per channel as fbgemm"
            )
        return self

    @property
    def blocks(self) -> bool:
        return self.quantization_type in ("int4", "uint4")


class OrchardFiles(WrittenDocument):
    """Keys beside the section that Orchard does not know."""

    name: ModelName | None = None
    source: Text | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    checks: list[dict[str, Any]] = Field(default_factory=list)


def translate(document: Mapping[str, Any], label: str) -> RecipeFile:
    """Translate a document with an `export` section into a recipe.

    Raises InputError, naming the key, for an unknown key and for a value that makes no sense.
    """
    section = document["export"]
    if not isinstance(section, Mapping):
        raise InputError(f"{label}: export must be a section with keys")
    export = OrchardExport.from_json(section, f"{label}: export")
    siblings = OrchardFiles.from_json(
        {key: value for key, value in document.items() if key != "export" and key not in SECTIONS}, label
    )
    value = {
        **{
            key: item
            for key, item in (("name", siblings.name), ("source", siblings.source))
            if item is not None
        },
        "task": "image-classification",
        "options": _options(export, siblings.options, document.get("dataset"), label),
        "steps": list(_steps(export)),
        "outputs": list(_outputs(export)),
        "checks": [*_checks(export), *siblings.checks],
        **({"benchmark": {"runs": export.benchmark_runs}} if export.benchmark else {}),
        "translation": [
            {"field": name, "value": getattr(export, name), "became": note}
            for name, note in _notes(export).items()
        ],
    }
    return RecipeFile.from_json(value, label)


def _options(export: OrchardExport, options: Mapping[str, Any], dataset: Any, label: str) -> dict[str, Any]:
    """Merge the task's options with those that the section implies: samples and axes."""
    derived = {"samples": export.validation_samples, "fixed_batch": not export.dynamic_axes}
    if duplicate := next((key for key in derived if key in options), None):
        raise InputError(f"{label}: the option {duplicate} is said by the export section too")
    if "input" in options:
        return {**options, **derived}
    size = dataset.get("img_size") or dataset.get("resolution") if isinstance(dataset, Mapping) else None
    if not isinstance(size, int) or dataset.get("force_rgb", True) is not True:
        raise InputError(
            f"{label} does not say the shape of the input", "add: options: {input: [CHANNELS, HEIGHT, WIDTH]}"
        )
    return {**options, **derived, "input": [3, size, size]}


def _steps(export: OrchardExport) -> Iterator[dict[str, Any]]:
    yield {
        "name": "fp32",
        "pass": "OnnxConversion",
        "params": {
            "target_opset": export.opset_version,
            "use_dynamo_exporter": "auto" if export.do_constant_folding else False,
            "dynamic": export.dynamic_axes,
            "do_constant_folding": export.do_constant_folding,
        },
    }
    if export.quantize and export.blocks:
        symmetric = export.quantization_type == "int4"
        blocks = {"bits": 4, "block_size": BLOCK_SIZE, "is_symmetric": symmetric, "gemm": True}
        yield {"name": "quantized", "pass": "OnnxBlockWiseRtnQuantization", "input": "fp32", "params": blocks}
    elif export.quantize:
        params = {
            "weight_type": WEIGHT_TYPES[export.quantization_type],
            "op_types_to_quantize": ["MatMul", "Gemm", "Conv"],
            "per_channel": export.quantization_backend == "fbgemm",
        }
        yield {"name": "quantized", "pass": "OnnxDynamicQuantization", "input": "fp32", "params": params}


def _outputs(export: OrchardExport) -> Iterator[dict[str, Any]]:
    yield {"step": "fp32", "path": FP32_PATH}
    if export.quantize:
        yield {"step": "quantized", "path": INT8_PATH}


def _checks(export: OrchardExport) -> Iterator[dict[str, Any]]:
    if export.validate_export:
        yield {"output": FP32_PATH, "metric": "max_abs_diff", "max": export.max_deviation}


def _notes(export: OrchardExport) -> dict[str, str]:
    """Describe the outcome of each field, in Orchard's order."""
    unused = "not used: quantize is false"
    return {
        "format": f"{FP32_PATH}" + (f" and {INT8_PATH}" if export.quantize else ""),
        "opset_version": f"OnnxConversion.target_opset {export.opset_version}; another opset in the file is an error",
        "dynamic_axes": "the batch is dynamic, other axes are not"
        if export.dynamic_axes
        else "the batch is fixed at 1",
        "do_constant_folding": "OnnxConversion.do_constant_folding"
        + ("" if export.do_constant_folding else ", by the exporter that can leave it out"),
        "quantize": _quantize(export) if export.quantize else "nothing is quantized",
        "quantization_type": _weights(export) if export.quantize else unused,
        "quantization_backend": _backend(export) if export.quantize else unused,
        "validate_export": f"every output of {FP32_PATH} is held against the module, one by one and in batches"
        if export.validate_export
        else "measured and recorded, without a limit",
        "validation_samples": f"option samples {export.validation_samples}, with a seed",
        "max_deviation": f"check max_abs_diff at most {export.max_deviation:g} on {FP32_PATH}; beyond it nothing is published"
        if export.validate_export
        else "not used: validate_export is false",
        "benchmark": "median and 95th percentile after a warm-up, on record beside the version"
        if export.benchmark
        else "nothing is timed",
        "benchmark_runs": f"benchmark.runs {export.benchmark_runs}"
        if export.benchmark
        else "not used: benchmark is false",
    }


def _quantize(export: OrchardExport) -> str:
    kind = "OnnxBlockWiseRtnQuantization" if export.blocks else "OnnxDynamicQuantization"
    return f"{kind} to {INT8_PATH}; no limit on its deviation: judge it with evaluation.suite"


def _weights(export: OrchardExport) -> str:
    if export.blocks:
        zero = "symmetric" if export.quantization_type == "int4" else "with a zero point"
        return f"4 bits, {zero}, of Gemm and MatMul; Conv stays as it is; an error where there is no other"
    if export.quantization_type == "int8":
        return "QInt8 of Conv, Gemm and MatMul; on a CPU a Conv with signed weights is slower than in float32: uint8 is less so"
    return "QUInt8 of Conv, Gemm and MatMul; on a CPU a Conv is no faster than in float32"


def _backend(export: OrchardExport) -> str:
    if export.blocks:
        return f"not used: a scale for each block of {BLOCK_SIZE}"
    scales = "per channel (of Gemm and MatMul)" if export.quantization_backend == "fbgemm" else "per tensor"
    return f"scales {scales}; ONNX Runtime has no such engine"
