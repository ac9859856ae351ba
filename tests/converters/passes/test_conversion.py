"""`OnnxConversion` on small torch modules."""

import sys
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch
from support.sampling import sampled

from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.conversion import OnnxConversion, TorchModel, agreement
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


def inputs() -> dict[str, Any]:
    ids = torch.tensor([[1, 2, 3], [4, 5, 0]])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


@pytest.mark.parametrize("training", [False, True])
def test_contract_of_the_graph_and_mode_of_the_module(training: bool) -> None:
    module = Toy().train(training)
    model, step = run("fp32", OnnxConversion(), TorchModel(module, inputs()))
    assert all(part.training is training for part in module.modules())
    assert [value.name for value in model.graph.input] == ["input_ids", "attention_mask"]
    (logits,) = model.graph.output
    dims = [dim.dim_param or dim.dim_value for dim in logits.type.tensor_type.shape.dim]
    assert (logits.name, dims) == ("logits", ["batch", "sequence", 3])
    assert step.result == {"opset": 18, "nodes": len(model.graph.node), "exporter": "torchscript"}
    assert "+" not in model.producer_version
    onnx.checker.check_model(model, full_check=True)


def test_a_module_that_cannot_be_exported_is_a_conversion_error() -> None:
    class Broken(Toy):
        def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
            raise ValueError("no such thing\nwith a second line")

    with pytest.raises(ConversionError, match=r"could not export the model: no such thing$"):
        run("fp32", OnnxConversion(), TorchModel(Broken(), inputs()))


def test_an_input_is_required() -> None:
    with pytest.raises(InputError, match="no example input"):
        run("fp32", OnnxConversion(), TorchModel(Toy(), {}))


def test_an_opset_that_differs_is_an_error() -> None:
    model, _ = run("fp32", OnnxConversion(target_opset=17), TorchModel(Toy().eval(), inputs()))
    with pytest.raises(ConversionError, match="asked for opset 18, the exporter gave 17"):
        OnnxConversion().ensures({}, model)


class Plain(torch.nn.Module):
    """Two outputs in a tuple, and a branch on a size that tracing cannot see."""

    def __init__(self, branches: bool) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.branches = branches

    def forward(self, x: Any) -> Any:
        rows = self.inner(x)
        scale = x.shape[1] if self.branches else 1
        return rows * int(scale), rows.sum(dim=1)


def plain(branches: bool = False, **changes: Any) -> TorchModel:
    torch.manual_seed(0)
    return TorchModel(
        Plain(branches).eval(),
        {"x": torch.ones(2, 3, 4)},
        ("rows", "sums"),
        {"x": {0: "batch", 1: "length"}, "rows": {0: "batch", 1: "length"}, "sums": {0: "batch"}},
        **changes,
    )


@pytest.mark.parametrize("dynamo", sampled([False, True], 2))
def test_any_module_by_either_exporter(dynamo: bool) -> None:
    model, step = run("fp32", OnnxConversion(use_dynamo_exporter=dynamo), plain())
    assert [value.name for value in model.graph.output] == ["rows", "sums"]
    dims = [dim.dim_param or dim.dim_value for dim in model.graph.output[1].type.tensor_type.shape.dim]
    assert dims == ["batch", 4]
    assert step.result["exporter"] == ("dynamo" if dynamo else "torchscript")
    assert agreement(plain(), model) < 1e-5
    assert b"stack_trace" not in model.SerializeToString()


def test_auto_refuses_a_graph_that_is_true_for_the_examples_only() -> None:
    traced, _ = run("fp32", OnnxConversion(), plain(branches=True))
    assert agreement(plain(branches=True), traced) > 0.1
    model, step = run("fp32", OnnxConversion(use_dynamo_exporter="auto"), plain(branches=True))
    assert step.result["exporter"] == "dynamo"
    assert "on samples of another size" in step.result["torchscript_refused"]
    assert agreement(plain(branches=True), model) < 1e-5


def test_auto_takes_torchscript_where_that_is_right() -> None:
    _, step = run("fp32", OnnxConversion(use_dynamo_exporter="auto"), plain())
    assert step.result["exporter"] == "torchscript"


@pytest.mark.parametrize("dynamo", sampled([False, True, "auto"], 2))
def test_without_dynamic_axes_the_batch_is_one(dynamo: Any) -> None:
    model, _ = run("fp32", OnnxConversion(dynamic=False, use_dynamo_exporter=dynamo), plain())
    values = [*model.graph.input, *model.graph.output]
    dims = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values]
    assert [shape[0] for shape in dims] == [1, 1, 1]
    assert dims[0] == [1, 3, 4]


