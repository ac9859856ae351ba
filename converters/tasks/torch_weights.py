"""Load the weights of a torch module from a file that cannot run code. The weights must fit the module exactly."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, missing_extra

WRAPPER_KEYS = ("model_state_dict", "state_dict", "model", "net", "params", "weights")
"""Usual keys of the weights in checkpoints that also hold other values, such as an epoch and an optimizer."""
AVERAGED_KEYS = ("model_ema", "state_dict_ema", "ema_state_dict", "params_ema", "ema", "swa_state_dict")
"""Usual keys of averaged weights, which some projects evaluate and publish instead."""
PREFIXES = ("_orig_mod.", "module.", "model.")
"""Prefixes that `torch.compile`, `DataParallel` and Lightning add to every name."""


def load_into(module: Any, path: Path) -> None:
    """Fill a torch module with the weights of a file: safetensors, or tensors that `torch.save` wrote.

    A prefix in `PREFIXES` is removed from the weights' names if all weights have it, but not all names in the module.

    Raises InputError unless the file has exactly the module's tensors, in their shapes; only batch counters may be missing.
    """
    expected = module.state_dict()
    weights = _read(path)
    for prefix in PREFIXES:
        are_below = [all(name.startswith(prefix) for name in names) for names in (weights, expected)]
        if are_below == [True, False]:
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    counts = {name: value for name, value in expected.items() if name.endswith("num_batches_tracked")}
    weights = {**counts, **weights}

    def kind(tensor: Any) -> tuple[object, ...]:
        dtype = tensor.dtype
        return dtype.is_floating_point, dtype.is_complex, tensor.layout, tensor.is_quantized, tensor.is_meta

    both = expected.keys() & weights.keys()
    for problem, names in {
        "the checkpoint has no values for": expected.keys() - weights.keys(),
        "the module has no place for": weights.keys() - expected.keys(),
        "the checkpoint has other shapes than the module for": {
            name for name in both if expected[name].shape != weights[name].shape
        },
        "the checkpoint has other kinds of numbers than the module for": {
            name for name in both if kind(expected[name]) != kind(weights[name])
        },
    }.items():
        if names:
            hint = "the factory must make the module that was trained, with the same arguments"
            raise InputError(f"{path.name} is not of this module: {problem} {some(sorted(names))}", hint)
    module.load_state_dict(weights)


def some(names: Sequence[str], most: int = 6) -> str:
    """Join the first names of a list as text, with the number of further names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _read(path: Path) -> Mapping[str, Any]:
    """Read a file's weights, at the top or under a usual key. InputError for other contents, or if it also has averages."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            value: Any = load_file(path)
        else:
            value = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError as error:
        raise missing_extra("safetensors", "export", "reading a checkpoint") from error
    except Exception as error:
        hint = "a pickle can run any code, so only tensors are read: torch.save(module.state_dict(), FILE)"
        message = f"{path.name} is not a checkpoint of tensors alone, or it is cut short"
        raise InputError(message, f"copy it again; {hint}") from error
    weights = value if isinstance(value, Mapping) else {}
    keys = [key for key in (*WRAPPER_KEYS, *AVERAGED_KEYS) if isinstance(weights.get(key), Mapping)]
    if averages := [key for key in keys[1:] if key in AVERAGED_KEYS]:
        message = f"{path.name} holds weights under {keys[0]}, and an average of them under {averages[0]}"
        save = f"torch.save(torch.load({path.name!r})[{averages[0]!r}], 'weights.pth')"
        raise InputError(message, f"save the ones to export: {save}")
    weights = weights[keys[0]] if keys else weights
    if not weights or not all(
        isinstance(key, str) and isinstance(tensor, torch.Tensor) for key, tensor in weights.items()
    ):
        hint = f"torch.save(module.state_dict(), FILE): at the top, or under {', '.join(WRAPPER_KEYS)}"
        raise InputError(f"{path.name} holds no tensors by name alone", hint)
    return weights
