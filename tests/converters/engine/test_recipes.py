"""Recipes, Olive's workflows and Orchard's sections: what they become, and each mistake with the key that is wrong."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from support.processor import no_quadratic_time

from onnxreg.converters.engine.foreign import table
from onnxreg.converters.engine.plan import from_value, plan_outputs, plan_steps, read_document, read_recipe
from onnxreg.converters.passes import pass_catalog
from onnxreg.schema.core.bounds import MAX_TEXT_BYTES
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.files import read_yaml
from onnxreg.schema.inputs.recipe_file import RecipeFile

TEXT = "task: onnx\nsteps:\n  - {name: int8, pass: OnnxDynamicQuantization}\n"
INT8 = {"name": "int8", "pass": "OnnxDynamicQuantization"}
FP16 = {"name": "fp16", "pass": "OnnxFloatToFloat16"}
ORT = {"name": "ort", "pass": "OrtFormat"}
DECODER = {"name": "decoder", "pass": "ModelBuilder", "params": {"precision": "int4"}}
WAYS = {"name": "f", "pass": "DynamicToFixedShape", "params": {"dim_param": ["a"], "dim_value": [1, 2]}}
LIMIT = {"metric": "max_abs_diff", "max": 0.0001}


def told(recipe: RecipeFile) -> dict[str, str]:
    return {note.field: note.became for note in recipe.translation}


def read(steps: list[dict[str, Any]], **more: Any) -> tuple[list[str], list[str | None]]:
    """The names of the steps in order, and the paths of the outputs."""
    recipe = from_value({"task": "onnx", "steps": steps, **more}, "recipe.yaml")
    nodes = plan_steps(recipe, Path())
    return list(nodes), [output.path for output in plan_outputs(recipe, nodes)]


@pytest.mark.parametrize(
    ("text", "message"),
    {
        "twice": (TEXT + "task: onnx\n", "the key 'task' occurs twice"),
        "twice, where": ("a: 1\nb: 2\na: 3\n", r"a\.yaml, line 3, column 1, is .*: the key 'a' occurs twice"),
        "twice, and false": ("0: a\n0: b\n", "line 2, column 1, is .*: the key 0 occurs twice"),
        "twice, and null": ("null: a\n~: b\n", "the key None occurs twice"),
        "a merge": ("<<: {a: 1}\nb: 2\n", "line 1, column 1, is .*merge"),
        "list as a key": ("[a]: b\n", "neither YAML nor JSON: found unhashable key"),
        "set": ("a: !!set [1]\n", "expected a mapping node"),
        "alias": ("a: &x [1]\nb: *x\n", "aliases are not allowed"),
        "tab": ("task: onnx\nsteps:\n\t- {name: a}\n", r"^a\.yaml, line 3, column 1, is neither YAML.*: found"),
        "an unknown key": ("task: onnx\nversion: 1.0\nsteps: [{name: a, pass: b}]\n", "at version: there is"),
        "a step": ("task: onnx\nsteps:\n  - {name: a, pass: b}\n  - {name: c}\n", r"at steps.1.pass"),
        "a number": ("task: 1\nsteps: [{name: a, pass: b}]\n", "at task: .* a valid string: write it in quotes"),
        "no steps": ("task: onnx\n", "at steps: it is missing"),
        "a list": ("- a\n", "is not a recipe: it has no keys"),
        **{key: (f"{TEXT}{key}\n", f"{key.partition(':')[0]} is a reserved key")
           for key in ("profile: android", "profile_version: 2", "translation: []")},
        **dict.fromkeys(("bool", "int"), ("a: !!bool foo\n", "neither YAML nor JSON")),
        **{text: (text, "neither YAML nor JSON") for text in (
            'a: !!int ""\n', 'a: !!float ""\n', f"a: 1{':00' * 200}.5\n", "a: !!timestamp foo\n", "a: 2020-13-45\n",
            r'a: "\UFFFFFFFF"', "a: !!python/object/apply:os.system [id]\n", "a: [1,\n", "a: 1\n---\nb: 2\n",
        )},
    }.values(),
)  # fmt: skip
def test_a_text_that_is_no_recipe(tmp_path, text, message):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_recipe(tmp_path / "a.yaml")
    assert "\t" not in text or "tabs" in caught.value.hint


def test_files(tmp_path):
    (tmp_path / "a.yaml").write_text(TEXT)
    (tmp_path / "a.json").write_text(json.dumps({"task": "onnx", "steps": [INT8]}))
    assert read_recipe(tmp_path / "a.yaml") == read_recipe(tmp_path / "a.json")
    with pytest.raises(NotFoundError, match=r"b\.yaml"):
        read_recipe(tmp_path / "b.yaml")
    for data, message in ((b"\xff\xfe", "is not text"), (b" " * (MAX_TEXT_BYTES + 1), r"c\.yaml")):
        (tmp_path / "c.yaml").write_bytes(data)
        with pytest.raises(InputError, match=message):
            read_document(tmp_path / "c.yaml")


@pytest.mark.more
def test_many_keys_take_no_quadratic_time():
    text = "".join(f"key{number}: 1\n" for number in range(30_000))
    with no_quadratic_time():
        assert len(read_yaml(text.encode(), "a.yaml", "export")) == 30_000


def test_the_order_of_steps_and_the_outputs():
    fixed = {"name": "fixed", "pass": "OnnxConversion"}
    steps = [{**FP16, "input": "int8"}, {**INT8, "input": "fixed"}, fixed]
    assert read(steps) == (["fixed", "int8", "fp16"], ["fp16.onnx"])
    assert read([INT8, FP16, {**ORT, "input": "fp16"}])[1] == ["int8.onnx", "ort.ort"]
    assert read([INT8, DECODER])[1] == ["int8.onnx", "model.onnx"]
    checks = [LIMIT, {**LIMIT, "output": "int8.onnx"}, {"metric": "min_cosine", "min": 0.9}]
    assert read([INT8], checks=checks) == (["int8"], ["int8.onnx"])
    chain: list[dict[str, Any]] = [{**FP16, "name": "s0"}]
    chain += [{**FP16, "name": f"s{index}", "input": f"s{index - 1}"} for index in range(1, 1000)]
    for turn in (1, -1):
        assert read(chain[::turn]) == ([step["name"] for step in chain], ["s999.onnx"])


def outputs(*pairs: tuple[str, str | None]) -> dict[str, Any]:
    """All steps, of which these are published under these paths."""
    items = [{"step": step, **({} if path is None else {"path": path})} for step, path in pairs]
    return {"steps": [INT8, FP16, ORT, DECODER], "outputs": items}


@pytest.mark.parametrize(
    ("value", "message"),
    {
        "repeated name": ({"steps": [INT8, INT8]}, "two steps are called int8"),
        "a name of ours": ({"steps": [{**INT8, "name": "golden-v"}]}, "step golden-v: names that begin with golden-"),
        "missing parent": ({"steps": [{**INT8, "input": "fp23"}]}, "step int8: there is no step called fp23"),
        "itself": ({"steps": [{**INT8, "input": "int8"}]}, "each other's input: int8 <- int8"),
        "cycle": (
            {"steps": [{**INT8, "input": "fp16"}, {**FP16, "input": "int8"}]}, "each other's input: int8 <- fp16 <- int8",
        ),
        "unknown pass": ({"steps": [{"name": "x", "pass": "OnnxMagic"}]}, "step x: no pass is called 'OnnxMagic'"),
        "unknown parameter": ({"steps": [{**INT8, "params": {"bits": 3}}]}, "step int8: .* at bits"),
        "wrong value": ({"steps": [{**INT8, "params": {"per_channel": "yes"}}]}, "step int8: .* at per_channel"),
        "missing data": ({"steps": [{**INT8, "data": "rows.npz"}]}, "step int8: no file exists at rows.npz"),
        "two ways": ({"steps": [WAYS]}, "step f: .*as many names as sizes"),
        "unknown step": (outputs(("int4", None)), "names the step int4, which is not there"),
        "a step twice": (outputs(("int8", None), ("int8", "b.onnx")), "two outputs name the step int8"),
        "a path twice": (outputs(("int8", "m.onnx"), ("fp16", "M.onnx")), "outputs: paths collide: 'm.onnx' and 'M.onnx'"),
        "one path twice": (outputs(("int8", "m.onnx"), ("fp16", "m.onnx")), "outputs: two files are called 'm.onnx'$"),
        "a file as folder": (outputs(("int8", "m.onnx"), ("fp16", "m.onnx/m.onnx")), "both a file and a directory"),
        "our own place": (outputs(("int8", ".steps/m.onnx")), "cannot be at .steps/m.onnx"),
        "no suffix": (outputs(("int8", "model")), "OnnxDynamicQuantization cannot write model"),
        "ORT as ONNX": (outputs(("ort", "a/model.onnx")), "OrtFormat cannot write model.onnx"),
        "its own name": (outputs(("decoder", "llm.onnx")), "ModelBuilder cannot write llm.onnx"),
        **{path: (outputs(("int8", path)), r"outputs\.0\.path")
           for path in ("../model.onnx", "/tmp/model.onnx", "a//b.onnx", "a\\b.onnx", "", "nul/m.onnx")},
        "a check of no output": (
            {"steps": [INT8], "checks": [{**LIMIT, "output": "x.onnx"}]}, r"a check is about x\.onnx, which is not an output",
        ),
        **{output: (
            {"steps": [INT8], "checks": [{**LIMIT, "output": output}, {**LIMIT, "output": output, "max": 1000.0}]},
            "two checks limit max_abs_diff of",
        ) for output in ("*", "int8.onnx")},
        "nothing": ({"steps": []}, "recipe.yaml"),
        "a typo": ({"steps": [INT8], "stpes": []}, "recipe.yaml.* at stpes"),
        "a typo in a step": ({"steps": [{**INT8, "param": {}}]}, "recipe.yaml.*param"),
        "a limit the wrong way": ({"steps": [INT8], "checks": [{"metric": "min_cosine", "max": 1}]}, "takes one limit"),
        "a check without a limit": ({"steps": [INT8], "checks": [{"metric": "bytes"}]}, "takes one limit"),
        "a step that is a path": ({"steps": [{**INT8, "name": "../x"}]}, "recipe.yaml"),
    }.values(),
)  # fmt: skip
def test_a_tree_that_cannot_be_run(value, message):
    with pytest.raises(InputError, match=message):
        read(**value)


def test_data_for_a_pass_that_takes_none(home):
    recipe = from_value({"task": "onnx", "steps": [{**ORT, "data": "rows.npz"}]}, "recipe.yaml")
    with pytest.raises(InputError, match="step ort: OrtFormat takes no data"):
        plan_steps(recipe, home)


# Olive

BLOCKED = ["SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization", "Relu", "Add"]
ONNX = {"type": "OnnxModel", "model_path": "model.onnx"}
HF = {"type": "HfModel", "model_path": "acme/pii", "task": "token-classification"}
ENGINE = {
    "systems": {"local_system": {"type": "LocalSystem", "accelerators": [{"device": "cpu"}]}},
    "evaluators": {"common": {"metrics": [{"name": "latency", "type": "latency"}]}},
    "engine": {"target": "local_system", "cache_dir": "/home/somebody/cache", "log_severity_level": 0},
    "output_dir": "/home/somebody/models",
    "search_strategy": False,
}


def olive(passes: Any, model: Any = ONNX, **more: Any) -> RecipeFile:
    return from_value({"input_model": model, "passes": passes, **more}, "olive.json")


def test_a_workflow_is_a_chain_whose_last_result_is_published():
    passes = {
        "conversion": {"type": "OnnxConversion", "config": {"target_opset": 17}},
        "io": {"type": "onnxiodatatypeconverter", "name_pattern": ".*"},
        "quant": {"type": "OnnxDynamicQuantization", "precision": "uint8", "config": {"per_channel": True}},
    }
    config = {"model_path": "acme/pii", "task": "token-classification"}
    recipe = olive(passes, {"type": "HfModel", "config": config})
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


IN_A_FOLDER = {"model_path": "d", "onnx_file_name": "m.onnx"}


@pytest.mark.parametrize(
    ("model", "source", "task"),
    [
        (ONNX, "model.onnx", "onnx"),
        ({"type": "ONNXModel", "config": IN_A_FOLDER}, "d/m.onnx", "onnx"),
        ({"type": "HfModel", "model_path": "x"}, "x", "text-generation"),
        ({"type": "HfModel", "model_path": "x", "task": "text-classification"}, "x", "text-classification"),
    ],
)
def test_input_models(model, source, task):
    recipe = olive({"a": {"type": "OnnxFloatToFloat16"}}, model)
    assert (recipe.source, recipe.task) == (source, task)


FLOAT16 = {"min_positive_val": 1e-7, "max_finite_val": 1e4}


@pytest.mark.parametrize(
    ("name", "defaults", "given"),
    [
        ("OnnxConversion", {"target_opset": 20}, {}),
        ("OnnxFloatToFloat16", {"keep_io_types": False, **FLOAT16}, {"keep_io_types": True}),
        ("OrtMixedPrecision", {"keep_io_types": False, "op_block_list": BLOCKED}, {"keep_io_types": True}),
        ("OnnxDynamicQuantization", {"per_channel": False}, {"per_channel": True}),
        ("OnnxIODataTypeConverter", {"name_pattern": ".*"}, {"name_pattern": "logits"}),
    ],
)
def test_defaults_are_those_of_olive_and_told(name, defaults, given):
    recipe = olive({"only": {"type": name}})
    assert dict(recipe.steps[0].params) == defaults
    taken = [key for key, became in told(recipe).items() if became == "Olive's default"]
    assert taken == [f"passes.only.{key}" for key in defaults]
    assert dict(olive({"only": {"type": name, **given}}).steps[0].params) == defaults | given


@pytest.mark.parametrize("name", ["dim_param", "input_dim"])
def test_axes_of_a_checkpoint_have_our_names(name):
    fixed = {"type": "DynamicToFixedShape", name: ["batch_size", "sequence_length"], "dim_value": [1, 16]}
    recipe = olive({"c": {"type": "OnnxConversion"}, "f": fixed}, {**HF, "task": "feature-extraction"})
    assert dict(recipe.steps[1].params) == {"dim_param": ["batch", "sequence"], "dim_value": [1, 16]}
    assert told(recipe)["passes.f.dim_param"] == "dim_param: batch, sequence"
    assert olive({"f": fixed}).steps[0].params["dim_param"] == ["batch_size", "sequence_length"]
    passes = {"m": {"type": "ModelBuilder", "precision": "fp32"}, "f": fixed}
    built = olive(passes, {"type": "HfModel", "model_path": "x"})
    assert built.steps[1].params["dim_param"] == ["batch_size", "sequence_length"]


def test_settings_that_are_not_used_are_listed_without_values():
    mixed = {"type": "OrtMixedPrecision", "atol": 1e-6, "save_as_external_data": True, "op_block_list": None}
    mixed |= {"external_data_name": "/home/somebody/weights.bin", "host": "local_system"}
    recipe = olive({"mixed": mixed}, **ENGINE)
    unused = (*ENGINE, *(f"passes.mixed.{key}" for key in ("host", "atol", "save_as_external_data")))
    assert all(told(recipe)[key].startswith("not used") for key in unused)
    assert dict(recipe.steps[0].params) == {"keep_io_types": False, "op_block_list": BLOCKED}
    load = {"token": "somebody", "cache_dir": "/home/somebody/x", "max_memory": {"somebody": 1}}
    loaded = olive({"c": {"type": "OnnxConversion"}}, {**HF, "load_kwargs": load})
    assert {f"input_model.{key}" for key in load} <= told(loaded).keys()
    assert "somebody" not in str((recipe.to_json(), loaded.to_json()))


@pytest.mark.parametrize("name", table()["passes"])
def test_the_table_knows_the_parameters_of_our_passes(name):
    """A default that our pass does not have, or a parameter that it has by now, would be found here."""
    ours, rules = pass_catalog.find(name).Params.model_fields.keys(), table()["passes"][name]
    assert rules.get("defaults", {}).keys() <= ours
    assert not {*rules.get("unused", ()), *rules.get("only", ())} & (ours - {"atol", "keep_io_types"})


BOTH = {"type": "DynamicToFixedShape", "dim_param": ["a"], "input_dim": ["b"], "dim_value": [1]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pass_flows": [["a"]]}, "'pass_flows' is not read"),
        ({"pases": {}}, "'pases' is not read"),
        ({5: 1}, "olive.json"),
        ({"engine": date(2026, 1, 1)}, "olive.json"),
        ({"input_model": None}, "input_model is not a JSON object"),
        ({"input_model": {"type": "OnnxModel"}}, "names no model_path"),
        ({"input_model": {**ONNX, "model_path": {"config": "x"}}}, "names no model_path"),
        ({"input_model": {**ONNX, "model_path": 5}}, "names no model_path"),
        ({"input_model": {**ONNX, 5: 1}}, "olive.json"),
        ({"input_model": {"type": "HfModel", "model_path": "x", "task": "fill-mask"}}, "'fill-mask'"),
        *(({"input_model": {**HF, **more}}, key) for key, more in {
            "adapter_path": {"adapter_path": "lora"},
            "io_config": {"io_config": {"input_names": ["x"]}},
            "num_labels": {"load_kwargs": {"num_labels": 3}},
            "torch_dtype": {"load_kwargs": {"torch_dtype": "float16"}},
            "revision": {"model_path": "./pii", "load_kwargs": {"revision": "v2"}},
            "some_new_key": {"some_new_key": 1},
        }.items()),
        *(({"input_model": {**ONNX, key: value}}, key) for key, value in {
            "external_initializers_file_name": "w.onnx", "use_ort_extensions": True,
        }.items()),
        ({"passes": {}}, "there are no passes"),
        ({"passes": ["a"]}, "passes is not a JSON object"),
        *(({"passes": {"x": value}}, message) for value, message in (
            ({"type": "OnnxMagic"}, r"passes\.x: no pass here is Olive's 'OnnxMagic'"),
            ({"type": "OnnxStaticQuantization"}, "cannot be taken over"),
            ({"type": "OnnxFloatToFloat16", "min_val": 1}, "has no parameter 'min_val'"),
            ({"type": "OnnxConversion", "config": {"opset": 1}}, "has no parameter 'opset'"),
            ({"type": "OnnxConversion", "device": "cuda"}, "device can only be None or 'cpu' here"),
            ({"type": "OnnxConversion", "target_opset": "SEARCHABLE_VALUES"}, "is to be searched for"),
            ([{"type": "OnnxConversion"}], r"passes\.x is not a JSON object"),
            ("OnnxConversion", r"passes\.x is not a JSON object"),
            ({"config": {}}, "no pass here is Olive's ''"),
            (BOTH, "input_dim is another name of dim_param"),
        )),
    ],
)  # fmt: skip
def test_workflows_that_are_refused(changes, message):
    document = {"input_model": ONNX, "passes": {"a": {"type": "OnnxFloatToFloat16"}}, **changes}
    with pytest.raises(InputError, match=message):
        from_value(document, "olive.json")


# Orchard

OPTIONS = {"input": [3, 28, 28]}
OTHERS: dict[str, Any] = {
    "opset_version": 17, "dynamic_axes": False, "do_constant_folding": False, "quantize": False,
    "quantization_type": "uint8", "quantization_backend": "fbgemm", "validate_export": False, "validation_samples": 3,
    "max_deviation": 0.01, "benchmark": False, "benchmark_runs": 7,
}  # fmt: skip
"""Another value for each field."""


def orchard(export: Any = None, **more: Any) -> RecipeFile:
    return from_value({"options": OPTIONS, **more, "export": export or {}}, "orchard.yaml")


def step(recipe: RecipeFile, name: str) -> dict[str, Any]:
    return next(dict(one.params) for one in recipe.steps if one.name == name)


def test_an_empty_section_has_orchards_defaults():
    recipe = orchard()
    assert (recipe.task, recipe.benchmark) == ("image-classification", None)
    assert [one.name for one in recipe.steps] == ["fp32"]
    assert [output.path for output in recipe.outputs] == ["exports/model.onnx"]
    assert recipe.options == {"input": [3, 28, 28], "samples": 10, "fixed_batch": False}
    (check,) = recipe.checks
    assert (check.output, check.metric, check.max) == ("exports/model.onnx", "max_abs_diff", 1e-4)
    values = {note.field: note.value for note in recipe.translation}
    assert list(values) == ["format", *OTHERS]
    assert (values["opset_version"], values["benchmark_runs"]) == (18, 100)
    assert step(recipe, "fp32")["use_dynamo_exporter"] == "auto"


@pytest.mark.parametrize("field", OTHERS)
def test_every_field_says_what_became_of_it(field):
    """Another value of a field is another recipe or another word about it, never silence."""
    base = {"quantize": True, "benchmark": True}
    before, after = orchard(base), orchard({**base, field: OTHERS[field]})
    assert told(after)[field] != told(before)[field]
    keys = ("steps", "outputs", "checks", "options", "benchmark")
    assert any(getattr(after, key) != getattr(before, key) for key in keys)


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
def test_types_and_backends(kind, backend, expected):
    recipe = orchard({"quantize": True, "quantization_type": kind, "quantization_backend": backend})
    assert expected.items() <= step(recipe, "quantized").items()
    paths = ["exports/model.onnx", "exports/model_quantized.onnx"]
    assert [output.path for output in recipe.outputs] == paths


def test_limits_are_those_that_the_section_states():
    quantized = orchard({"quantize": True, "max_deviation": 0.001})
    assert [check.output for check in quantized.checks] == ["exports/model.onnx"]
    size = {"output": "exports/model_quantized.onnx", "metric": "bytes", "max": 10**6}
    assert len(orchard({"quantize": True}, checks=[size]).checks) == 2
    free = orchard({"validate_export": False})
    assert (free.checks, told(free)["max_deviation"]) == ((), "not used")
    params = step(orchard({"do_constant_folding": False}), "fp32")
    assert (params["use_dynamo_exporter"], params["do_constant_folding"]) == (False, False)


def test_a_whole_configuration_of_orchard_runs_as_it_stands(tmp_path):
    path = tmp_path / "config_mini_cnn.yaml"
    path.write_text(
        """
