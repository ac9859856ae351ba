"""Load the weights of a torch module from a file that cannot run code; all of them must fit."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, NotFoundError, missing_extra

AVERAGED_KEYS = ("model_ema", "state_dict_ema", "ema_state_dict", "params_ema", "ema", "swa_state_dict")
"""Keys of averages of the weights, which some trainings evaluate and publish."""
WRAPPER_KEYS = ("model_state_dict", "state_dict", "model", "net", "params", "weights", *AVERAGED_KEYS)
"""Keys of the weights in checkpoints that also hold an epoch and an optimizer."""
PREFIXES = ("module.", "model.")
"""Prefixes that `DataParallel` and Lightning add to every name."""
COMPILED = "_orig_mod."
"""The part that `torch.compile` adds to names."""


def best_of(run: Path) -> Path:
    """Find the checkpoint of a training run: the only `checkpoints/best_*.pth` in its directory.

    Raises NotFoundError if there is no such file, InputError if there are several.
    """
    checkpoints = sorted((run / "checkpoints").glob("best_*.pth"))
    if not checkpoints:
        raise NotFoundError(f"{run} holds no checkpoints/best_*.pth", "name the file: --checkpoint FILE")
    if len(checkpoints) > 1:
        names = ", ".join(path.name for path in checkpoints)
        raise InputError(f"{run} holds several checkpoints: {names}", "name one: --checkpoint FILE")
    return checkpoints[0]


def load_into(module: Any, path: Path) -> None:
    """Fill a torch module with the weights of a file: safetensors, or tensors that `torch.save` wrote.

    Raises InputError if the file holds anything else, or not exactly the module's tensors in their shapes.
    """
    expected = module.state_dict()
    weights = _renamed(_unwrapped(_read(path), path.name), expected)
    counts = {name: value for name, value in expected.items() if name.endswith("num_batches_tracked")}
    weights = {**counts, **weights}
    missing = sorted(expected.keys() - weights.keys())
    if prefix := prefix_of(weights, missing):
        raise InputError(
            f"{path.name} is not of this module: its names begin with {prefix}",
            "save the state dict of the module inside, or let the factory make the module around it",
        )
    _refuse("the checkpoint has no values for", missing, path)
    _refuse("the module has no place for", sorted(weights.keys() - expected.keys()), path)
    mismatched = sorted(name for name, value in expected.items() if value.shape != weights[name].shape)
    _refuse("the checkpoint has other shapes than the module for", mismatched, path)
    kinds = sorted(name for name, value in expected.items() if _kind(value) != _kind(weights[name]))
    _refuse("the checkpoint has other kinds of numbers than the module for", kinds, path)
    module.load_state_dict(weights)


def prefix_of(names: Iterable[str], missing: Sequence[str]) -> str | None:
    """Return the prefix under which all missing names are there; None without one."""
    for prefix in [name.removesuffix(missing[0]) for name in names if missing and name.endswith(missing[0])]:
        if prefix.endswith(".") and {prefix + name for name in missing} <= set(names):
            return prefix
    return None


def _kind(tensor: Any) -> tuple[object, ...]:
    """Describe the kind of a tensor: float, complex, sparse, quantized, or without values."""
    layout = (tensor.layout, tensor.is_quantized, tensor.is_meta)
    return (tensor.is_floating_point(), tensor.is_complex(), *layout)


def _read(path: Path) -> Any:
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except ImportError as error:
        raise missing_extra("safetensors", "export", "reading a checkpoint") from error
    except Exception as error:
        raise InputError(
            f"{path.name} is not a checkpoint of tensors alone, or it is cut short",
            "copy it again; a pickle can run any code, so only tensors are read: torch.save(module.state_dict(), FILE)",
        ) from error


def _unwrapped(value: Any, name: str) -> Mapping[str, Any]:
    import torch

    hint = f"torch.save(module.state_dict(), FILE): names and tensors at the top, or under {', '.join(WRAPPER_KEYS)}"
    keys = [key for key in WRAPPER_KEYS if isinstance(value, Mapping) and isinstance(value.get(key), Mapping)]
    if averages := [key for key in keys[1:] if key in AVERAGED_KEYS]:
        raise InputError(
            f"{name} holds weights under {keys[0]}, and an average of them under {averages[0]}",
            f"save the ones to export: torch.save(torch.load({name!r})[{averages[0]!r}], 'weights.pth')",
        )
    value = value[keys[0]] if keys else value
    if not isinstance(value, Mapping) or not value:
        raise InputError(f"{name} holds no weights by name", hint)
    if not all(isinstance(key, str) and isinstance(tensor, torch.Tensor) for key, tensor in value.items()):
        raise InputError(f"{name} holds other things than tensors by name", hint)
    return value


def _renamed(weights: Mapping[str, Any], expected: Iterable[str]) -> Mapping[str, Any]:
    """Remove what `torch.compile` adds, then a prefix that all weights have and not all expected names."""
    if not any(COMPILED in name for name in expected):
        weights = {name.replace(COMPILED, ""): tensor for name, tensor in weights.items()}
    for prefix in PREFIXES:
        if _have(weights, prefix) and not _have(expected, prefix):
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return weights


def _have(names: Iterable[str], prefix: str) -> bool:
    return all(name.startswith(prefix) for name in names)


def _refuse(problem: str, names: list[str], path: Path, most: int = 6) -> None:
    if names:
        more = f" and {len(names) - most} more" if len(names) > most else ""
        raise InputError(
            f"{path.name} is not of this module: {problem} {', '.join(names[:most])}{more}",
            "the factory must make the module that was trained, with the same arguments",
        )
