"""Olive's documents: what becomes of each part, and what is refused."""

from datetime import date
from typing import Any

import pytest

from onnxreg.converters.engine.foreign import table
from onnxreg.converters.engine.read_recipe import from_value
from onnxreg.converters.passes import pass_catalog
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

OLIVE = ["SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "Relu", "Add"]
ONNX = {"type": "OnnxModel", "model_path": "model.onnx"}
ENGINE = {
    "systems": {"local_system": {"type": "LocalSystem", "accelerators": [{"device": "cpu"}]}},
    "evaluators": {"common": {"metrics": [{"name": "latency", "type": "latency"}]}},
    "engine": {"target": "local_system", "cache_dir": "/home/somebody/cache", "log_severity_level": 0},
    "output_dir": "/home/somebody/models",
    "search_strategy": False,
}


def read(passes: Any, model: dict[str, Any] = ONNX, **more: Any) -> RecipeFile:
    return from_value({"input_model": model, "passes": passes, **more}, "olive.json")


def params(passes: Any) -> dict[str, Any]:
    (step,) = read(passes).steps
    return dict(step.params)


def told(recipe: RecipeFile) -> dict[str, str]:
    return {each.field: each.became for each in recipe.translation}


def test_a_workflow_is_a_chain_whose_last_result_is_published() -> None:
    recipe = read(
        {
            "conversion": {"type": "OnnxConversion", "config": {"target_opset": 17}},
            "io": {"type": "onnxiodatatypeconverter", "name_pattern": ".*"},
            "quant": {
                "type": "OnnxDynamicQuantization",
                "precision": "uint8",
                "config": {"per_channel": True},
            },
        },
        {"type": "HfModel", "config": {"model_path": "acme/pii", "task": "token-classification"}},
    )
    assert (recipe.source, recipe.task) == ("acme/pii", "token-classification")
    assert [(step.name, step.pass_, step.input) for step in recipe.steps] == [
        ("conversion", "OnnxConversion", None),
        ("io", "OnnxIODataTypeConverter", "conversion"),
        ("quant", "OnnxDynamicQuantization", "io"),
    ]
    assert dict(recipe.steps[0].params) == {"target_opset": 17}
    assert dict(recipe.steps[2].params) == {"weight_type": "QUInt8", "per_channel": True}
    assert [(output.step, output.path) for output in recipe.outputs] == [("quant", "model.onnx")]
    assert told(recipe)["passes.quant.precision"] == "weight_type: QUInt8"
    assert told(recipe)["passes.quant.op_types_to_quantize"].startswith("MatMul and Gemm; Olive's default is")


@pytest.mark.parametrize(
    ("model", "source", "task"),
    [
        (ONNX, "model.onnx", "onnx"),
        (
            {"type": "ONNXModel", "config": {"model_path": "d", "onnx_file_name": "m.onnx"}},
            "d/m.onnx",
            "onnx",
        ),
        ({"type": "HfModel", "model_path": "x"}, "x", "text-generation"),
        ({"type": "HfModel", "model_path": "x", "task": "text-classification"}, "x", "text-classification"),
    ],
)
def test_input_models(model: dict[str, Any], source: str, task: str) -> None:
    value = from_value({"input_model": model, "passes": {"a": {"type": "OnnxFloatToFloat16"}}}, "olive.json")
    assert (value.source, value.task) == (source, task)


@pytest.mark.parametrize(
    ("name", "filled"),
    {
        "OnnxConversion": {"target_opset": 20},
        "OnnxFloatToFloat16": {"keep_io_types": False, "min_positive_val": 1e-7, "max_finite_val": 1e4},
        "OrtMixedPrecision": {"keep_io_types": False, "op_block_list": OLIVE},
        "OnnxDynamicQuantization": {"per_channel": False},
    }.items(),
)
def test_defaults_are_those_of_olive_and_told(name: str, filled: dict[str, Any]) -> None:
    recipe = read({"only": {"type": name}})
    assert dict(recipe.steps[0].params) == filled
    taken = [key for key, became in told(recipe).items() if became == "Olive's default"]
    assert taken == [f"passes.only.{key}" for key in filled]
    given = {
        key: value for key, value in {"keep_io_types": True, "per_channel": True}.items() if key in filled
    }
    assert given.items() <= params({"only": {"type": name, **given}}).items()


def test_the_shortest_type_converter_is_for_all_inputs_and_outputs() -> None:
    recipe = read({"io": {"type": "OnnxIODataTypeConverter"}})
    assert dict(recipe.steps[0].params) == {"name_pattern": ".*"}
    assert told(recipe)["passes.io.name_pattern"] == "Olive's default"
    assert params({"io": {"type": "OnnxIODataTypeConverter", "name_pattern": "logits"}}) == {
        "name_pattern": "logits"
    }


@pytest.mark.parametrize("name", ["dim_param", "input_dim"])
def test_axes_of_a_checkpoint_have_our_names(name: str) -> None:
    passes = {
        "c": {"type": "OnnxConversion"},
        "f": {"type": "DynamicToFixedShape", name: ["batch_size", "sequence_length"], "dim_value": [1, 16]},
    }
    recipe = read(passes, {"type": "HfModel", "model_path": "x", "task": "feature-extraction"})
    assert dict(recipe.steps[1].params) == {"dim_param": ["batch", "sequence"], "dim_value": [1, 16]}
    assert told(recipe)["passes.f.dim_param"] == "dim_param: batch, sequence"
    del passes["c"]
    assert read(passes).steps[0].params["dim_param"] == ["batch_size", "sequence_length"]


def test_axes_of_a_built_decoder_keep_the_names_that_olive_uses() -> None:
    passes = {
        "m": {"type": "ModelBuilder", "precision": "fp32"},
        "f": {"type": "DynamicToFixedShape", "dim_param": ["batch_size"], "dim_value": [1]},
    }
    recipe = read(passes, {"type": "HfModel", "model_path": "x"})
    assert recipe.steps[1].params["dim_param"] == ["batch_size"]


def test_a_parameter_under_both_of_its_names_is_refused() -> None:
    with pytest.raises(InputError, match="input_dim is another name of dim_param"):
        params(
            {"f": {"type": "DynamicToFixedShape", "dim_param": ["a"], "input_dim": ["b"], "dim_value": [1]}}
        )


def test_unused_settings_are_listed_without_values() -> None:
    recipe = read(
        {"fp16": {"type": "OnnxFloatToFloat16", "host": "local_system"}},
        **ENGINE,
    )
    notes = told(recipe)
    assert all(notes[key].startswith("not used") for key in (*ENGINE, "passes.fp16.host"))
    assert "somebody" not in str(recipe.to_json())


def test_parameters_of_olive_alone_are_told() -> None:
    recipe = read(
        {
            "mixed": {
                "type": "OrtMixedPrecision",
                "atol": 1e-6,
                "save_as_external_data": True,
                "external_data_name": "/home/somebody/weights.bin",
                "op_block_list": None,
            }
        }
    )
    assert dict(recipe.steps[0].params) == {"keep_io_types": False, "op_block_list": OLIVE}
    assert told(recipe)["passes.mixed.atol"].startswith("not used")
    assert told(recipe)["passes.mixed.save_as_external_data"].startswith("not used")
    assert "somebody" not in str(recipe.to_json())


@pytest.mark.parametrize(
    ("given", "said"),
    {
        "flows": ({"pass_flows": [["a"]]}, "'pass_flows' is not read"),
        "a place": ({"input_model": {**ONNX, "model_path": {"config": "x"}}}, "names no model_path"),
        "a path of a number": ({"input_model": {**ONNX, "model_path": 5}}, "names no model_path"),
        "a key that is no text": ({5: 1}, "olive.json"),
        "a nested one": ({"input_model": {**ONNX, 5: 1}}, "olive.json"),
        "a date": ({"engine": date(2026, 1, 1)}, "olive.json"),
    }.values(),
)
def test_a_clumsy_document_is_an_error_that_names_it(given: dict[Any, Any], said: str) -> None:
    document = {"input_model": ONNX, "passes": {"a": {"type": "OnnxFloatToFloat16"}}, **given}
    with pytest.raises(InputError, match=said):
        from_value(document, "olive.json")


@pytest.mark.parametrize(
    ("asked", "said"),
    {
        "unknown pass": ({"type": "OnnxMagic"}, r"passes\.x: no pass here is Olive's 'OnnxMagic'"),
        "static": ({"type": "OnnxStaticQuantization"}, "cannot be taken over"),
        "unknown parameter": ({"type": "OnnxFloatToFloat16", "min_val": 1}, "has no parameter 'min_val'"),
        "nested": ({"type": "OnnxConversion", "config": {"opset": 1}}, "has no parameter 'opset'"),
        "another value": (
            {"type": "OnnxConversion", "device": "cuda"},
            "device can only be None or 'cpu' here",
        ),
        "a script": ({"type": "OnnxConversion", "user_script": "x.py"}, "user_script can only be None"),
        "a list": ([{"type": "OnnxConversion"}], r"passes\.x is not a JSON object"),
        "a search": (
            {"type": "OnnxConversion", "target_opset": "SEARCHABLE_VALUES"},
            "is to be searched for",
        ),
        "no object": ("OnnxConversion", r"passes\.x is not a JSON object"),
        "no type": ({"config": {}}, "no pass here is Olive's ''"),
    }.values(),
)
def test_passes_that_cannot_be_run(asked: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read({"x": asked})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"input_model": ONNX, "passes": {}}, "there are no passes"),
        ({"input_model": ONNX, "passes": ["a"]}, "passes is not a JSON object"),
        ({"passes": {"a": {"type": "OnnxConversion"}}}, "input_model is not a JSON object"),
        ({"input_model": {"type": "OnnxModel"}, "passes": {"a": {}}}, "names no model_path"),
        (
            {"input_model": {"type": "PyTorchModel", "model_path": "x"}, "passes": {"a": {}}},
            "HfModel and OnnxModel",
        ),
        (
            {"input_model": {"type": "HfModel", "model_path": "x", "task": "fill-mask"}, "passes": {}},
            "'fill-mask'",
        ),
        ({"input_model": ONNX, "passes": {}, "pases": {}}, "'pases' is not read"),
    ],
)
def test_documents_that_are_none(value: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_value(value, "olive.json")


@pytest.mark.parametrize("name", table()["passes"])
def test_the_table_knows_the_parameters_of_our_passes(name: str) -> None:
    """A default that our pass does not have, or a parameter that it has by now, would be found here."""
    ours, rules = pass_catalog.find(name).Params.model_fields.keys(), table()["passes"][name]
    assert rules.get("defaults", {}).keys() <= ours
    assert not {*rules.get("unused", ()), *rules.get("only", ())} & (ours - {"atol", "keep_io_types"})


HF = {"type": "HfModel", "model_path": "acme/pii", "task": "token-classification"}
CONVERSION = {"c": {"type": "OnnxConversion"}}


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({**HF, "adapter_path": "lora"}, "adapter_path"),
        ({**HF, "io_config": {"input_names": ["x"]}}, "io_config"),
        ({**HF, "load_kwargs": {"num_labels": 3}}, "num_labels"),
        ({**HF, "load_kwargs": {"torch_dtype": "float16"}}, "torch_dtype"),
        ({**HF, "model_path": "./pii", "load_kwargs": {"revision": "v2"}}, "revision"),
        ({**HF, "some_new_key": 1}, "some_new_key"),
        ({**ONNX, "external_initializers_file_name": "w.onnx"}, "external_initializers_file_name"),
        ({**ONNX, "use_ort_extensions": True}, "use_ort_extensions"),
    ],
)
def test_a_key_that_changes_the_model_is_never_dropped(model: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError, match=key):
        read(CONVERSION, model)
