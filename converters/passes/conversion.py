"""`OnnxConversion`: a PyTorch module to an ONNX graph."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from onnxreg.converters.passes import base
from onnxreg.converters.passes.tools import graph, samples, torch_model
from onnxreg.converters.passes.tools.torch_model import (
    Export,
    TorchModel,
    export_dynamo,
    export_torchscript,
    names_a_directory,
)
from onnxreg.schema.core.errors import ConversionError, InputError

EXPORTERS: dict[bool, tuple[str, Export]] = {
    False: ("torchscript", export_torchscript),
    True: ("dynamo", export_dynamo),
}
OLDEST, NEWEST = 7, 23
"""The opsets of PyTorch's TorchScript exporter."""
MAX_DYNAMO_OPSET = 26
"""The newest one that ONNX Runtime 1.31 loads; the other exporter converts to any that ONNX has, from 18 on."""

TOLERANCE = 1e-3
"""The largest distance from the module that `auto` accepts, in parts of an output's largest value."""


class ConversionParams(base.PassParams, title="Params"):
    target_opset: int = Field(18, ge=OLDEST, le=MAX_DYNAMO_OPSET)
    use_dynamo_exporter: bool | Literal["auto"] = False
    dynamic: bool = True
    do_constant_folding: bool = True
    attention: Literal["eager"] = "eager"

    @model_validator(mode="after")
    def _has_an_exporter(self) -> "ConversionParams":
        if self.target_opset > NEWEST and self.use_dynamo_exporter is False:
            raise ValueError(f"target_opset is above {NEWEST}: add use_dynamo_exporter: auto, or true")
        return self


class OnnxConversion(base.Pass[TorchModel, Any]):
    """Export with `torch.onnx.export`.

    The TorchScript exporter is the default: with eager attention its graphs of BERT-class encoders are what
    mobile operator sets were made for, and its bytes hold no path of the machine. `use_dynamo_exporter` takes the
    other one; `auto` takes the first whose graph agrees with the module on samples of other sizes than the
    examples, TorchScript before, and records which and why. The module's training mode is left as it was.
    Without `dynamic` the batch is 1, and every other axis as long as in the examples. `do_constant_folding` is the TorchScript exporter's to
    leave out; the other one always folds.
    """

    id = "OnnxConversion"
    version = 4
    takes = "module"

    Params = ConversionParams

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._taken: dict[str, str] = {}

    def requires(self, subject: TorchModel) -> None:
        if not subject.inputs:
            raise InputError("OnnxConversion: no example input was given")
        if self.params.use_dynamo_exporter and not self.params.do_constant_folding:
            raise InputError(
                "OnnxConversion: the dynamo exporter always folds constants",
                "do_constant_folding: false goes with use_dynamo_exporter: false",
            )

    def observe(self, subject: TorchModel) -> Mapping[str, Any]:
        return {"inputs": list(subject.inputs), "outputs": list(subject.outputs)}

    def apply(self, subject: TorchModel) -> Any:
        exporter = self.params.use_dynamo_exporter
        if exporter == "auto":
            return self._choose(subject)
        self._taken = {"exporter": EXPORTERS[exporter][0]}
        return self._export(subject, EXPORTERS[exporter][1])

    def _export(self, subject: TorchModel, export: Export) -> Any:
        params = self.params
        given = subject if params.dynamic else subject.one_row()
        return export(given, params.target_opset, params.dynamic, params.do_constant_folding)

    def ensures(self, before: Mapping[str, Any], after: Any) -> dict[str, Any]:
        opset = graph.default_opset(after)
        if opset != self.params.target_opset:
            refused = _reasons(self._taken)
            raise ConversionError(
                f"asked for opset {self.params.target_opset}, the exporter gave {opset}"
                + (refused and f"; {refused}"),
                "the dynamo exporter begins at opset 18: ask for 18 (Orchard's opset_version), and in a recipe add a step "
                f"OnnxOpVersionConversion with target_opset: {self.params.target_opset}",
            )
        for side, values in (("inputs", after.graph.input), ("outputs", after.graph.output)):
            if (names := [value.name for value in values]) != before[side]:
                lost = [name for name in before[side] if name not in names]
                raise ConversionError(
                    f"the exported graph has no {' and no '.join(lost)}: the exporter found that no output depends on it"
                    if lost
                    else f"the exported graph has the {side} {', '.join(names)}, not {', '.join(before[side])}",
                    "if that is wrong, try in a recipe OnnxConversion with use_dynamo_exporter: true",
                )
        if folder := names_a_directory(after):
            raise ConversionError(f"the exporter wrote a path of this machine into the graph: .../{folder}")
        return {"opset": opset, "nodes": len(after.graph.node), **self._taken}

    def _choose(self, subject: TorchModel) -> Any:
        """The graph of the first exporter that agrees with the module; ConversionError if none does."""
        refused: dict[str, str] = {}
        for name, export in EXPORTERS.values():
            try:
                exported = self._export(subject, export)
                distance = agreement(subject, exported)
            except ConversionError as error:
                refused[f"{name}_refused"] = error.message
                continue
            if distance <= TOLERANCE:
                self._taken = {"exporter": name, **refused}
                return exported
            refused[f"{name}_refused"] = (
                f"its graph is {distance:.3g} from the module on samples of another size"
            )
        raise ConversionError(f"no exporter agrees with the module: {_reasons(refused)}")


def agreement(subject: TorchModel, exported: Any) -> float:
    """The distance of a graph from its module on seeded samples, in parts of an output's largest value, which is at least 1.

    Raises ConversionError if either does not run, or gives NaN.
    """
    feeds = samples.draw(exported)
    expected = torch_model.run(subject, feeds)
    outputs = samples.all_outputs(exported, feeds, "the exported graph")
    return samples.relative_distance(expected, outputs, "the exported graph", floor=1.0)


def _reasons(taken: Mapping[str, str]) -> str:
    """Why exporters were refused."""
    return "; ".join(
        f"{name.removesuffix('_refused')}: {why}" for name, why in taken.items() if name.endswith("_refused")
    )