@pytest.mark.more
def test_an_older_opset_than_the_dynamo_exporter_has_is_an_error() -> None:
    subject = TorchModel(torch.nn.LayerNorm(4), {"input": torch.ones(2, 3, 4)})
    with pytest.raises(ConversionError, match="asked for opset 14, the exporter gave 18"):
        run("fp32", OnnxConversion(use_dynamo_exporter=True, target_opset=14), subject)


@pytest.mark.more
def test_the_error_names_the_opset_of_dynamo() -> None:
    subject = plain(branches=True)
    subject.module.inner = torch.nn.LayerNorm(4)
    with pytest.raises(ConversionError, match="asked for opset 14, the exporter gave 18") as caught:
        run("fp32", OnnxConversion(use_dynamo_exporter="auto", target_opset=14), subject)
    assert "OnnxOpVersionConversion with target_opset: 14" in caught.value.hint


@pytest.mark.parametrize("dynamo", [True, "auto"])
def test_the_package_that_the_dynamo_exporter_needs_is_named(
    dynamo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(HostError, match="needs onnxscript, which is not installed") as caught:
        run("fp32", OnnxConversion(use_dynamo_exporter=dynamo), plain(branches=True))
    assert "[export]" in caught.value.hint


@pytest.mark.parametrize(
    ("opset", "told"),
    [
        (6, "it must be greater than or equal to 7"),
        (27, "it must be less than or equal to 26"),
        (24, "is above 23: add use_dynamo"),
    ],
)
def test_an_opset_that_no_exporter_has_is_told_before_anything_runs(opset: int, told: str) -> None:
    with pytest.raises(InputError, match=f"target_opset:? {told}"):
        OnnxConversion(target_opset=opset)


def test_an_output_that_the_module_does_not_give() -> None:
    subject = TorchModel(Plain(False), {"x": torch.ones(2, 3, 4)}, ("a", "b", "c"))
    with pytest.raises(ConversionError, match="gives 2 outputs, not a, b, c"):
        run("fp32", OnnxConversion(), subject)


def test_no_exporter_can() -> None:
    class Broken(Plain):
        def forward(self, x: Any) -> Any:
            raise ValueError("no such thing")

    with pytest.raises(
        ConversionError, match=r"no exporter agrees with the module: torchscript: .*; dynamo: "
    ):
        run(
            "fp32",
            OnnxConversion(use_dynamo_exporter="auto"),
            TorchModel(Broken(False), {"x": torch.ones(1, 2, 4)}),
        )


def test_constants_are_folded_or_left() -> None:
    class Turned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2, 3))

        def forward(self, x: Any) -> Any:
            return torch.matmul(x, self.weight.t())

    def nodes(fold: bool) -> int:
        subject = TorchModel(
            Turned(), {"x": torch.zeros(2, 3)}, ("y",), {"x": {0: "batch"}, "y": {0: "batch"}}
        )
        return len(run("fp32", OnnxConversion(do_constant_folding=fold), subject)[0].graph.node)

    assert nodes(True) < nodes(False)


def test_an_exporter_that_fails_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    class Unsupported(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.eigvals(x).real

    with pytest.raises(ConversionError):
        run("fp32", OnnxConversion(), TorchModel(Unsupported(), {"x": torch.eye(3)}))
    assert capfd.readouterr() == ("", "")


def test_a_module_that_changes_when_it_runs_is_noticed() -> None:
    """Like BigBird, whose attention is another for good after the first short input."""

    class Switching(Toy):
        was_short = False

        def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
            self.was_short |= input_ids.shape[1] < 4
            logits = super().forward(input_ids, attention_mask).logits
            return SimpleNamespace(logits=logits if self.was_short else 2 * logits)

    rows = [{name: torch.ones(1, length).long().numpy() for name in inputs()} for length in (2, 8, 6)]
    with pytest.raises(ConversionError, match="changes when it runs"):
        conversion.run(TorchModel(Switching(), inputs()), rows)
    fresh = TorchModel(Switching(), inputs())
    assert [result["logits"].shape for result in conversion.run(fresh, rows[1:])] == [(1, 8, 3), (1, 6, 3)]


@pytest.mark.parametrize("lost", ["attention_mask", "input_ids"])
def test_an_input_that_no_output_depends_on_is_named(lost: str) -> None:
    class Forgetful(torch.nn.Module):
        def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
            return {"logits": (attention_mask if lost == "input_ids" else input_ids) * 1.5}

    with pytest.raises(ConversionError, match="not input_ids, attention_mask: the exporter drops"):
        run("fp32", OnnxConversion(), TorchModel(Forgetful(), inputs()))
