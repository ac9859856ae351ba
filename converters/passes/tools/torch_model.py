"""The subject of `OnnxConversion`: run it, or export it with either exporter of PyTorch, without traces of the machine."""

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from onnxreg.converters.onnx.quiet import quiet, quiet_logger
from onnxreg.converters.onnx.weightless import without_weights
from onnxreg.converters.passes.tools import model_file
from onnxreg.converters.runtime.sessions import one_torch_thread
from onnxreg.converters.source.toolchain import refuse_missing, require
from onnxreg.schema.core.errors import ConversionError, why

AXES: Mapping[int, str] = {0: "batch", 1: "sequence"}

CHANGE = 1e-5
"""The distance of two runs of one input, in parts of the largest value, that is more than rounding."""

T = TypeVar("T")
_lock = threading.RLock()


@dataclass(frozen=True)
class TorchModel:
    """A torch module with example tensors for its inputs, which it takes by keyword, in order.

    `outputs` are the names of what it gives: attributes or keys of a result that has these, else a tensor or the
    first members of a tuple, in order. `axes` are the dynamic axes of inputs and outputs by name; absent, each has
    `AXES`.
    """

    module: Any
    inputs: Mapping[str, Any]
    outputs: tuple[str, ...] = ("logits",)
    axes: Mapping[str, Mapping[int, str]] | None = None

    def axes_of(self, name: str) -> dict[int, str]:
        return dict(AXES if self.axes is None else self.axes.get(name, {}))

    def one_row(self) -> "TorchModel":
        """The same with examples of batch 1."""
        rows = {
            name: one[:1] if self.axes_of(name).get(0) == "batch" else one
            for name, one in self.inputs.items()
        }
        return replace(self, inputs=rows)

    @property
    def weight_bytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in self.module.parameters())


def traceable(subject: TorchModel) -> Any:
    """A module of positional tensors in, a tuple of tensors (or the only one) out: what exporters keep as it is."""
    import torch

    names, outputs = list(subject.inputs), subject.outputs
    options = {"return_dict": True} if _takes_return_dict(subject.module) else {}

    class Traceable(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: Any) -> Any:
            result = self.model(**dict(zip(names, tensors, strict=True)), **options)
            chosen = _choose(result, outputs)
            return chosen[0] if len(chosen) == 1 else chosen

    return Traceable(subject.module).train(subject.module.training)


