"""`TransformersExport`: the only module that calls the exporters of transformers (`transformers.exporters`).

The exporters are experimental: tests/converters/passes/test_transformers_export.py tests the used part of their interface,
and pyproject.toml limits the version. This module itself sets names and sizes, fixes the order of sets, and drops metadata.
"""

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from pydantic import Field

from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.conversion import ModuleExport, TorchModel, traceable, traced_builtins
from onnxreg.converters.runtime.sessions import one_torch_thread, silent_transformers
from onnxreg.converters.source.toolchain import require
from onnxreg.schema.core.errors import ConversionError, InputError

OLDEST, NEWEST, DEFAULT = 18, 23, 18
"""The lowest and the highest opset that the exporter writes and ONNX Runtime 1.31 loads, and the default."""
OTHER_WAYS = "export it with Optimum, then reg import the directory; or another task of the checkpoint"
FEWEST = 2
"""The least size of a dynamic axis in the examples: `torch.export` makes an axis of size 1 fixed."""


class TransformersExport(ModuleExport):
    """Export with the exporter of transformers.

    It uses `torch.export`, and knows the models of transformers. Only the axes of the `TorchModel` are dynamic; every other
    size is a number in the graph, so that a runtime refuses inputs of another size. Inputs, outputs and axes have the names
    of the `TorchModel`. If a source becomes several graphs, `part` selects one.
    """

    id = "TransformersExport"
    tools = ("onnx-ir", "onnxscript")

    class Params(PassParams):
        target_opset: int = Field(DEFAULT, ge=OLDEST, le=NEWEST)
        part: str | None = None

    def requires(self, subject: TorchModel) -> None:
        super().requires(subject)
        for name, tensor in subject.inputs.items():
            for axis, label in subject.axes_of(name).items():
                if tensor.shape[axis] < FEWEST:
                    message = f"{self.id}: the example {name} has the size {tensor.shape[axis]} along {label}"
                    raise InputError(message, f"a dynamic axis needs {FEWEST} or more")

    def apply(self, subject: TorchModel) -> Any:
        """Return the graph that the exporter of transformers makes (`onnx.ModelProto`), with the names of the subject.

        Raises HostError if onnxscript is not installed. Raises ConversionError, with the exporter's own words, if the exporter
        refuses the module or makes a dynamic axis fixed.
        """
        require("onnxscript", "onnx_ir")
        import onnx
        import onnx_ir
        import torch
        from transformers.exporters import OnnxConfig, OnnxExporter

        positional = traceable(subject)

        class ByName(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = positional

            def forward(self, **tensors: Any) -> Any:
                result = self.model(*(tensors[plain] for plain in inputs))
                return dict(zip(outputs, result if isinstance(result, tuple) else (result,), strict=True))

        # argument names in Python have no dots
        inputs = {f"input_{number}": name for number, name in enumerate(subject.inputs)}
        outputs = {f"output_{number}": name for number, name in enumerate(subject.outputs)}
        shapes = {
            plain: dict.fromkeys(subject.axes_of(name), torch.export.Dim.AUTO)
            for plain, name in inputs.items()
        }
        config = OnnxConfig(dynamic_shapes=shapes, opset_version=self.params.target_opset)
        training = subject.module.training
        label, printed = "the exporter of transformers", io.StringIO()
        try:
            with (
                models.tool(label, f"{label} refuses the model", OTHER_WAYS),
                silent_transformers(),
                redirect_stderr(printed),  # `torch.export` prints the whole graph of a model that it refuses
                redirect_stdout(printed),
                one_torch_thread(),
                traced_builtins(subject.module),
            ):
                examples = {plain: subject.inputs[name] for plain, name in inputs.items()}
                program = OnnxExporter().export(ByName().eval(), examples, config).program
        finally:
            subject.module.train(training)
        for value in (*program.graph.inputs, *program.graph.outputs):
            value.name = {**inputs, **outputs}[value.name]
        exported = onnx_ir.to_proto(program)
        exported.ir_version = onnx.helper.find_min_ir_version_for(exported.opset_import, ignore_unknown=True)
        self.finish(exported, subject)
        for value in (*exported.graph.input, *exported.graph.output):
            axes = subject.axes_of(value.name)
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                if axis not in axes:
                    continue
                if dim.HasField("dim_value") or dim.dim_param.isdigit():
                    size = dim.dim_param or dim.dim_value
                    fault = f"fixed the axis {axes[axis]} of {value.name} at {size}, the size of its example"
                    raise ConversionError(f"the exporter of transformers {fault}", OTHER_WAYS)
                dim.dim_param = axes[axis]
        del exported.graph.value_info[:]  # sizes there are names too, such as "64"
        models.clear_metadata(exported)
        return exported
