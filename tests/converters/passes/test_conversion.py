"""`OnnxConversion` on small torch modules."""

import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch
from support.graphs import all_outputs, draw, read, run
from support.sampling import sampled

from onnxreg.converters.passes import conversion, samples
from onnxreg.converters.passes.conversion import OnnxConversion, TorchModel
from onnxreg.schema.core.errors import ConversionError, HostError, InputError


class Toy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(9, 4)
        self.head = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
        hidden = self.drop(self.embed(input_ids)) * attention_mask.unsqueeze(-1)
        return SimpleNamespace(logits=self.head(hidden), extra=hidden)


class Broken(Toy):
    def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
        raise ValueError("no such thing\nwith a second line")


class Forgetful(Toy):
    """Reads one of its inputs alone."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
        return {"logits": (input_ids, attention_mask)[self.at] * 1.5}


class Switching(Toy):
    """Like BigBird, whose attention is another for good after the first short input."""

    was_short = False

    def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
        self.was_short |= input_ids.shape[1] < 4
        logits = super().forward(input_ids, attention_mask).logits
        return SimpleNamespace(logits=logits if self.was_short else 2 * logits)


class Unsupported(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvals(x).real


class Turned(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, 3))

    def forward(self, x: Any) -> Any:
        return torch.matmul(x, self.weight.t())


class Plain(torch.nn.Module):
    """Two outputs in a tuple, and perhaps a size that tracing cannot see, or an error."""

    def __init__(self, branches: bool = False, fails: bool = False) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.branches, self.fails = branches, fails

    def forward(self, x: Any) -> Any:
        if self.fails:
            raise ValueError("no such thing")
        rows = self.inner(x)
        scale = torch.tensor(list(x.shape)).sum() if self.branches else 1
        return rows * scale, rows.sum(dim=1)


def inputs() -> dict[str, Any]:
    ids = torch.tensor([[1, 2, 3], [4, 5, 0]])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def plain(branches: bool = False) -> TorchModel:
    torch.manual_seed(0)
    axes = {"x": {0: "batch", 1: "length"}, "rows": {0: "batch", 1: "length"}, "sums": {0: "batch"}}
    return TorchModel(Plain(branches).eval(), {"x": torch.ones(2, 3, 4)}, ("rows", "sums"), axes)


def normed() -> TorchModel:
    subject = plain(branches=True)
    subject.module.inner = torch.nn.LayerNorm(4)
    return subject


def forgetful(at: int) -> TorchModel:
    return TorchModel(Forgetful(at), inputs())


def dims(value: Any) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


@pytest.mark.parametrize("training", [False, True])
def test_contract_of_the_graph_and_mode_of_the_module(training):
    module = Toy().train(training)
    model, step = run("fp32", OnnxConversion(), TorchModel(module, inputs()))
    assert all(part.training is training for part in module.modules())
    assert [value.name for value in model.graph.input] == ["input_ids", "attention_mask"]
    (logits,) = model.graph.output
    assert (logits.name, dims(logits)) == ("logits", ["batch", "sequence", 3])
    assert step.result == {"opset": 18, "nodes": len(model.graph.node), "exporter": "torchscript"}
    assert "+" not in model.producer_version
    onnx.checker.check_model(model, full_check=True)


X = {"x": torch.ones(2, 3, 4)}
REFUSED: dict[str, tuple[dict[str, Any], Callable[[], TorchModel], type[Exception], str]] = {
    "an error": ({}, lambda: TorchModel(Broken(), inputs()), ConversionError, r"could not export the model: no such thing$"),
    "an error of each exporter": ({"use_dynamo_exporter": "auto"}, lambda: TorchModel(Plain(fails=True), X), ConversionError,
                                  r"no exporter agrees with the module: torchscript: .*; dynamo: "),
    "an operator": ({}, lambda: TorchModel(Unsupported(), {"x": torch.eye(3)}), ConversionError, "could not export"),
    "no example": ({}, lambda: TorchModel(Toy(), {}), InputError, "no example input"),
    "an output too many": ({}, lambda: TorchModel(Plain(), X, ("a", "b", "c")), ConversionError, "gives 2 outputs, not a, b, c"),
    **{f"the input {at} alone is read": ({}, partial(forgetful, at), ConversionError, "not input_ids, attention_mask: the exporter drops")
       for at in (0, 1)},
    "opset 6": ({"target_opset": 6}, plain, InputError, "target_opset:? it must be greater than or equal to 7"),
    "opset 27": ({"target_opset": 27}, plain, InputError, "target_opset:? it must be less than or equal to 26"),
    "opset 24": ({"target_opset": 24}, plain, InputError, "target_opset:? is above 23: add use_dynamo"),
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.more if "each exporter" in case else ()) for case in REFUSED],
)
def test_modules_and_parameters_that_give_no_graph(case, capfd):
    params, subject, family, message = REFUSED[case]
    with pytest.raises(family, match=message):
        run("fp32", OnnxConversion(**params), subject())
    assert capfd.readouterr() == ("", "")


def test_an_opset_that_differs_is_an_error():
    model, _ = run("fp32", OnnxConversion(target_opset=17), TorchModel(Toy().eval(), inputs()))
    with pytest.raises(ConversionError, match="asked for opset 18, the exporter gave 17"):
        OnnxConversion().ensures({}, read(model))


@pytest.mark.more
@pytest.mark.parametrize("dynamo", sampled([True, "auto"], 2, pytest.mark.large))
def test_an_older_opset_than_the_dynamo_exporter_has_is_an_error(dynamo):
    with pytest.raises(ConversionError, match="asked for opset 14, the exporter gave 18") as caught:
        run("fp32", OnnxConversion(use_dynamo_exporter=dynamo, target_opset=14), normed())
    assert "OnnxOpVersionConversion with target_opset: 14" in caught.value.hint


@pytest.mark.parametrize("dynamo", sampled([False, True], 2))
def test_any_module_by_either_exporter(dynamo, monkeypatch):
    """Also in a folder whose path occurs in the names of nodes."""
    monkeypatch.setenv("HOME", "/model")
    model, step = run("fp32", OnnxConversion(use_dynamo_exporter=dynamo), plain())
    assert [value.name for value in model.graph.output] == ["rows", "sums"]
    assert dims(model.graph.output[1]) == ["batch", 4]
    assert step.result["exporter"] == ("dynamo" if dynamo else "torchscript")
    feeds = draw(model)
    outputs = all_outputs(model, feeds, "the graph")
    assert samples.relative_distance(conversion.run(plain(), feeds), outputs, "it", floor=1.0) < 1e-5
    assert b"stack_trace" not in model.SerializeToString()


@pytest.mark.more
def test_auto_takes_torchscript_but_no_graph_that_is_true_for_the_examples_only():
    auto = OnnxConversion(use_dynamo_exporter="auto")
    assert run("fp32", auto, plain())[1].result["exporter"] == "torchscript"
    _, step = run("fp32", auto, plain(branches=True))
    assert step.result["exporter"] == "dynamo"
    assert "on samples of another size" in step.result["torchscript_refused"]


@pytest.mark.parametrize("dynamo", sampled([False, True, "auto"], 2))
def test_without_dynamic_axes_the_batch_is_one(dynamo):
    model, _ = run("fp32", OnnxConversion(dynamic=False, use_dynamo_exporter=dynamo), plain())
    shapes = [dims(value) for value in (*model.graph.input, *model.graph.output)]
    assert [shape[0] for shape in shapes] == [1, 1, 1]
    assert shapes[0] == [1, 3, 4]


@pytest.mark.parametrize("dynamo", [True, "auto"])
def test_the_package_that_the_dynamo_exporter_needs_is_named(dynamo, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(HostError, match="needs onnxscript, which is not installed") as caught:
        run("fp32", OnnxConversion(use_dynamo_exporter=dynamo), plain(branches=True))
    assert "[export]" in caught.value.hint


def test_constants_are_folded_or_left():
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    subject = TorchModel(Turned(), {"x": torch.zeros(2, 3)}, ("y",), axes)
    folded, left = (
        run("fp32", OnnxConversion(do_constant_folding=fold), subject)[0] for fold in (True, False)
    )
    assert len(folded.graph.node) < len(left.graph.node)


def test_a_module_that_changes_when_it_runs_is_noticed():
    rows = [{name: torch.ones(1, length).long().numpy() for name in inputs()} for length in (2, 8, 6)]
    with pytest.raises(ConversionError, match="changes when it runs"):
        conversion.run(TorchModel(Switching(), inputs()), rows)
    fresh = TorchModel(Switching(), inputs())
    assert [result["logits"].shape for result in conversion.run(fresh, rows[1:])] == [(1, 8, 3), (1, 6, 3)]
