"""Compare the stored tensors of two graphs."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any, Literal

from onnxreg.converters.onnx.elements import restore, scale_axes
from onnxreg.converters.onnx.stored_tensors import Arrays, StoredTensor, digest_of, is_numeric
from onnxreg.schema.compare.graphs import TensorChange, TensorForm

BLOCK_ELEMENTS = 2**18
"""Elements that are subtracted at once."""
Tensors = Mapping[str, StoredTensor]
Verb = Literal["changed", "retyped"]


def compare_tensors(old: Tensors, new: Tensors) -> tuple[list[TensorChange], int]:
    """The changes, the largest relative difference first, and how many tensors are equal."""
    both = [name for name in old if name in new]
    changes = [change for name in both if (change := _compare(name, old, new)) is not None]
    equal = len(both) - len(changes)
    changes.sort(key=lambda change: -(change.relative_l2 or 0.0))
    return [*changes, *_alone(old, new)], equal


def _compare(name: str, old: Tensors, new: Tensors) -> TensorChange | None:
    one, other = old[name], new[name]
    verb: Verb = "changed" if one.dtype == other.dtype else "retyped"
    if one.dims != other.dims:
        return TensorChange(change="reshaped", old=_form(one), new=_form(other))
    if not (is_numeric(one) and is_numeric(other)):
        equal = verb == "changed" and digest_of(one) == digest_of(other)
        return None if equal else TensorChange(change=verb, old=_form(one), new=_form(other))
    if verb == "changed" and _same_bytes(one.array(), other.array()):
        return None
    pair = _dequantized(name, old, new)
    max_abs, relative = _distance(*(pair or (one.array(), other.array())))
    return TensorChange(
        change=verb,
        old=_form(one),
        new=_form(other),
        max_abs=max_abs,
        relative_l2=relative,
        dequantized=pair is not None,
    )


def _alone(old: Tensors, new: Tensors) -> Iterator[TensorChange]:
    """Yield the tensors of one side only; the same form and bytes under another name is a tensor renamed."""
    waiting: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for name in old.keys() - new.keys():
        waiting[_identity(old[name])].append(name)
    for names in waiting.values():
        names.sort(reverse=True)
    for name in sorted(new.keys() - old.keys()):
        old_names = waiting.get(_identity(new[name]))
        form = _form(new[name])
        if old_names:
            yield TensorChange(change="renamed", old=_form(old[old_names.pop()]), new=form)
        else:
            yield TensorChange(change="added", old=None, new=form)
    for name in sorted(name for names in waiting.values() for name in names):
        yield TensorChange(change="removed", old=_form(old[name]), new=None)


def _identity(tensor: StoredTensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.dims, digest_of(tensor)


def _form(tensor: StoredTensor) -> TensorForm:
    return TensorForm(name=tensor.name, dtype=tensor.dtype, dims=tensor.dims)


def _same_bytes(one: Any, other: Any) -> bool:
    """Also of NaN, and of zeros of either sign."""
    return all(a.tobytes() == b.tobytes() for a, b in _blocks(one, other))


def _blocks(one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    one, other = one.reshape(-1), other.reshape(-1)
    for start in range(0, one.size, BLOCK_ELEMENTS):
        yield one[start : start + BLOCK_ELEMENTS], other[start : start + BLOCK_ELEMENTS]


def _distance(one: Any, other: Any) -> tuple[float | None, float | None]:
    """Largest absolute difference, and L2 norm of the difference over that of the first; None if not
    finite."""
    import numpy as np

    largest = difference = length = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for a, b in _blocks(one, other):
            a, b = a.astype(np.float64), b.astype(np.float64)
            apart = np.abs(b - a)
            largest = max(largest, float(apart.max()))
            difference += float(apart @ apart)
            length += float(a @ a)
    relative = sqrt(difference / length) if length and np.isfinite([difference, length]).all() else None
    return largest if np.isfinite([largest, difference]).all() else None, relative


def _dequantized(name: str, old: Tensors, new: Tensors) -> tuple[Any, Any] | None:
    """The values of `<stem>_quantized` on both sides, by `<stem>_scale` and `<stem>_zero_point`."""
    stem = name.removesuffix("_quantized")
    if stem == name or not all(f"{stem}_scale" in side for side in (old, new)):
        return None
    restored = [_restored(stem, Arrays(side)) for side in (old, new)]
    return (restored[0], restored[1]) if all(value is not None for value in restored) else None


def _restored(stem: str, arrays: Mapping[str, Any]) -> Any:
    """Along the last axis that the scale fits, if it has several values: the columns of a matrix product."""
    value, scale = arrays[f"{stem}_quantized"], arrays[f"{stem}_scale"]
    zero_point = arrays.get(f"{stem}_zero_point")
    axes = scale_axes(value, scale)
    fits = axes and (zero_point is None or zero_point.size == scale.size)
    return restore(value, scale, zero_point, axes[-1])[0] if fits else None
