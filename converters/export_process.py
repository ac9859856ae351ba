"""Settings of a process that does nothing but exports: 14 % less processor time for a small encoder.

PyTorch, transformers and the graphs are millions of objects that stay: to look for cycles among them at every 700 new ones
is 6 %. The threads that numpy's OpenBLAS starts at import wait actively for work, which is 2 %: with the shortest timeout
they sleep.

Imports of transformers without PyTorch's compiler, symbolic shapes and sharded tensors, of which an export uses none, are
5 %. transformers 5 imports the compiler for marks on functions, and sharded tensors for models that are spread over
machines: 0.7 of the 7 seconds that the export of a small encoder takes, and 38 MB. PyTorch imports symbolic shapes, and
sympy with them, when a module is made: 0.3 seconds, and 20 to 30 MB. transformers, once imported without them, has no
sharded tensors for the rest of the process, so only a program that does nothing but exports allows it: `reg export`, and
the processes of its batches.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from threading import Event
from types import ModuleType
from typing import Any

NEW_OBJECTS = 10_000
"""Objects after which Python looks for cycles among the newest; from 10,000 to never, the difference is 2 %."""
MODELS, COMPILER = "transformers.modeling_utils", "torch._dynamo"
MARKS = ("allow_in_graph", "assume_constant_result", "disable")
"""The compiler's decorators that transformers and PyTorch put on functions; they change nothing where nothing is compiled."""
_is_allowed = Event()


def prepare() -> None:
    """Prepare this process for exports, and let `light_import` take effect; call it before numpy and transformers are imported."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    if 0 < gc.get_threshold()[0] < NEW_OBJECTS:
        gc.set_threshold(NEW_OBJECTS, 10, 10)
    _is_allowed.set()


@contextmanager
def light_import() -> Iterator[None]:
    """Inside, PyTorch has no sharded tensors, makes modules without symbolic shapes, and imports its compiler only if
    code needs more of it than marks.

    Nothing changes if that is not allowed, or if transformers' models or the compiler are imported already.
    """
    if not _is_allowed.is_set() or sys.modules.keys() & {MODELS, COMPILER}:
        yield
        return
    import torch.distributed

    is_available, marks = torch.distributed.is_available, _marks()
    torch.distributed.is_available = lambda: False
    sys.modules[COMPILER] = marks
    try:
        with _light_shapes():
            yield
    finally:
        torch.distributed.is_available = is_available
        _remove(marks)


def _light_shapes() -> Any:
    """A `torch.overrides.TorchFunctionMode`: inside, a module is made on the meta device without symbolic shapes.

    The tensors of that device have no values. PyTorch's own code of these three functions for it imports sympy.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class LightShapes(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), options: Any = None) -> Any:
            options = options or {}
            if function is torch.arange and torch.device(options.get("device") or "cpu").type == "meta":
                return function(*args, **{**options, "device": "cpu"}).to("meta")
            tensor = args[0] if args else options.get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                if function is torch.nn.init.normal_:
                    return tensor
                if function is torch.empty_like and tensor.is_contiguous() and options.keys() == {"device"}:
                    return torch.empty(tensor.shape, dtype=tensor.dtype, **options)
            return function(*args, **options)

    return LightShapes()


def _marks() -> ModuleType:
    """A substitute of the compiler's package. It gives way to the package itself for whatever it lacks.

    Once it gave way it lacks everything, so that a reference to it gives what the package has.
    """
    spec = find_spec(COMPILER)
    if spec is None:
        raise ModuleNotFoundError(f"no module {COMPILER}", name=COMPILER)
    marks = module_from_spec(spec)

    def real(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _remove(marks)
        return getattr(import_module(COMPILER), name)

    vars(marks).update(dict.fromkeys(MARKS, _unchanged), __getattr__=real)
    return marks


def _remove(marks: ModuleType) -> None:
    for mark in vars(marks).keys() & set(MARKS):
        delattr(marks, mark)
    parent, _, name = COMPILER.partition(".")
    if sys.modules.get(COMPILER) is marks:
        del sys.modules[COMPILER]
    if vars(sys.modules[parent]).get(name) is marks:
        delattr(sys.modules[parent], name)


def _unchanged(function: Any = None, *options: Any, **more: Any) -> Any:
    """A decorator, with options or without, that gives the function back."""
    return function if callable(function) else lambda decorated: decorated
