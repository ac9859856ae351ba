"""The contract between a pass and its caller: parameters, conditions, and a child that is near its parent."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.graphs import draw, graph, put, read, run, run_and_compare, store, stored
from support.plug_ins import install

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.passes import models, pass_catalog, samples
from onnxreg.converters.passes.base import GraphPass, Pass, PassParams
from onnxreg.converters.passes.samples import compare
from onnxreg.schema.core.errors import ConflictError, ConversionError, HostError, InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

Edit = Callable[[Any], None]
DRAW = np.random.default_rng(0)
BIAS = np.array([5.0, -3.0, 2.0, 0.5])
SHAPES = {
    "rows": [(1, 4), (2, 4), (8, 4)],
    "tokens": [(1, 8, 4), (2, 12, 4)],
    "one number": [(16, 1), (16, 1)],
    "images": [(3, 2, 5, 4)] * 2,
}


class Double(Pass[list[int], list[int]]):
    id = "Double"
    version = 3

    class Params(PassParams):
        times: int = 2

    def requires(self, subject: list[int]) -> None:
        if not subject:
            raise InputError("nothing to double")

    def observe(self, subject: list[int]) -> Mapping[str, Any]:
        return {"length": len(subject)}

    def apply(self, subject: list[int]) -> list[int]:
        subject *= self.params.times
        return subject

    def ensures(self, before: Mapping[str, Any], after: list[int]) -> dict[str, Any]:
        if len(after) != 2 * before["length"]:
            raise ConversionError("not doubled")
        return {"length": len(after)}


def test_an_unknown_parameter_is_told_what_there_is():
    for params, hint in ((Double.Params, "its keys are times"), (PassParams, "its keys are none")):
        with pytest.raises(InputError, match="there is no such key") as refused:
            params.read({"colour": 1}, "a parameter")
        assert refused.value.hint == hint


def test_a_step_records_what_was_asked_and_what_was_got():
    """Requirements come first, and postconditions last."""
    after, step = run("d", Double(), [1, 2], "origin")
    assert after == [1, 2, 1, 2]
    asked = {"name": "d", "pass": "Double", "version": 3, "params": {"times": 2}, "input": "origin"}
    assert step.to_json() == {**asked, "result": {"length": 4}}
    with pytest.raises(InputError, match="nothing to double"):
        run("d", Double(), [])
    with pytest.raises(ConversionError, match="not doubled"):
        run("d", Double(times=3), [1])
    for params in ({"times": "2"}, {"tims": 2}):
        with pytest.raises(InputError, match=f"of pass Double is not valid at {next(iter(params))}"):
            Double(**params)


class Change(GraphPass):
    """Do to a graph what a test says."""

    id = "Change"
    change: Edit

    def apply(self, subject: Any) -> Any:
        changed = models.to_proto(subject)
        self.change(changed)
        return read(changed)


def changing(change: Edit, tolerance: float | None = None) -> GraphPass:
    return type("Changing", (Change,), {"change": staticmethod(change), "tolerance": tolerance})()


def model() -> Any:
    body = "y = MatMul(x, weight) z = Less(y, x)"
    return graph(body, "float[n, 4] x", "float[n, 4] y, bool[n, 4] z", weight=(4, 4))


def scale(factor: float) -> Edit:
    def change(subject: Any) -> None:
        store(subject, "weight", stored(subject)["weight"] * np.float32(factor))

    return change


def foreign(subject: Any) -> None:
    subject.graph.node[0].domain = "com.example"
    subject.opset_import.add(domain="com.example", version=1)


def lost(subject: Any) -> None:
    del subject.graph.output[1]


def taller(subject: Any) -> None:
    subject.graph.node[0].output[0] = subject.graph.node[1].input[0] = "inner"
    subject.graph.node.append(onnx.helper.make_node("Unsqueeze", ["inner", "first"], ["y"]))
    store(subject, "first", np.array([0]))
    subject.graph.output[0].type.tensor_type.ClearField("shape")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("graph.node.0.op_type", "Mystery"), "cannot load the result of Change"),
        (lost, "changed the inputs and outputs"),
        (put("opset_import.0.version", 17), "changed the opset: 18 became 17"),
        (put("graph.output.1.type.tensor_type.elem_type", 1), "changed the public types"),
        (taller, "another shape than the parent's"),
        (scale(np.nan), "NaN or infinity in the output y"),
        (scale(np.inf), "NaN or infinity in the output y"),
        (scale(-1), "their cosine is -1"),
        (scale(0), "their cosine is 0"),
    ],
)
def test_forbidden_changes_of_a_pass_are_refused(change, message):
    with pytest.raises(ConversionError, match=message):
        run_and_compare("x", changing(change), model())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (scale(np.nan), ConversionError, "the graph that Change was given has NaN"),
        (foreign, ConversionError, "cannot load the graph that Change was given"),
        (put("graph.node.0.input.0", "nothing"), InputError, "not a valid graph"),
    ],
)
def test_a_parent_that_is_broken_is_named(change, error, message):
    broken = model()
    change(broken)
    with pytest.raises(error, match=message):
        run_and_compare("x", changing(lambda subject: None), broken)


def test_a_difference_is_on_record_and_limited_where_the_pass_says():
    _, step = run_and_compare("x", changing(scale(1.01)), model())
    found = step.result["parity"]
    assert (found["samples"], found["outputs"]["y"]["cosine"]) == (2, pytest.approx(1))
    assert found["outputs"]["y"]["max_abs_diff"] > 0.01
    with pytest.raises(ConversionError, match=r"the output y is .* from the parent's, the most is"):
        run_and_compare("x", changing(scale(1.01), 1e-3), model())


@pytest.mark.parametrize(("kind", "step"), [("float", 2.0**-23), ("float16", 2.0**-10)])
def test_a_tolerance_allows_a_few_roundings_of_the_weights_own_type(kind, step):
    dtype = np.dtype("float32" if kind == "float" else kind)
    feeds = [{"x": np.full((1, 4), 1, dtype)}]

    def judge(steps: float) -> None:
        weight = np.ones(4, dtype)
        subject = graph("y = Mul(x, weight)", f"{kind}[n, 4] x", f"{kind}[n, 4] y", weight=weight)
        change = changing(lambda made: store(made, "weight", np.full(4, 1 + steps * step, dtype)), 1e-6)
        run_and_compare("rounded", change, subject, feeds=feeds)

    judge(4)
    with pytest.raises(ConversionError, match="from the parent's, the most is"):
        judge(20)


def test_drawn_samples_fit_the_graph_and_repeat():
    inputs = "int64[batch, sequence] ids, int64[batch, sequence] mask, float16[batch, 3] f, bool[2] b"
    body = "cast = Cast<to = 6>(ids) y = Gather(table, cast)"
    subject = graph(body, inputs, "float[a, b, c] y", table=(5, 2))
    drawn = draw(subject)
    assert [feed["ids"].shape for feed in drawn] == [(1, 8), (2, 12)]
    assert {int(feed["ids"].max()) for feed in drawn} <= {3, 4}
    assert all((feed["mask"] == 1).all() and feed["b"].all() for feed in drawn)
    assert {str(feed["f"].dtype) for feed in drawn} == {"float16"}
    assert samples.digest(drawn) == samples.digest(draw(subject))


# Outputs that follow the input no better than chance are refused, rounded ones are not.


def outputs(shapes: list[tuple[int, ...]]) -> list[dict[str, Any]]:
    return [{"y": DRAW.normal(size=shape) + BIAS[: shape[-1]]} for shape in shapes]


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_chance_is_never_passed(shapes):
    """A bias makes the plain cosine of any two outputs high."""
    parent = outputs(shapes)
    mean = np.concatenate([one["y"].reshape(-1, shapes[0][-1]) for one in parent]).mean(axis=0)
    constant = [{"y": mean + 1e-3 * DRAW.normal(size=one["y"].shape)} for one in parent]
    for child in (constant, *(outputs(shapes) for _ in range(50))):
        with pytest.raises(ConversionError):
            compare(parent, child, "the pass")
        assert compare(parent, child, "the pass", is_bounded=False)["y"].max_abs_diff > 0


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.4])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_rounding_is_passed(shapes, noise):
    parent = outputs(shapes)
    child = [{"y": one["y"] + noise * DRAW.normal(size=one["y"].shape)} for one in parent]
    assert compare(parent, child, "the pass")["y"].cosine > 0.9


def test_few_vectors_and_a_parent_that_hardly_varies_may_be_rounded():
    """Embeddings of 5 texts, whose INT8 has a cosine of .96: no value of 384 is a class.

    Of an untrained model, or one that is sure, what varies is smaller than the rounding of what does not.
    """
    for _ in range(400):
        parent = DRAW.normal(size=(5, 384))
        child = parent + 0.3 * DRAW.normal(size=parent.shape)
        assert compare([{"y": parent}], [{"y": child}], "the pass")["y"].cosine > 0.9
    steady, rounded = ([{"y": BIAS + size * DRAW.normal(size=(9, 4))}] for size in (1e-3, 1e-2))
    assert compare(steady, rounded, "the pass")["y"].cosine > 0.99


@pytest.mark.parametrize("shape", [(1, 4), (), (0, 4), (3,), (2, 4)])
def test_an_output_that_does_not_vary(shape):
    value = [{"y": np.ones(shape)}]
    assert compare(value, value, "the pass")["y"].max_abs_diff == 0


# The catalog: ours, others', and the table in the documentation

PAGE = Path(__file__).parents[3] / "docs" / "passes.md"
MODULE = '''
from onnxreg.converters.passes.base import GraphPass
class Other(GraphPass):
    """Do nothing. And that well."""
    id = "Other"
    def apply(self, subject):
        return subject
'''


@pytest.mark.parametrize("name", pass_catalog.BUILT_IN)
def test_every_pass_is_described(name):
    from jsonschema import Draft202012Validator

    found = pass_catalog.describe(name)
    json.dumps(found)
    Draft202012Validator.check_schema(found["parameters"])
    assert found["summary"]
    assert found["parameters"]["additionalProperties"] is False


def test_the_table_of_the_documentation_is_generated():
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("<!-- generated: passes -->\n")[2].partition("<!-- end -->")[0]
    rows = [f"| `{name}` | {pass_catalog.describe(name)['summary']} |" for name in pass_catalog.BUILT_IN]
    assert table.split("\n") == ["", "| pass | what it does |", "|---|---|", *rows, "", ""]


def test_a_pass_of_another_package(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "passes", "Other = other_plug_ins:Other", module=MODULE)
    assert pass_catalog.names() == [*pass_catalog.BUILT_IN, "Other"]
    assert "other_plug_ins" not in sys.modules
    found = pass_catalog.describe("Other")
    assert (found["package"], found["summary"]) == ("other_plug_ins", "Do nothing")


@pytest.mark.parametrize(
    ("entry", "module", "message"),
    [
        ("Other = other_plug_ins:Missing", MODULE, "does not load"),
        ("Other = other_plug_ins:Other", "1 / 0", "does not load: division by zero"),
        ("Wrong = other_plug_ins:Other", MODULE, "is not a pass with the id Wrong"),
        ("Other = other_plug_ins:GraphPass", MODULE, "is not a pass with the id Other"),
        ("OnnxConversion = other_plug_ins:Other", MODULE, "two packages bring a pass called OnnxConversion"),
    ],
)
def test_a_pass_that_is_broken_or_has_a_name_that_is_taken_is_named(
    entry, module, message, tmp_path, monkeypatch
):
    install(tmp_path, monkeypatch, "passes", entry, module=module)
    name = entry.partition(" ")[0] if "two" not in message else "Other"
    steps = [{"name": "only", "pass": name}]
    recipe = {"task": "onnx", "steps": steps, "outputs": [{"step": "only", "path": "a.onnx"}]}
    with pytest.raises(ConflictError if "two" in message else HostError, match=message):
        plan_export(RecipeFile.from_json(recipe), "model.onnx", "acme/x")


def test_an_unknown_name_tells_the_nearest_or_all():
    with pytest.raises(InputError, match="no pass is called 'onnxconversoin'") as caught:
        pass_catalog.find("onnxconversoin")
    assert caught.value.hint.startswith("did you mean OnnxConversion")
    with pytest.raises(InputError) as caught:
        pass_catalog.find("zzz")
    assert "OnnxConversion, TransformersExport" in caught.value.hint
