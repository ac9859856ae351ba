"""The subject of `OnnxConversion`, and how to run it."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.runtime.sessions import one_torch_thread
from onnxreg.schema.core.errors import ConversionError, first_line

AXES: Mapping[int, str] = {0: "batch", 1: "sequence"}


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

    Raises ConversionError if the module does not run on them.
    """
    import torch

    module, training = subject.module, subject.module.training
    try:
        with one_torch_thread(), torch.no_grad():
            results = [_run_one(subject, feed) for feed in feeds]
    except Exception as error:
        raise ConversionError(f"the module does not run on sample inputs: {first_line(error)}") from error
    finally:
        module.train(training)
    return results


def _run_one(subject: TorchModel, feed: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    given = [torch.from_numpy(feed[name]) for name in subject.inputs]
    result = traceable(subject).eval()(*given)
    tensors = result if isinstance(result, tuple) else (result,)
    return {name: tensor.numpy() for name, tensor in zip(subject.outputs, tensors, strict=True)}


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
