"""Check that the model files of a directory come from one export."""

from collections.abc import Mapping
from pathlib import Path

from onnxreg.converters.importers.weight_compare import compare_weights
from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.onnx.stored_tensors import Arrays, read_tensors
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import TensorSpec

_HINT = "the directory mixes files of two exports; export again into an empty directory"


def base_of(models: Mapping[str, GraphFacts]) -> str:
    """The path of the full-precision ONNX file that the others were made from; else the first file."""
    full = [
        path for path, facts in models.items() if facts.ort_format is None and facts.precision == "float32"
    ]
    return next(iter([*full, *models]))


def refuse_mixture(root: Path, models: Mapping[str, GraphFacts]) -> list[str]:
    """Raise InputError if two model files cannot come from one export.

    All must have the inputs and outputs of the base (`base_of`), in name, type and static axes, and its
    weights, within the tolerances of `weight_compare`. Returns the paths of files whose weights have no
    counterpart by name and shape, so that nothing could be compared: for an .ort file the optimizer may
    explain that; for a float ONNX file it is refused.
    """
    base = base_of(models)
    for path, facts in models.items():
        _check_same_contract(facts.inputs, models[base].inputs, path, base, "inputs")
        _check_same_contract(facts.outputs, models[base].outputs, path, base, "outputs")
    if models[base].weights.weights_total == models[base].weights.weights_quantized:
        return [path for path in models if path != base]
    reference = Arrays(read_tensors(root / base))
    unknown = []
    for path, facts in models.items():
        if path == base or compare_weights(reference, Arrays(read_tensors(root / path)), path, base):
            continue
        if facts.ort_format is None:
            raise InputError(f"no weight of {path} has a counterpart in {base}", _HINT)
        unknown.append(path)
    return unknown


def _check_same_contract(
    specs: tuple[TensorSpec, ...], expected: tuple[TensorSpec, ...], path: str, base: str, side: str
) -> None:
    if len(specs) != len(expected) or not all(map(_compatible, specs, expected)):
        raise InputError(
            f"{path} and {base} have different {side}: {_line(specs)} and {_line(expected)}", _HINT
        )


def _compatible(a: TensorSpec, b: TensorSpec) -> bool:
    """Equal but for axes that are dynamic in one of them: the ORT converter fixes those it can infer."""
    axes = zip(a.shape, b.shape, strict=False)
    same = all(x.value == y.value for x, y in axes if x.kind == y.kind == "static")
    return (
        (a.name, a.dtype) == (b.name, b.dtype)
        and same
        and (len(a.shape) == len(b.shape) or not (a.shape and b.shape))
    )


def _line(specs: tuple[TensorSpec, ...]) -> str:
    parts = []
    for spec in specs:
        dims = ",".join(dim.text for dim in spec.shape)
        parts.append(f"{spec.name} {spec.dtype}[{dims}]")
    return "; ".join(parts)
