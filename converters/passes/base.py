"""The base classes of passes. A pass is a typed transformation that checks its input and its output."""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from onnxreg.converters.onnx.onnx_graph import check_light
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.runtime import golden
from onnxreg.schema.core.document import invalid
from onnxreg.schema.core.errors import ConversionError, InputError, why
from onnxreg.schema.manifest.manifest import Step

In = TypeVar("In")
Out = TypeVar("Out")
Takes = Literal["module", "graph", "file", "original", "checkpoint", "outputs"]
"""The inputs of passes: a `TorchModel`, `onnx_ir.Model`, graph file, original file, `Decoder`, or `Outputs`."""
Facts = Mapping[str, Any]


class PassParams(BaseModel):
    """Immutable parameters of a pass. Unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def read(cls, values: Mapping[str, Any], label: str) -> Self:
        """Make parameters from a JSON object. Raise InputError about `label` for an invalid value."""
        try:
            return cls.model_validate_json(json.dumps(values, default=repr))
        except ValidationError as error:
            keys = cls.model_fields
            raise invalid(error, label, keys, f"its keys are {', '.join(keys) or 'none'}") from error


class Pass(ABC, Generic[In, Out]):
    """A transformation with typed parameters.

    `run` calls `requires`, `observe`, `apply` and `ensures`. A change of the output needs a new `version`, because
    records name the code by `id` and `version`.
    """

    id: ClassVar[str]
    version: ClassVar[int] = 1
    Params: ClassVar[type[PassParams]] = PassParams

    takes: ClassVar[Takes] = "graph"
    second: ClassVar[str | None] = None
    """The parameter that names a second step. The pass gets that step's graph as `second_graph`."""
    tools: ClassVar[tuple[str, ...]] = ()
    """Packages of this pass whose versions a recipe records, beside `toolchain.TOOLS`."""
    tolerance: ClassVar[float | None] = None
    """The largest allowed change of an output, as a share of its largest value; None for no limit."""

    def __init__(self, data: Sequence[Feed] | None = None, second_graph: Any = None, **params: Any) -> None:
        """Make a pass with `params`. `data` are sample inputs, for passes that measure.

        A pass that reads two graphs gets `second_graph` (`onnx_ir.Model`), the result of the step `params[second]`.
        """
        self.params: Any = self.read(params)
        self.data, self.second_graph = data, second_graph
        self.found: dict[str, Any] = {}
        """Facts that `apply` adds to the record. `canonical` is False if a second run may give other bytes."""

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> PassParams:
        return cls.Params.read(params, f"a parameter of pass {cls.id}")

    def requires(self, subject: In) -> None:
        """Raise InputError or ConversionError if the pass cannot work on `subject`."""
        return

    def observe(self, subject: In) -> Facts:
        """Return facts about the input, for `ensures`. `apply` may change the input later."""
        return {}

    @abstractmethod
    def apply(self, subject: In) -> Out:
        """Transform the input and return the result. The input may be changed in place."""

    def ensures(self, before: Facts, after: Out) -> dict[str, Any]:
        """Return facts about the output, for the record. Raise ConversionError if the output is wrong."""
        return {}


class Original(Pass[Path, Path]):
    """Copy an ONNX file and its external data, byte for byte."""

    id = "Original"
    takes = "original"

    def apply(self, subject: Path) -> Path:
        return subject


@dataclass(frozen=True)
class Outputs:
    graph: Path
    inputs: Mapping[str, golden.Tensors]
    outputs: Mapping[str, golden.Tensors]


class GoldenVectors(Pass[Outputs, Path]):
    """Write a file with an artifact's outputs in ONNX Runtime on the CPU. It is the reference for other runtimes."""

    id = "golden-vectors"
    takes = "outputs"

    class Params(PassParams, title="GoldenParams"):
        """A value may differ by `max(tolerance, tolerance * largest output, least) + tolerance * |expected value|`.

        `least` is the largest difference that was measured between the outputs of artifact and source. For several
        outputs, `least` has a value for each name. A smaller tolerance would refuse correct runtimes: with dynamic
        quantization, another CPU may round a value to another code.
        """

        tolerance: float
        least: float | dict[str, float] = 0.0

    def apply(self, subject: Outputs) -> Path:
        arrays: dict[str, list[Any]] = {}
        for name, array in (item for outputs in subject.outputs.values() for item in outputs.items()):
            arrays.setdefault(name, []).append(array)
        share, least = self.params.tolerance, self.params.least
        leasts = least if isinstance(least, dict) else dict.fromkeys(arrays, least)
        tolerances = {
            name: golden.tolerance_of(arrays[name], share, leasts.get(name, 0.0)) for name in sorted(arrays)
        }
        cases = tuple(
            golden.GoldenCase(case, inputs, subject.outputs[case], tolerances)
            for case, inputs in subject.inputs.items()
        )
        path = subject.graph.with_name(f"{subject.graph.name}.golden.json")
        path.write_bytes(golden.encode(cases))
        for written, case in zip(golden.decode(path.read_bytes(), path.name), cases, strict=True):
            if not all(item.passed for item in golden.compare(written, case.outputs)):
                raise ConversionError(f"{path.name} does not hold what the graph gave")
        atol = {name: tolerance.atol for name, tolerance in tolerances.items()}
        values = sum(array.size for outputs in arrays.values() for array in outputs)
        self.found = {"cases": len(cases), "values": values, "atol": atol}
        return path


