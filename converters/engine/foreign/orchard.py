"""Orchard's `export:` section, all twelve fields, as a recipe; its defaults and field names are Orchard ML's.

What Orchard accepts and cannot mean is an error: an opset that no exporter has, a deviation without an end, more samples
than anybody waits for. What its fields do here, each says in the recipe's `translation`.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from onnxreg.schema.core.document import Count, ModelName, Text
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile, Strict

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
"""Orchard's other sections, which say how a model is trained: an export does not need them."""
OWN = ("name", "source", "options", "checks")
"""What a recipe of ours may say beside the section: see `recipe_file.RecipeFile`."""
FP32, INT8 = "exports/model.onnx", "exports/model_quantized.onnx"
WEIGHT_TYPES = {"int8": "QInt8", "uint8": "QUInt8"}
BLOCK = 32


class OrchardExport(Strict):
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


class OrchardFiles(Strict):
    """What stands beside the section, and Orchard does not know."""

    name: ModelName | None = None
    source: Text | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    checks: list[dict[str, Any]] = Field(default_factory=list)


def translate(document: Mapping[str, Any], what: str) -> RecipeFile:
    """The recipe of a document with an `export` section.

    Raises InputError, naming the key, for one that neither Orchard nor a recipe has, and for a value that makes no sense.
    """
    given = document["export"]
    if not isinstance(given, Mapping):
        raise InputError(f"{what}: export is no section with keys")
    asked = OrchardExport.from_json(given, f"{what}: export")
    beside = OrchardFiles.from_json(
        {key: value for key, value in document.items() if key != "export" and key not in SECTIONS}, what
    )
    value = {
        **{key: item for key, item in (("name", beside.name), ("source", beside.source)) if item is not None},
        "task": "image-classification",
        "options": _options(asked, beside.options, document.get("dataset"), what),
        "steps": list(_steps(asked)),
        "outputs": list(_outputs(asked)),
        "checks": [*_checks(asked), *beside.checks],
        **({"benchmark": {"runs": asked.benchmark_runs}} if asked.benchmark else {}),
        "translation": [
            {"field": name, "value": getattr(asked, name), "became": became}
            for name, became in _told(asked).items()
        ],
    }
    return RecipeFile.from_json(value, what)


def _options(asked: OrchardExport, own: Mapping[str, Any], dataset: Any, what: str) -> dict[str, Any]:
    """The options of the task: ours, and what the section says of samples and axes."""
    said = {"samples": asked.validation_samples, "fixed_batch": not asked.dynamic_axes}
    if twice := next((key for key in said if key in own), None):
        raise InputError(f"{what}: the option {twice} is said by the export section too")
    if "input" in own:
        return {**own, **said}
    size = dataset.get("img_size") or dataset.get("resolution") if isinstance(dataset, Mapping) else None
    if not isinstance(size, int) or dataset.get("force_rgb", True) is not True:
        raise InputError(
            f"{what} does not say the shape of the input", "add: options: {input: [CHANNELS, HEIGHT, WIDTH]}"
        )
    return {**own, **said, "input": [3, size, size]}


def _steps(asked: OrchardExport) -> Iterator[dict[str, Any]]:
    yield {
        "name": "fp32",
        "pass": "OnnxConversion",
        "params": {
            "target_opset": asked.opset_version,
            "use_dynamo_exporter": "auto" if asked.do_constant_folding else False,
            "dynamic": asked.dynamic_axes,
            "do_constant_folding": asked.do_constant_folding,
        },
    }
    if asked.quantize and asked.blocks:
        symmetric = asked.quantization_type == "int4"
        blocks = {"bits": 4, "block_size": BLOCK, "is_symmetric": symmetric, "gemm": True}
        yield {"name": "quantized", "pass": "OnnxBlockWiseRtnQuantization", "input": "fp32", "params": blocks}
    elif asked.quantize:
        params = {
            "weight_type": WEIGHT_TYPES[asked.quantization_type],
            "op_types_to_quantize": ["MatMul", "Gemm", "Conv"],
            "per_channel": asked.quantization_backend == "fbgemm",
        }
        yield {"name": "quantized", "pass": "OnnxDynamicQuantization", "input": "fp32", "params": params}


def _outputs(asked: OrchardExport) -> Iterator[dict[str, Any]]:
    yield {"step": "fp32", "path": FP32}
    if asked.quantize:
        yield {"step": "quantized", "path": INT8}


def _checks(asked: OrchardExport) -> Iterator[dict[str, Any]]:
    if asked.validate_export:
        yield {"output": FP32, "metric": "max_abs_diff", "max": asked.max_deviation}


def _told(asked: OrchardExport) -> dict[str, str]:
    """What became of each field, in Orchard's order."""
    unused = "not used: quantize is false"
    return {
        "format": f"{FP32}" + (f" and {INT8}" if asked.quantize else ""),
        "opset_version": f"OnnxConversion.target_opset {asked.opset_version}; another opset in the file is an error",
        "dynamic_axes": "the batch is dynamic, other axes are not"
        if asked.dynamic_axes
        else "the batch is fixed at 1",
        "do_constant_folding": "OnnxConversion.do_constant_folding"
        + ("" if asked.do_constant_folding else ", by the exporter that can leave it out"),
        "quantize": _quantize(asked) if asked.quantize else "nothing is quantized",
        "quantization_type": _weights(asked) if asked.quantize else unused,
        "quantization_backend": _backend(asked) if asked.quantize else unused,
        "validate_export": f"every output of {FP32} is held against the module, one by one and in batches"
        if asked.validate_export
        else "measured and recorded, without a limit",
        "validation_samples": f"option samples {asked.validation_samples}, with a seed",
        "max_deviation": f"check max_abs_diff at most {asked.max_deviation:g} on {FP32}; beyond it nothing is published"
        if asked.validate_export
        else "not used: validate_export is false",
        "benchmark": "median and 95th percentile after a warm-up, on record beside the version"
        if asked.benchmark
        else "nothing is timed",
        "benchmark_runs": f"benchmark.runs {asked.benchmark_runs}"
        if asked.benchmark
        else "not used: benchmark is false",
    }


def _quantize(asked: OrchardExport) -> str:
    kind = "OnnxBlockWiseRtnQuantization" if asked.blocks else "OnnxDynamicQuantization"
    return f"{kind} to {INT8}; no limit on its deviation: give options.dataset and a check of accuracy_loss"


def _weights(asked: OrchardExport) -> str:
    if asked.blocks:
        zero = "symmetric" if asked.quantization_type == "int4" else "with a zero point"
        return f"4 bits, {zero}, of Gemm and MatMul; Conv stays as it is; an error where there is no other"
    if asked.quantization_type == "int8":
        return "QInt8 of Conv, Gemm and MatMul; on a CPU a Conv with signed weights is slower than in float32: uint8 is less so"
    return "QUInt8 of Conv, Gemm and MatMul; on a CPU a Conv is no faster than in float32"


def _backend(asked: OrchardExport) -> str:
    if asked.blocks:
        return f"not used: a scale for each block of {BLOCK}"
    scales = "per channel (of Gemm and MatMul)" if asked.quantization_backend == "fbgemm" else "per tensor"
    return f"scales {scales}; ONNX Runtime has no such engine"
