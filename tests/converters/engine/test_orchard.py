"""Orchard's `export:` section: what each of its twelve fields becomes, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.engine.read_recipe import from_value, read_recipe
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

FIELDS = [
    "format",
    "opset_version",
    "dynamic_axes",
    "do_constant_folding",
    "quantize",
    "quantization_type",
    "quantization_backend",
    "validate_export",
    "validation_samples",
    "max_deviation",
    "benchmark",
    "benchmark_runs",
]
OPTIONS = {"input": [3, 28, 28]}


def recipe(export: Any = None, **more: Any) -> RecipeFile:
    return from_value(
        {"options": OPTIONS, **more, "export": {} if export is None else export}, "orchard.yaml"
    )


def step(found: RecipeFile, name: str) -> dict[str, Any]:
    return next(dict(one.params) for one in found.steps if one.name == name)


def told(found: RecipeFile) -> dict[str, str]:
    return {each.field: each.became for each in found.translation}


def test_an_empty_section_has_orchards_defaults() -> None:
    found = recipe()
    assert (found.task, found.benchmark) == ("image-classification", None)
    assert [one.name for one in found.steps] == ["fp32"]
    assert [output.path for output in found.outputs] == ["exports/model.onnx"]
    assert found.options == {"input": [3, 28, 28], "samples": 10, "fixed_batch": False}
    (check,) = found.checks
    assert (check.output, check.metric, check.max) == ("exports/model.onnx", "max_abs_diff", 1e-4)
    values = {each.field: each.value for each in found.translation}
    assert list(values) == FIELDS
    assert values["opset_version"] == 18
    assert values["benchmark_runs"] == 100


def test_every_field_says_what_became_of_it() -> None:
    """Another value of a field is another recipe or another word about it, never silence."""
    base = {"quantize": True, "benchmark": True}
    others: dict[str, Any] = {
        "opset_version": 17,
        "dynamic_axes": False,
        "do_constant_folding": False,
        "quantize": False,
        "quantization_type": "uint8",
        "quantization_backend": "fbgemm",
        "validate_export": False,
        "validation_samples": 3,
        "max_deviation": 0.01,
        "benchmark": False,
        "benchmark_runs": 7,
    }
    before = recipe(base)
    assert {*others, "format"} == set(FIELDS)
    for field, value in others.items():
        after = recipe({**base, field: value})
        assert told(after)[field] != told(before)[field], field
        assert (after.steps, after.outputs, after.checks, after.options, after.benchmark) != (
            before.steps,
            before.outputs,
            before.checks,
            before.options,
            before.benchmark,
        ), field


@pytest.mark.parametrize(
    ("kind", "backend", "expected"),
    [
        ("int8", "qnnpack", {"weight_type": "QInt8", "per_channel": False}),
        ("int8", "fbgemm", {"weight_type": "QInt8", "per_channel": True}),
        ("uint8", "qnnpack", {"weight_type": "QUInt8", "per_channel": False}),
        ("uint8", "fbgemm", {"weight_type": "QUInt8", "per_channel": True}),
        ("int4", "qnnpack", {"bits": 4, "is_symmetric": True, "gemm": True}),
        ("uint4", "qnnpack", {"bits": 4, "is_symmetric": False, "gemm": True}),
    ],
)
def test_types_and_backends(kind: str, backend: str, expected: dict[str, Any]) -> None:
    found = recipe({"quantize": True, "quantization_type": kind, "quantization_backend": backend})
    assert expected.items() <= step(found, "quantized").items()
    assert [output.path for output in found.outputs] == ["exports/model.onnx", "exports/model_quantized.onnx"]


def test_no_tolerance_is_made_up_for_the_quantized_file() -> None:
    found = recipe({"quantize": True, "max_deviation": 0.001})
    assert [check.output for check in found.checks] == ["exports/model.onnx"]
    size = {"output": "exports/model_quantized.onnx", "metric": "bytes", "max": 10**6}
    assert len(recipe({"quantize": True}, checks=[size]).checks) == 2


def test_without_validation_nothing_is_limited() -> None:
    found = recipe({"validate_export": False})
    assert found.checks == ()
    assert told(found)["max_deviation"] == "not used"


def test_constants_are_left_by_the_exporter_that_can() -> None:
    params = step(recipe({"do_constant_folding": False}), "fp32")
    assert (params["use_dynamo_exporter"], params["do_constant_folding"]) == (False, False)
    assert step(recipe(), "fp32")["use_dynamo_exporter"] == "auto"


def test_a_whole_configuration_of_orchard_runs_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "config_mini_cnn.yaml"
    path.write_text(
        "task_type: classification\n"
        "dataset: {name: bloodmnist, resolution: 28, img_size: null, force_rgb: true}\n"
        "architecture: {name: mini_cnn, pretrained: false}\n"
        "training: {epochs: 60, batch_size: 128}\n"
        "export:\n  format: onnx\n  opset_version: 18\n  dynamic_axes: true\n  do_constant_folding: true\n"
        "  quantize: true\n  quantization_type: uint8\n  quantization_backend: fbgemm\n  validate_export: true\n"
        "  validation_samples: 10\n  max_deviation: 1e-4\n  benchmark: true\n  benchmark_runs: 20\n",
        "utf-8",
    )
    found = read_recipe(path)
    assert found.options["input"] == [3, 28, 28]
    assert found.benchmark is not None and found.benchmark.runs == 20
    assert RecipeFile.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("export", "message"),
    [
        ({"opset_version": 3}, "export.*opset_version"),
        ({"opset_version": 999}, "opset_version"),
        ({"opset_version": True}, "opset_version"),
        ({"opset_version": "18"}, "opset_version"),
        ({"max_deviation": float("inf")}, "inf|finite|number"),
        ({"max_deviation": 1e9}, "max_deviation"),
        ({"max_deviation": 0}, "max_deviation"),
        ({"max_deviation": float("nan")}, "nan|finite|number"),
        ({"validation_samples": 10**9}, "validation_samples"),
        ({"validation_samples": 0}, "validation_samples"),
        ({"benchmark_runs": 10**9}, "benchmark_runs"),
        ({"quantize": "yes"}, "quantize"),
        ({"dynamic_axes": 1}, "dynamic_axes"),
        ({"quantization_type": "fp16"}, "quantization_type"),
        ({"quantization_backend": "x86"}, "quantization_backend"),
        ({"quantization_type": "int4", "quantization_backend": "fbgemm"}, "scale for each block"),
        ({"format": "torchscript"}, "format"),
        ({"opset": 18}, "opset"),
        ([], "must be a section with keys"),
        (None, "must be a section with keys"),
        ("onnx", "must be a section with keys"),
    ],
)
def test_invalid_sections_are_refused(export: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_value({"options": OPTIONS, "export": export}, "orchard.yaml")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"export": {}}, "does not say the shape of the input"),
        ({"export": {}, "dataset": {"resolution": 28, "force_rgb": False}}, "the shape of the input"),
        ({"export": {}, "dataset": "bloodmnist"}, "the shape of the input"),
        ({"export": {}, "options": {**OPTIONS, "samples": 3}}, "set by the export section too"),
        ({"export": {}, "options": OPTIONS, "steps": []}, "steps"),
        ({"export": {}, "options": OPTIONS, "exprot": {}}, "exprot"),
    ],
)
def test_invalid_documents_are_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_value(document, "orchard.yaml")