class GraphPass(Pass[Any, Any]):
    """A pass that takes a valid graph (`onnx_ir.Model`), and either changes it in place or returns a new one.

    The opset, and the names and types of inputs and outputs, must stay as they are or become what `observe` returns.
    """

    def requires(self, subject: Any) -> None:
        """Raise InputError if `subject` is not a valid graph, or if the sample inputs do not fit it."""
        import onnx
        import onnx_ir as ir

        if not isinstance(subject, ir.Model):
            raise InputError(f"{self.id} takes an ONNX graph (onnx_ir.Model), not {type(subject).__name__}")
        try:
            check_light(models.light(subject))
        except onnx.checker.ValidationError as error:
            raise InputError(f"{self.id}: not a valid graph: {why(error)}") from error
        if self.data is not None:
            samples.check(self.data, subject, self.id)

    def observe(self, subject: Any) -> Facts:
        return {
            "names": _names(subject),
            "types": public_types(subject),
            "opset": models.default_opset(subject),
            "weight_bytes": models.weight_bytes(subject),
        }

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        now = GraphPass.observe(self, after)
        for key, part in {"names": "inputs and outputs", "types": "public types", "opset": "opset"}.items():
            if before[key] != now[key]:
                raise ConversionError(f"{self.id} changed the {part}: {before[key]} became {now[key]}")
        weights = {"before": before["weight_bytes"], "after": now["weight_bytes"]}
        return {"opset": now["opset"], "weight_bytes": weights}


class QuantizationPass(GraphPass):
    """A pass that quantizes all constant weights of the operators `products`, except in `nodes_to_exclude`."""

    @property
    @abstractmethod
    def products(self) -> frozenset[str]:
        pass

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        self.excluded: Collection[str] = self.params.nodes_to_exclude
        models.refuse_unknown("node", self.excluded, models.node_names(subject))

    def observe(self, subject: Any) -> Facts:
        import numpy as np

        models.inline_functions(subject)
        before = super().observe(subject)
        self.prepare(subject)
        weights = [value.const_value for value in self.factors(subject)]
        for tensor in weights:
            if not np.isfinite(tensor.numpy()).all():
                raise ConversionError(f"the weight {tensor.name} holds NaN or infinity")
        return {**before, "weights": len(weights), "quantized_bytes": sum(one.nbytes for one in weights)}

    def prepare(self, subject: Any) -> None:
        """Change the graph before its weights are listed."""

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        result = super().ensures(before, after)
        if not before["weights"]:
            hint = f"the graph has no {' or '.join(sorted(self.products))} with constant weights"
            raise ConversionError("quantization reached none of the weights", hint)
        if left := sorted(value.name for value in self.factors(after)):
            raise ConversionError(f"quantization left weights in floating point: {', '.join(left)}")
        return {**result, "weights": before["weights"], "quantized_bytes": before["quantized_bytes"]}

    def factors(self, subject: Any) -> list[Any]:
        """Return the weights to quantize, as `onnx_ir.Value`."""
        return models.factors(subject, self.products, self.excluded)

    def note_stacks(self, subject: Any) -> None:
        """Record weights of rank 3 or more as `per_tensor`, because no kernel has a scale per channel for them."""
        matrices = models.factors(subject, self.products & {"MatMul"}, self.excluded)
        names = sorted(value.name for value in matrices if models.rank_of(value) > 2)
        if names and self.params.per_channel:
            self.found["per_tensor"] = names


def run(step: str, pass_: Pass[In, Out], subject: In, source: str | None = None) -> tuple[Out, Step]:
    """Run a pass with its checks. Return the output, and a record named `step`. The step `source` made `subject`."""
    pass_.found = {}
    pass_.requires(subject)
    before = pass_.observe(subject)
    after = pass_.apply(subject)
    result = pass_.ensures(before, after)
    return after, record(step, pass_, source, result={**result, **pass_.found})


def record(step: str, pass_: Pass[In, Out], source: str | None, **outcome: Any) -> Step:
    """Return a pass as a step of the manifest's recipe. `outcome` is `result=...`, or `skipped=REASON`."""
    params = pass_.params.model_dump(mode="json")
    value = {"name": step, "pass": pass_.id, "version": pass_.version, "params": params, **outcome}
    return Step.from_json(value if source is None else {**value, "input": source})


def public_types(subject: Any) -> dict[str, int]:
    values = (*subject.graph.inputs, *subject.graph.outputs)
    return {value.name: int(value.dtype or 0) if models.is_tensor(value) else 0 for value in values}


def _names(subject: Any) -> tuple[list[str], list[str]]:
    return [value.name for value in subject.graph.inputs], [one.name for one in subject.graph.outputs]
