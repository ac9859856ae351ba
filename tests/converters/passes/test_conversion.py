"""`OnnxConversion` on small torch modules."""

from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch

from onnxreg.converters.passes.base import run
from onnxreg.converters.passes.conversion import OnnxConversion, TokenModel
from onnxreg.schema.errors import ConversionError, InputError


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
    model, step = run("fp32", OnnxConversion(), TokenModel(module, inputs()))
    assert all(part.training is training for part in module.modules())
    assert [value.name for value in model.graph.input] == ["input_ids", "attention_mask"]
    (logits,) = model.graph.output
    dims = [dim.dim_param or dim.dim_value for dim in logits.type.tensor_type.shape.dim]
    assert (logits.name, dims) == ("logits", ["batch", "sequence", 3])
    assert step.result == {"opset": 18, "nodes": len(model.graph.node)}
    assert "+" not in model.producer_version
    onnx.checker.check_model(model, full_check=True)


def test_a_module_that_cannot_be_exported_is_a_conversion_error() -> None:
    class Broken(Toy):
        def forward(self, input_ids: Any, attention_mask: Any, return_dict: bool = False) -> Any:
            raise ValueError("no such thing\nwith a second line")

    with pytest.raises(ConversionError, match=r"could not export the model: no such thing$"):
        run("fp32", OnnxConversion(), TokenModel(Broken(), inputs()))


def test_an_input_is_required() -> None:
    with pytest.raises(InputError, match="no example input"):
        run("fp32", OnnxConversion(), TokenModel(Toy(), {}))


def test_an_opset_that_differs_is_an_error() -> None:
    model, _ = run("fp32", OnnxConversion(target_opset=17), TokenModel(Toy().eval(), inputs()))
    with pytest.raises(ConversionError, match="asked for opset 18, the exporter gave 17"):
        OnnxConversion().ensures({}, model)