def run(subject: TorchModel, feeds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The outputs of the module, in its evaluation mode, for numpy arrays by input name; its mode is put
    back.

    The largest of several is run first and last: a module may change when it runs (BigBird's attention, for good,
    with the first short row), and what it gives then is not what was trained.

    Raises ConversionError if the module does not run on them, or changes.
    """
    import torch

    if not feeds:
        return []
    module, training = subject.module, subject.module.training
    largest = max(range(len(feeds)), key=lambda index: max(array.size for array in feeds[index].values()))
    try:
        with one_torch_thread(), torch.no_grad():
            first = _run_one(subject, feeds[largest])
            results = [
                first if index == largest else _run_one(subject, feed) for index, feed in enumerate(feeds)
            ]
            last = first if len(feeds) == 1 else _run_one(subject, feeds[largest])
    except Exception as error:
        raise ConversionError(f"the module does not run on sample inputs: {why(error)}") from error
    finally:
        module.train(training)
    if changed := [name for name in first if not _is_close(first[name], last[name])]:
        shape = list(next(iter(feeds[largest].values())).shape)
        raise ConversionError(
            f"the module changes when it runs: {changed[0]} for an input of the shape {shape} is another after inputs "
            "of other sizes",
            "its forward must leave it as it is; if it switches by length (BigBird), a smaller --max-seq-length keeps "
            "it in one form",
        )
    return results


def _is_close(first: Any, last: Any) -> bool:
    import numpy as np

    scale = float(np.abs(first).max(initial=1.0, where=np.isfinite(first)))
    return bool(np.allclose(first, last, rtol=0.0, atol=CHANGE * scale, equal_nan=True))


@contextmanager
def runner(subject: TorchModel) -> Iterator[Callable[[Mapping[str, Any]], dict[str, Any]]]:
    """Run the module, in its evaluation mode and on one thread, for one mapping of numpy arrays after the other.

    Arrays are given in the types of the examples. Mode and thread count are put back at the exit.
    """
    import torch

    module, training = subject.module, subject.module.training
    evaluated = traceable(subject).eval()
    types = {name: tensor.dtype for name, tensor in subject.inputs.items()}

    def run(feed: Mapping[str, Any]) -> dict[str, Any]:
        with torch.inference_mode():
            result = evaluated(*(torch.from_numpy(feed[name]).to(dtype) for name, dtype in types.items()))
        tensors = result if isinstance(result, tuple) else (result,)
        return {name: tensor.float().numpy() for name, tensor in zip(subject.outputs, tensors, strict=True)}

    try:
        with one_torch_thread():
            yield run
    finally:
        module.train(training)


Export = Callable[[TorchModel, int, bool, bool], Any]
"""Export a module: its opset, whether axes are dynamic, whether constants are folded."""


def export_torchscript(subject: TorchModel, opset: int, dynamic: bool, fold: bool = True) -> Any:
    """Trace the module; its graphs of encoders are what the fusions of ONNX Runtime were made for."""
    names = [*subject.inputs, *subject.outputs]
    options = {
        "input_names": list(subject.inputs),
        "output_names": list(subject.outputs),
        "dynamic_axes": {name: subject.axes_of(name) for name in names} if dynamic else None,
        "opset_version": opset,
        "do_constant_folding": fold,
        "dynamo": False,
    }
    if subject.weight_bytes <= model_file.MAX_INLINE_WEIGHT_BYTES:
        exported = _export_in_memory(subject, options)
    else:
        with model_file.scratch() as directory:
            _export(subject, str(directory / "model.onnx"), options)
            exported = model_file.load(directory / "model.onnx")
    return _finish(exported, subject)


def export_dynamo(subject: TorchModel, opset: int, dynamic: bool, fold: bool = True) -> Any:
    """Export with `torch.export`, which always folds; what it writes about the machine and the source code is dropped.

    Raises HostError if onnxscript is not installed.
    """
    require("onnxscript")
    axes = tuple(subject.axes_of(name) for name in subject.inputs)
    options = {
        "input_names": list(subject.inputs),
        "output_names": list(subject.outputs),
        "dynamic_shapes": {"tensors": axes} if dynamic else None,
        "opset_version": opset,
        "dynamo": True,
        "verbose": False,
    }
    with model_file.scratch() as directory:
        path = directory / "model.onnx"
        _export(subject, None, options).save(str(path), external_data=True)
        exported = model_file.load(path)
    model_file.drop(exported)
    return _finish(exported, subject)


def names_a_directory(exported: Any) -> str | None:
    """A directory of this machine that a graph names outside its weights, if there is one."""
    import torch

    text = without_weights(exported).SerializeToString()
    folders = {Path(os.path.expanduser("~")), Path.cwd(), Path(torch.__file__).parents[1]}  # noqa: PTH111
    return next(
        (folder.name for folder in sorted(folders) if len(folder.parts) > 1 and str(folder).encode() in text),
        None,
    )


class SortedSet(set[T], Generic[T]):
    """A set whose texts come in sorted order; Python's order of texts differs from process to process."""

    def __iter__(self) -> Iterator[T]:
        items = list(super().__iter__())
        return iter(sorted(items) if all(isinstance(item, str) for item in items) else items)  # type: ignore[type-var]


@contextmanager
def sorted_sets(module: Any) -> Iterator[None]:
    """Inside, `set(...)` is a `SortedSet` in the code of a torch module and its parts, PyTorch's own left out.

    Tracing numbers values in the order of calls, and models such as ModernBERT call a part once for each of
    `set(config.layer_types)`: without this the names in the graph depend on `PYTHONHASHSEED`. Set literals are not reached.
    """
    with _lock, ExitStack() as undo:
        for source in _sources(module):
            if "set" not in vars(source):
                source.__dict__["set"] = SortedSet
                undo.callback(delattr, source, "set")
        yield


@contextmanager
def _without_graphs() -> Iterator[None]:
    """Inside, PyTorch's exporter does not print a whole graph to stdout when it fails.

    Its question whether it was asked to (torch 2.13, `setup_onnx_logging`) is always true; the function is private.
    """
    import torch

    name = "_jit_onnx_log"
    log = getattr(torch._C, name, None)
    setattr(torch._C, name, lambda *parts: None)
    try:
        yield
    finally:
        setattr(torch._C, name, log)


def _run_one(subject: TorchModel, feed: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    given = [torch.from_numpy(feed[name]) for name in subject.inputs]
    result = traceable(subject).eval()(*given)
    tensors = result if isinstance(result, tuple) else (result,)
    return {name: tensor.numpy() for name, tensor in zip(subject.outputs, tensors, strict=True)}


def _takes_return_dict(module: Any) -> bool:
    return hasattr(module, "config") or "return_dict" in inspect.signature(module.forward).parameters


def _choose(result: Any, names: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(result, Mapping) and all(name in result for name in names):
        return tuple(result[name] for name in names)
    if all(hasattr(result, name) for name in names):
        return tuple(getattr(result, name) for name in names)
    several = result if isinstance(result, tuple | list) else (result,)
    if len(several) < len(names):
        raise ConversionError(f"the module gives {len(several)} outputs, not {', '.join(names)}")
    return tuple(several[: len(names)])


def _export(subject: TorchModel, target: Any, options: dict[str, Any]) -> Any:
    import torch

    try:
        with (
            quiet(),
            quiet_logger("torch.onnx"),
            quiet_logger("onnxscript"),
            _without_graphs(),
            one_torch_thread(),
            sorted_sets(subject.module),
            torch.no_grad(),
        ):
            return torch.onnx.export(traceable(subject), tuple(subject.inputs.values()), target, **options)
    except Exception as error:
        refuse_missing(error, "PyTorch's exporter")
        raise ConversionError(
            f"PyTorch could not export the model: {_root_cause(error)}",
            "try another opset, or in a recipe OnnxConversion with use_dynamo_exporter: auto",
        ) from error


class _Target:
    """A file that refers to the bytes that are written to it, where `io.BytesIO` copies them."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def flush(self) -> None:
        """Do nothing: `write` keeps everything."""


def _export_in_memory(subject: TorchModel, options: dict[str, Any]) -> Any:
    import onnx

    target = _Target()
    _export(subject, target, options)
    return onnx.ModelProto.FromString(target.data)


def _finish(exported: Any, subject: TorchModel) -> Any:
    exported.producer_version = exported.producer_version.partition("+")[0]
    _state_sizes(exported, subject)
    return exported


def _state_sizes(exported: Any, subject: TorchModel) -> None:
    """Axes of the outputs that are not dynamic get their size, if the exporter did not find it."""
    unknown = [
        (value.name, index, dim)
        for value in exported.graph.output
        for index, dim in enumerate(value.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value") and index not in subject.axes_of(value.name)
    ]
    if unknown:
        given = run(subject, [{name: item.numpy() for name, item in subject.inputs.items()}])[0]
        for name, index, dim in unknown:
            dim.dim_value = given[name].shape[index]


def _root_cause(error: BaseException) -> str:
    """The first cause of an error: the dynamo exporter wraps it in an explanation of its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return why(error, 300)


def _sources(module: Any) -> list[ModuleType]:
    """The Python modules in which the classes of a torch module and its parts are written."""
    classes = {kind for part in module.modules() for kind in type(part).__mro__}
    names = {kind.__module__ for kind in classes}
    return [
        sys.modules[name]
        for name in sorted(names & sys.modules.keys())
        if name.partition(".")[0] not in ("builtins", "torch", "onnxreg")
    ]
