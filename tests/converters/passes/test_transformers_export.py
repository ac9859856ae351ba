"""`TransformersExport`: what is used of the interface of `transformers.exporters`, and what is set in its results.

`TorchScriptExport`: when it uses the other exporter, and what it stores once."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.graphs import read, run
from support.sampling import sampled

from onnxreg.converters.passes import models
from onnxreg.converters.passes.conversion import TorchModel, TorchScriptExport, TransformersExport
from onnxreg.schema.core.errors import ConversionError

AXES = {"x": {0: "batch"}, "y": {0: "batch"}, "z": {0: "batch"}}


class Net(torch.nn.Module):
    """Two outputs of an image of 6 x 8; the mean makes the graph right for images of other sizes than were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Conv2d(1, 3, 3, padding=1)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        y = self.drop(self.mix(x)).mean((2, 3))
        return {"y": y, "z": torch.stack([y.sum(1)] * len({"b", "a"}), 1)}


class Baked(Net):
    def forward(self, x: Any) -> Any:
        y = self.mix(x).mean((2, 3))
        return {"y": y.reshape(2, 3), "z": y}


class Refused(Net):
    def forward(self, x: Any) -> Any:
        y = self.mix(x).mean((2, 3))
        return {"y": y if y.sum() > 0 else -y, "z": y}


def subject(net: type[Net] = Net, rows: int = 2) -> TorchModel:
    torch.manual_seed(0)
    return TorchModel(net(), {"x": torch.randn(rows, 1, 6, 8)}, ("y", "z"), AXES)


def shape(value: Any) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_names_axes_and_sizes_are_ours():
    source = subject()
    model, step = run("fp32", TransformersExport(), source)
    assert source.module.drop.training
    shapes = {value.name: shape(value) for value in (*model.graph.input, *model.graph.output)}
    assert shapes == {"x": ["batch", 1, 6, 8], "y": ["batch", 3], "z": ["batch", 2]}
    assert (model.opset_import[0].version, model.ir_version) == (18, 8)
    assert step.result["opset"] == 18 and not model.graph.value_info
    assert "Dropout" not in {node.op_type for node in model.graph.node}
    text = model.SerializeToString()
    assert b"site-packages" not in text and b".py" not in text
    session = models.session(read(model))
    image = np.random.default_rng(0).normal(size=(5, 1, 6, 8)).astype(np.float32)
    assert [output.shape for output in session.run(None, {"x": image})] == [(5, 3), (5, 2)]
    with pytest.raises(Exception, match="invalid dimensions"):  # not a wrong answer for another size
        session.run(None, {"x": image[..., :7]})


@pytest.mark.more
@pytest.mark.parametrize("opset", sampled([19, 23], 2, pytest.mark.large))
def test_the_opset_is_the_requested_one(opset):
    model = run("fp32", TransformersExport(target_opset=opset), subject())[0]
    assert model.opset_import[0].version == opset
    onnx.checker.check_model(model)


@pytest.mark.parametrize(
    ("made", "family", "message"),
    [
        (lambda: subject(rows=1), ConversionError, "fixed the axis batch of x at 1"),
        pytest.param(
            lambda: subject(Baked), ConversionError, "fixed the axis batch of x at 2", marks=pytest.mark.more
        ),
        (lambda: subject(Refused), ConversionError, "the exporter of transformers refuses the model: "),
    ],
)
def test_what_is_refused(made, family, message, capfd):
    with pytest.raises(family) as refused:
        run("fp32", TransformersExport(), made())
    assert message in str(refused.value) and len(str(refused.value)) < 500
    assert capfd.readouterr() == ("", "")  # not the whole graph


@pytest.mark.more
def test_two_exports_of_one_module_are_equal():
    first, second = (models.to_proto(TransformersExport().apply(subject())) for _ in range(2))
    assert first == second


class Tied(torch.nn.Module):
    """Reads one matrix as a table and as the weights of a product; the second has weights of its own."""

    def __init__(self, is_odd: bool) -> None:
        super().__init__()
        self.table, self.own, self.is_odd = torch.nn.Embedding(200, 64), torch.nn.Linear(64, 64), is_odd

    def forward(self, x: Any) -> Any:
        y = self.own(self.table(x)) @ self.table.weight.T
        return torch.logaddexp(y, y) if self.is_odd else y


@pytest.mark.parametrize("is_odd", [False, True])
def test_a_shared_matrix_is_stored_once_and_another_exporter_helps(is_odd: bool) -> None:
    axes = {"x": {0: "batch", 1: "length"}, "y": {0: "batch", 1: "length"}}
    source = TorchModel(Tied(is_odd), {"x": torch.arange(6).reshape(2, 3)}, ("y",), axes)
    model, step = run("fp32", TorchScriptExport(), source)
    assert step.result["exporter"] == ("transformers" if is_odd else "torchscript")
    assert ("torchscript_refused" in step.result) == is_odd
    assert models.weight_bytes(read(model)) < 4 * (200 * 64 + 64 * 65) + 200
    expected = source.module(torch.arange(4)[None]).detach().numpy()
    found = models.session(read(model)).run(None, {"x": np.arange(4)[None]})[0]
    assert np.abs(found - expected).max() < 1e-4
