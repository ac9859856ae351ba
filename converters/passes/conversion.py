"""Export a torch module with an exporter of PyTorch (`OnnxConversion`) or of transformers (`TransformersExport`)."""

import gc
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any, ClassVar, Literal, Self
from unittest.mock import patch

from pydantic import Field, model_validator

from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.base import Facts, Pass, PassParams
from onnxreg.converters.runtime.sessions import one_torch_thread, silent_transformers
from onnxreg.converters.source.toolchain import require
from onnxreg.schema.core.errors import ConversionError, InputError, why

OLDEST, NEWEST = 7, 23  # the lowest and the highest opset of the TorchScript exporter
OLDEST_OF_TRANSFORMERS, HIGHEST = 18, 26
"""The lowest opset that transformers' exporter writes, and the highest opset that ONNX Runtime loads."""
TOLERANCE = 1e-3
"""The largest distance from the module's output that `auto` allows, as a share of the largest value."""
AXES: Mapping[int, str] = {0: "batch", 1: "sequence"}
CHANGE = 1e-5
OTHER_WAYS = "export it with Optimum, then reg import the directory; or another task of the checkpoint"
_lock = threading.RLock()


@dataclass(frozen=True)
class TorchModel:
    """A torch module with example tensors for its keyword arguments.

    `outputs` names attributes, keys or tuple members of the module's result, which become the graph's outputs. `axes`
    has the dynamic axes of each input and output. If `axes` is None, every input and output has `AXES`.
    """

    module: Any
    inputs: Mapping[str, Any]
    outputs: tuple[str, ...] = ("logits",)
    axes: Mapping[str, Mapping[int, str]] | None = None

    def axes_of(self, name: str) -> dict[int, str]:
        return dict(AXES if self.axes is None else self.axes.get(name, {}))


@contextmanager
def eval_module(subject: TorchModel) -> Iterator[Any]:
    """A context with a module that takes positional tensors and returns a tuple of `outputs`.

    The module is in evaluation mode, and computes on a single thread.
    """
    names, module, training = list(subject.inputs), subject.module, subject.module.training
    takes_names = hasattr(module, "config") or "return_dict" in inspect.signature(module.forward).parameters
    options = {"return_dict": True} if takes_names else {}

    def forward(*tensors: Any) -> Any:
        return _outputs_of(module(**dict(zip(names, tensors, strict=True)), **options), subject.outputs)

    try:
        with one_torch_thread():
            yield module_of(forward, model=module)
    finally:
        module.train(training)


def module_of(forward: Callable[..., Any], **parts: Any) -> Any:
    """Return a torch module that computes `forward`. `parts` are its attributes, such as other modules."""
    import torch

    class Composed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, *tensors: Any, **named: Any) -> Any:
            return forward(*tensors, **named)

    return Composed().eval()