task_type: classification
dataset: {name: bloodmnist, resolution: 28, img_size: null, force_rgb: true}
architecture: {name: mini_cnn, pretrained: false}
training: {epochs: 60, batch_size: 128}
export: {format: onnx, opset_version: 18, dynamic_axes: true, do_constant_folding: true, quantize: true,
  quantization_type: uint8, quantization_backend: fbgemm, validate_export: true, validation_samples: 10,
  max_deviation: 1e-4, benchmark: true, benchmark_runs: 20}
"""
    )
    recipe = read_recipe(path)
    assert recipe.options["input"] == [3, 28, 28]
    assert recipe.benchmark is not None and recipe.benchmark.runs == 20
    assert RecipeFile.from_json(recipe.to_json()) == recipe


@pytest.mark.parametrize(
    ("document", "message"),
    [
        *(({"options": OPTIONS, "export": {key: value}}, key) for key, value in (
            ("opset_version", 3), ("opset_version", 999), ("opset_version", True), ("opset_version", "18"),
            ("max_deviation", 1e9), ("max_deviation", 0),
            ("validation_samples", 10**9), ("validation_samples", 0), ("benchmark_runs", 10**9), ("quantize", "yes"),
            ("dynamic_axes", 1), ("quantization_type", "fp16"), ("quantization_backend", "x86"), ("format", "torchscript"),
            ("opset", 18),
        )),
        *(({"export": {"max_deviation": float(word)}}, "out of range") for word in ("inf", "nan")),
        ({"export": {"quantization_type": "int4", "quantization_backend": "fbgemm"}}, "scale for each block"),
        *(({"options": OPTIONS, "export": value}, "must be a section with keys") for value in ([], None, "onnx")),
        ({"export": {}}, "the shape of the input"),
        ({"export": {}, "dataset": {"resolution": 28, "force_rgb": False}}, "the shape of the input"),
        ({"export": {}, "dataset": "bloodmnist"}, "the shape of the input"),
        ({"export": {}, "options": {**OPTIONS, "samples": 3}}, "set by the export section too"),
        ({"export": {}, "options": OPTIONS, "steps": []}, "steps"),
        ({"export": {}, "options": OPTIONS, "exprot": {}}, "exprot"),
    ],
)  # fmt: skip
def test_sections_that_are_refused(document, message):
    with pytest.raises(InputError, match=message):
        from_value(document, "orchard.yaml")
