"""The weights of a torch module from a file, where nothing in it can run code, and all of them fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.schema.core.errors import InputError, NotFoundError, missing_extra

WRAPPERS = ("model_state_dict", "state_dict", "model")
"""Under which training programs keep the weights beside an epoch and an optimizer."""
PARALLEL = "module."
"""What `DataParallel` puts before every name."""


def best_of(run: Path) -> Path:
    """The checkpoint of a training run: the one `checkpoints/best_*.pth` in its directory.

    Raises NotFoundError where there is none, InputError where there are several.
    """
    found = sorted((run / "checkpoints").glob("best_*.pth"))
    if not found:
        raise NotFoundError(f"{run} holds no checkpoints/best_*.pth", "name the file: --checkpoint FILE")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise InputError(f"{run} holds several checkpoints: {names}", "name one: --checkpoint FILE")
    return found[0]


def load_into(module: Any, path: Path) -> None:
    """Fill a torch module with the weights of a file: safetensors, or what `torch.save` wrote of tensors alone.

    Raises InputError where the file holds anything else, or not exactly the module's tensors in their shapes.
    """
    weights = _unwrapped(_read(path), path.name)
    expected = module.state_dict()
    _refuse("the checkpoint has no values for", sorted(expected.keys() - weights.keys()), path)
    _refuse("the module has no place for", sorted(weights.keys() - expected.keys()), path)
    others = sorted(name for name, value in expected.items() if value.shape != weights[name].shape)
    _refuse("the checkpoint has other shapes than the module for", others, path)
    kinds = sorted(name for name, value in expected.items() if _kind(value) != _kind(weights[name]))
    _refuse("the checkpoint has other kinds of numbers than the module for", kinds, path)
    module.load_state_dict(weights)


def _kind(tensor: Any) -> tuple[object, ...]:
    """Whether its numbers are floats or complex, and all there: a tensor can be sparse, quantized or without values."""
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
            f"{path.name} is no checkpoint of tensors alone, or it is cut short",
            "copy it again; a pickle can run any code, so only tensors are read: torch.save(module.state_dict(), FILE)",
        ) from error


def _unwrapped(value: Any, name: str) -> Mapping[str, Any]:
    import torch

    for key in WRAPPERS:
        if isinstance(value, Mapping) and isinstance(value.get(key), Mapping):
            value = value[key]
            break
    if not isinstance(value, Mapping) or not value:
        raise InputError(f"{name} holds no weights by name", f"at the top, or under {', '.join(WRAPPERS)}")
    if not all(isinstance(key, str) and isinstance(one, torch.Tensor) for key, one in value.items()):
        raise InputError(f"{name} holds other things than tensors by name")
    if all(key.startswith(PARALLEL) for key in value):
        return {key.removeprefix(PARALLEL): one for key, one in value.items()}
    return value


def _refuse(what: str, names: list[str], path: Path, most: int = 6) -> None:
    if names:
        more = f" and {len(names) - most} more" if len(names) > most else ""
        raise InputError(
            f"{path.name} is not of this module: {what} {', '.join(names[:most])}{more}",
            "the factory must make the module that was trained, with the same arguments",
        )