def _outputs_of(result: Any, names: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(result, Mapping) and all(name in result for name in names):
        return tuple(map(result.__getitem__, names))
    if all(hasattr(result, name) for name in names):
        return tuple(getattr(result, name) for name in names)
    several = result if isinstance(result, tuple | list) else (result,)
    if len(several) < len(names):
        raise ConversionError(f"the module gives {len(several)} outputs, not {', '.join(names)}")
    return tuple(several[: len(names)])


@contextmanager
def runner(subject: TorchModel) -> Iterator[Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """A context with a function that runs the module on numpy arrays by name. Floats are returned as float32."""
    import torch

    types = {name: tensor.dtype for name, tensor in subject.inputs.items()}
    with eval_module(subject) as module:

        def run(feed: Mapping[str, Any]) -> dict[str, Any]:
            with torch.inference_mode():
                tensors = module(*(torch.from_numpy(feed[name]).to(dtype) for name, dtype in types.items()))
            arrays = ((one.float() if one.is_floating_point() else one).numpy() for one in tensors)
            return dict(zip(subject.outputs, arrays, strict=True))

        yield run


def run(subject: TorchModel, feeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Run the module on each feed, and return its outputs as numpy arrays by name.

    The feed with the most elements per row is run first, and again after the others. Raises ConversionError if a run
    fails, or if the two runs of that feed give different outputs. The second run detects modules such as BigBird, which
    a short input changes.
    """
    import numpy as np

    if not feeds:
        return []
    sizes = [max((array.size // len(array), -len(array)) for array in feed.values()) for feed in feeds]
    largest = sizes.index(max(sizes))
    try:
        with runner(subject) as run_one:
            first = run_one(feeds[largest])
            results = [first if index == largest else run_one(feed) for index, feed in enumerate(feeds)]
            last = first if len(feeds) == 1 else run_one(feeds[largest])
    except Exception as error:
        raise ConversionError(f"the module does not run on sample inputs: {why(error)}") from error
    for name, array in first.items():
        scale = float(np.abs(array).max(initial=1.0, where=np.isfinite(array)))
        if not np.allclose(array, last[name], rtol=0.0, atol=CHANGE * scale, equal_nan=True):
            raise ConversionError(
                f"the module changes when it runs: {name} is another after inputs of other sizes",
                "its forward must leave it as it is; if it switches by length (BigBird), a smaller --max-seq-length keeps "
                "it in one form",
            )
    return results


class ModuleExport(Pass[TorchModel, Any]):
    """A pass that exports a torch module. The graph's inputs and outputs have the names in the `TorchModel`."""

    takes = "module"

    def requires(self, subject: TorchModel) -> None:
        if not subject.inputs:
            raise InputError(f"{self.id}: no example input was given")

    def observe(self, subject: TorchModel) -> Facts:
        return {"inputs": list(subject.inputs), "outputs": list(subject.outputs)}

    def ensures(self, before: Facts, after: Any) -> dict[str, Any]:
        opset, requested = models.default_opset(after), self.params.target_opset
        if opset != requested:
            raise ConversionError(
                f"asked for opset {requested}, the exporter gave {opset}",
                "TransformersExport begins at opset 18: ask for 18 (Orchard's opset_version), and in a recipe add a step "
                f"OnnxOpVersionConversion with target_opset: {requested}",
            )
        for side, values in (("inputs", after.graph.inputs), ("outputs", after.graph.outputs)):
            if (names := [value.name for value in values]) != before[side]:
                raise ConversionError(
                    f"the exported graph has the {side} {', '.join(names)}, not {', '.join(before[side])}: the exporter "
                    "drops what no output depends on",
                    "if that is wrong, try in a recipe the pass TransformersExport",
                )
        return {"opset": opset, "nodes": len(after.graph)}

    def finish(self, exported: Any, subject: TorchModel) -> None:
        """Remove the build (`+cpu`) from the producer's version, and write the sizes of fixed axes."""
        exported.producer_version = exported.producer_version.partition("+")[0]
        unknown = [
            (value, index)
            for value in (*exported.graph.inputs, *exported.graph.outputs)
            for index, dim in enumerate(value.shape or ())
            if not isinstance(dim, int) and index not in subject.axes_of(value.name)
        ]
        if unknown:
            examples = {name: tensor.numpy() for name, tensor in subject.inputs.items()}
            arrays = {**examples, **run(subject, [examples])[0]}
            for value, index in unknown:
                models.set_size(value, index, arrays[value.name].shape[index])


class OnnxConversion(ModuleExport):
    """Export with PyTorch's TorchScript exporter.

    `use_dynamo_exporter: true` exports as `TransformersExport` does. With `use_dynamo_exporter: auto`, both exporters
    are tried, and the first graph that agrees with the module on inputs of other sizes is taken. With `dynamic: false`,
    the batch is 1, and other axes have the sizes of the examples.
    """

    id = "OnnxConversion"
    version = 4

    class Params(PassParams):
        target_opset: int = Field(18, ge=OLDEST, le=HIGHEST)
        use_dynamo_exporter: bool | Literal["auto"] = False
        dynamic: bool = True
        do_constant_folding: bool = True
        attention: Literal["eager"] = "eager"

        @model_validator(mode="after")
        def _has_an_exporter(self) -> Self:
            if self.target_opset > NEWEST and self.use_dynamo_exporter is False:
                raise ValueError(f"target_opset is above {NEWEST}: add use_dynamo_exporter: auto, or true")
            if self.use_dynamo_exporter and not self.do_constant_folding:
                raise ValueError(
                    "do_constant_folding: false goes with use_dynamo_exporter: false, the other always folds"
                )
            return self

    def apply(self, subject: TorchModel) -> Any:
        if not self.params.dynamic:
            batched = [name for name in subject.inputs if subject.axes_of(name).get(0) == "batch"]
            rows = {name: subject.inputs[name][:1] for name in batched}
            subject = replace(subject, inputs={**subject.inputs, **rows}, axes={})
        opset = max(self.params.target_opset, OLDEST_OF_TRANSFORMERS)
        exporters = {"torchscript": self._trace, "dynamo": TransformersExport(target_opset=opset).apply}
        if self.params.use_dynamo_exporter != "auto":
            name = "dynamo" if self.params.use_dynamo_exporter else "torchscript"
            self.found["exporter"] = name
            return exporters[name](subject)
        refused: dict[str, str] = {}
        for name, export in exporters.items():
            try:
                exported = export(subject)
                feeds, label = samples.draw(exported), "the exported graph"
                outputs = samples.all_outputs(exported, feeds, label)
                distance = samples.relative_distance(run(subject, feeds), outputs, label, floor=1.0)
            except ConversionError as error:
                refused[name] = error.message
                continue
            if distance <= TOLERANCE:
                reasons = {f"{other}_refused": reason for other, reason in refused.items()}
                self.found = {"exporter": name, **reasons}
                return exported
            refused[name] = f"its graph is {distance:.3g} from the module on samples of another size"
        summary = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise ConversionError(f"no exporter agrees with the module: {summary}")

    def _trace(self, subject: TorchModel) -> Any:
        import torch

        hint = "try another opset, or in a recipe OnnxConversion with use_dynamo_exporter: auto"
        axes = {name: subject.axes_of(name) for name in (*subject.inputs, *subject.outputs)}
        with models.scratch() as directory:
            path = directory / "model.onnx"
            with (
                models.tool("PyTorch's exporter", "PyTorch could not export the model", hint),
                eval_module(subject) as module,
                traced_builtins(subject.module),
                # torch 2.13 prints the whole graph of a failure, because its check of `verbose` is always true
                patch.object(torch._C, "_jit_onnx_log", lambda *_: None, create=True),
                torch.no_grad(),
            ):
                torch.onnx.export(
                    module,
                    tuple(subject.inputs.values()),
                    str(path),
                    dynamo=False,
                    opset_version=self.params.target_opset,
                    input_names=list(subject.inputs),
                    output_names=list(subject.outputs),
                    dynamic_axes=axes,
                    do_constant_folding=self.params.do_constant_folding,
                )
            exported = models.load(path, scrubbed=True)
        self.finish(exported, subject)
        return exported


class TransformersExport(ModuleExport):
    """Export with the exporter of transformers.

    Only the axes that the `TorchModel` declares are dynamic. If a source becomes several graphs, `part` selects one.
    """

    id = "TransformersExport"
    tools = ("onnxscript",)

    class Params(PassParams):
        target_opset: int = Field(OLDEST_OF_TRANSFORMERS, ge=OLDEST_OF_TRANSFORMERS, le=HIGHEST)
        part: str | None = None

    def apply(self, subject: TorchModel) -> Any:
        require("onnxscript", "onnx_ir")
        import torch
        from transformers.exporters import OnnxConfig, OnnxExporter

        def by_name(**tensors: Any) -> Any:
            return dict(zip(outputs, module(*map(tensors.get, inputs)), strict=True))

        # argument names in Python have no dots
        inputs = {f"input_{number}": name for number, name in enumerate(subject.inputs)}
        outputs = {f"output_{number}": name for number, name in enumerate(subject.outputs)}
        auto = torch.export.Dim.AUTO
        shapes = {plain: dict.fromkeys(subject.axes_of(name), auto) for plain, name in inputs.items()}
        config = OnnxConfig(dynamic_shapes=shapes, opset_version=self.params.target_opset)
        label, printed = "the exporter of transformers", StringIO()
        with (
            models.tool(label, f"{label} refuses the model", OTHER_WAYS),
            silent_transformers(),
            redirect_stderr(printed),  # `torch.export` prints the whole graph of a model that it refuses
            redirect_stdout(printed),
            traced_builtins(subject.module),
            patch.object(torch.fx.config, "do_not_emit_stack_traces", True),  # nobody reads the lines of code
            eval_module(subject) as module,
        ):
            examples = {plain: subject.inputs[name] for plain, name in inputs.items()}
            program = OnnxExporter().export(module_of(by_name, model=module), examples, config).program
        for value in (*program.graph.inputs, *program.graph.outputs):
            value.name = {**inputs, **outputs}[value.name]
        program.ir_version = models.oldest_ir(program)
        self.finish(program, subject)
        for value in (*program.graph.inputs, *program.graph.outputs):
            axes = subject.axes_of(value.name)
            for axis, size in enumerate(models.sizes_of(value)):
                if axis not in axes:
                    continue
                if str(size).isdigit():
                    fault = f"fixed the axis {axes[axis]} of {value.name} at {size}, the size of its example"
                    raise ConversionError(f"the exporter of transformers {fault}", OTHER_WAYS)
                models.set_size(value, axis, axes[axis])
        models.clear_metadata(program)
        return program


class TorchScriptExport(OnnxConversion):
    """Export with the TorchScript exporter or, if it refuses the module, with `TransformersExport`.

    The TorchScript exporter is ten times as fast. If a source becomes several graphs, `part` selects one.
    """

    id, version, tools = "TorchScriptExport", 1, TransformersExport.tools

    class Params(TransformersExport.Params):
        do_constant_folding: ClassVar[bool] = False  # it would store a matrix once for each reader

    def apply(self, subject: TorchModel) -> Any:
        require("onnxscript")
        import torch
        from onnx_ir.passes import common
        from onnxscript.optimizer import fold_constants

        # it copies all weights twice, and of its results only the sizes of outputs are used, which are stated
        inference = patch.object(torch._C, "_jit_pass_onnx_graph_shape_type_inference", lambda *_: None)
        try:
            with inference:
                exported = self._trace(subject)
        except ConversionError as error:
            self.found = {"exporter": "transformers", "torchscript_refused": error.message}
            return TransformersExport(**self.params.model_dump()).apply(subject)
        self.found = {"exporter": "torchscript"}
        models.fold_transposes(exported, only_own=True)
        fold_constants(exported)
        for work in (
            common.RemoveUnusedNodesPass(),
            common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
            common.DeduplicateInitializersPass(),
            common.CommonSubexpressionEliminationPass(),
        ):
            work(exported)
        return exported


class SortedSet(set[Any]):
    """A set that iterates over texts in sorted order, which is the same in each process."""

    def __iter__(self) -> Iterator[Any]:
        items = list(super().__iter__())
        return iter(sorted(items) if all(isinstance(item, str) for item in items) else items)


def first_size(value: Any) -> Any:
    """Return the length of a value. In a trace, a tensor's length stays dynamic; `len` would make it constant."""
    return value.shape[0] if hasattr(value, "shape") else len(value)


@contextmanager
def traced_builtins(module: Any) -> Iterator[None]:
    """A context in which the code of a torch module uses `SortedSet` as `set`, and `first_size` as `len`.

    ModernBERT calls parts in the order of a set, and the names of values in a trace depend on that order. RT-DETR reads
    its batch size by `len`, which a trace would make constant.
    """
    names = {kind.__module__ for part in module.modules() for kind in type(part).__mro__}
    own = {name for name in names if name.partition(".")[0] not in ("builtins", "torch", "onnxreg")}
    with _lock, ExitStack() as undo:
        if gc.isenabled():
            undo.callback(gc.enable)
            gc.disable()
        for source in (sys.modules[name] for name in sorted(own & sys.modules.keys())):
            for name, traced in (("set", SortedSet), ("len", first_size)):
                if name not in vars(source):
                    source.__dict__[name] = traced
                    undo.callback(delattr, source, name)
        yield
