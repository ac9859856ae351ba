"""`OnnxConversion`: a PyTorch module to an ONNX graph."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from onnxreg.converters.passes import base, graph
from onnxreg.converters.passes.quiet import quiet
from onnxreg.schema.errors import ConversionError, InputError

AXES = {0: "batch", 1: "sequence"}


@dataclass(frozen=True)
class TokenModel:
    """What is converted: a torch module and example tensors for its inputs, in order.

    `module` maps int64 `[batch, sequence]` tensors given by keyword to an object with `logits` of float32
    `[batch, sequence, labels]`.
    """

    module: Any
    inputs: Mapping[str, Any]


class OnnxConversion(base.Pass[TokenModel, Any]):
    """Export with `torch.onnx.export`; every input and output has the dynamic axes `batch` and `sequence`.

    The TorchScript exporter is the default: with eager attention its graphs of BERT-class encoders are what
    mobile operator sets were made for, and its bytes hold no path of the machine. The module's training mode is
    left as it was.
    """

    id = "OnnxConversion"

    class Params(base.PassParams):
        target_opset: int = 18
        use_dynamo_exporter: Literal[False] = False
        attention: Literal["eager"] = "eager"

    def requires(self, subject: TokenModel) -> None:
        if not subject.inputs:
            raise InputError("OnnxConversion: no example input was given")

    def apply(self, subject: TokenModel) -> Any:
        import onnx
        import torch

        names = list(subject.inputs)
        target: Any = io.BytesIO()
        try:
            with quiet(), torch.no_grad():
                torch.onnx.export(
                    _logits_only(subject.module, names),
                    tuple(subject.inputs.values()),
                    target,
                    input_names=names,
                    output_names=["logits"],
                    dynamic_axes=dict.fromkeys((*names, "logits"), AXES),
                    opset_version=self.params.target_opset,
                    do_constant_folding=True,
                    dynamo=self.params.use_dynamo_exporter,
                )
        except Exception as error:
            raise ConversionError(f"PyTorch could not export the model: {_first_line(error)}") from error
        model = onnx.ModelProto.FromString(target.getbuffer())
        model.producer_version = model.producer_version.partition("+")[0]
        return model

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        opset = graph.default_opset(after)
        if opset != self.params.target_opset:
            raise ConversionError(f"asked for opset {self.params.target_opset}, the exporter gave {opset}")
        if [value.name for value in after.graph.output] != ["logits"]:
            raise ConversionError("the exporter lost the output 'logits'")
        return {"opset": opset, "nodes": len(after.graph.node)}


def _logits_only(module: Any, names: list[str]) -> Any:
    """Positional tensors in, the logits tensor out: the only form that tracing keeps as it is."""
    import torch

    class LogitsOnly(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            return self.model(**dict(zip(names, tensors, strict=True)), return_dict=True).logits

    return LogitsOnly(module).train(module.training)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
