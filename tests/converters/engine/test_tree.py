"""A recipe is refused before anything runs, with the step or path that is wrong."""

from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.engine import steps as tree
from onnxreg.converters.engine.read_recipe import from_value
from onnxreg.schema.core.errors import InputError, RegError

INT8 = {"name": "int8", "pass": "OnnxDynamicQuantization"}
FP16 = {"name": "fp16", "pass": "OnnxFloatToFloat16"}
ORT = {"name": "ort", "pass": "OrtFormat"}
DECODER = {"name": "decoder", "pass": "ModelBuilder", "params": {"precision": "int4"}}


def read(steps: list[dict[str, Any]], **more: Any) -> tuple[list[str], list[str | None]]:
    """The names of the steps in order, and the paths of the outputs."""
    recipe = from_value({"task": "onnx", "steps": steps, **more}, "recipe.yaml")
    found = tree.nodes(recipe, Path())
    return list(found), [output.path for output in tree.outputs(recipe, found)]


def test_parents_come_before_children_whatever_the_order_in_the_file() -> None:
    steps = [
        {**FP16, "input": "int8"},
        {**INT8, "input": "fixed"},
        {"name": "fixed", "pass": "OnnxConversion"},
    ]
    assert read(steps) == (["fixed", "int8", "fp16"], ["fp16.onnx"])


def test_without_outputs_every_result_that_no_step_takes_is_published() -> None:
    assert read([INT8, FP16, {**ORT, "input": "fp16"}])[1] == ["int8.onnx", "ort.ort"]
    assert read([INT8, DECODER])[1] == ["int8.onnx", "model.onnx"]


@pytest.mark.parametrize("turn", [1, -1], ids=["parents first", "children first"])
def test_a_chain_as_long_as_a_recipe_may_have(turn: int) -> None:
    chain: list[dict[str, Any]] = [{**FP16, "name": "s0"}]
    chain += [{**FP16, "name": f"s{index}", "input": f"s{index - 1}"} for index in range(1, 1000)]
    assert read(chain[::turn]) == ([step["name"] for step in chain], ["s999.onnx"])


@pytest.mark.parametrize(
    ("steps", "said"),
    {
        "repeated name": ([INT8, INT8], "two steps are called int8"),
        "a name of ours": ([{**INT8, "name": "golden-v"}], "step golden-v: names that begin with golden-"),
        "missing parent": ([{**INT8, "input": "fp23"}], "step int8: there is no step called fp23"),
        "itself": ([{**INT8, "input": "int8"}], "each other's input: int8 <- int8"),
        "cycle": (
            [{**INT8, "input": "fp16"}, {**FP16, "input": "int8"}],
            "each other's input: int8 <- fp16 <- int8",
        ),
        "unknown pass": ([{"name": "x", "pass": "OnnxMagic"}], "step x: no pass is called 'OnnxMagic'"),
        "unknown parameter": ([{**INT8, "params": {"bits": 3}}], "step int8: .* at bits"),
        "wrong value": ([{**INT8, "params": {"per_channel": "yes"}}], "step int8: .* at per_channel"),
        "missing data": ([{**INT8, "data": "rows.npz"}], "step int8: no file exists at rows.npz"),
        "two ways": (
            [
                {
                    "name": "fix",
                    "pass": "DynamicToFixedShape",
                    "params": {"dim_param": ["a"], "dim_value": [1, 2]},
                }
            ],
            "step fix: .*as many names as sizes",
        ),
    }.values(),
)
def test_a_tree_that_cannot_be_run(steps: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(steps)


def test_data_for_a_pass_that_takes_none(home: Path) -> None:
    recipe = from_value({"task": "onnx", "steps": [{**ORT, "data": "rows.npz"}]}, "recipe.yaml")
    with pytest.raises(InputError, match="step ort: OrtFormat takes no data"):
        tree.nodes(recipe, home)


@pytest.mark.parametrize(
    ("outputs", "said"),
    {
        "unknown step": ([{"step": "int4"}], "names the step int4, which is not there"),
        "a step twice": (
            [{"step": "int8"}, {"step": "int8", "path": "b.onnx"}],
            "two outputs name the step int8",
        ),
        "a path twice": (
            [{"step": "int8", "path": "m.onnx"}, {"step": "fp16", "path": "M.onnx"}],
            "outputs: paths collide: 'm.onnx' and 'M.onnx'",
        ),
        "one path twice": (
            [{"step": "int8", "path": "m.onnx"}, {"step": "fp16", "path": "m.onnx"}],
            "outputs: two files are called 'm.onnx'$",
        ),
        "a file as folder": (
            [{"step": "int8", "path": "m.onnx"}, {"step": "fp16", "path": "m.onnx/m.onnx"}],
            "both a file and a directory",
        ),
        "our own place": ([{"step": "int8", "path": ".steps/m.onnx"}], "cannot be at .steps/m.onnx"),
        "no suffix": ([{"step": "int8", "path": "model"}], "OnnxDynamicQuantization cannot write model"),
        "ORT as ONNX": ([{"step": "ort", "path": "a/model.onnx"}], "OrtFormat cannot write model.onnx"),
        "its own name": ([{"step": "decoder", "path": "llm.onnx"}], "ModelBuilder cannot write llm.onnx"),
    }.values(),
)
def test_outputs_that_cannot_be_published(outputs: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read([INT8, FP16, ORT, DECODER], outputs=outputs)


@pytest.mark.parametrize(
    "path", ["../model.onnx", "/tmp/model.onnx", "a//b.onnx", "a\\b.onnx", "", "nul/m.onnx"]
)
def test_no_output_leaves_the_workspace(path: str) -> None:
    with pytest.raises(InputError, match=r"outputs\.0\.path"):
        read([INT8], outputs=[{"step": "int8", "path": path}])


def test_a_check_of_no_output_is_a_mistake() -> None:
    check = {"output": "model_int8.onnx", "metric": "min_cosine", "min": 0.9}
    with pytest.raises(InputError, match=r"a check is about model_int8\.onnx, which is not an output"):
        read([INT8], checks=[check])


@pytest.mark.parametrize("output", ["*", "int8.onnx"])
def test_two_limits_on_one_metric_of_one_output_are_a_mistake(output: str) -> None:
    first = {"output": output, "metric": "max_abs_diff", "max": 0.0001}
    with pytest.raises(InputError, match="two checks limit max_abs_diff of"):
        read([INT8], checks=[first, {**first, "max": 1000.0}])


def test_a_limit_of_one_output_beside_that_of_all() -> None:
    first = {"metric": "max_abs_diff", "max": 0.0001}
    checks = [first, {**first, "output": "int8.onnx"}, {"metric": "min_cosine", "min": 0.9}]
    assert read([INT8], checks=checks) == (["int8"], ["int8.onnx"])


@pytest.mark.parametrize(
    "value",
    [
        [],
        "steps",
        {"task": "onnx"},
        {"task": "onnx", "steps": []},
        {"task": "onnx", "steps": [INT8], "stpes": []},
        {"task": "onnx", "steps": [{**INT8, "param": {}}]},
        {"task": "onnx", "steps": [INT8], "checks": [{"metric": "min_cosine", "max": 1}]},
        {"task": "onnx", "steps": [INT8], "checks": [{"metric": "bytes"}]},
        {"task": "onnx", "steps": [{**INT8, "name": "../x"}]},
    ],
)
def test_a_document_that_is_no_recipe(value: Any) -> None:
    with pytest.raises(RegError) as caught:
        from_value(value, "recipe.yaml")
    assert caught.value.family == "input"
    assert "recipe.yaml" in caught.value.message
