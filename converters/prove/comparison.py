"""Compare a constant of the child with that of the parent that has its place: equal, codes, or rounded to float16."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from onnxreg.converters.onnx.tensors import FLOATS, digest_of, dims_of, type_of
from onnxreg.converters.prove.formula import (
    StoredValue,
    UnprovableError,
    is_readable,
    read_array,
)

HALF_RULES: dict[str, tuple[float, float]] = {
    "nearest": (0.0, float("inf")),
    "float16 5.96e-08..65504": (5.96e-08, 65504.0),
    "float16 1e-07..65504": (1e-07, 65504.0),
    "float16 1e-07..10000": (1e-07, 1e4),
}
"""The bounds of converters: what is smaller or larger becomes the bound, with its sign. Zero and infinity stay."""
HALF_STEP = 0.5
ARITHMETIC = 2.0**-22
"""Of a code: quantizers divide, or multiply by a reciprocal, and add in float32. Three roundings, each 2**-24 at most."""
HALF_SCALE = 2.0**-10
"""The same if the scale is stored as float16: codes were computed before it was rounded."""
MAX_FAR_SHARE = 0.1
"""If more weights of a tensor than this are farther than a step, or a unit, it is another tensor."""
INFINITE = 1e30
"""A finite number of this magnitude means infinity, as in attention masks: to clip it loses nothing."""
CHUNK_ELEMENTS = 2**17
"""Weights that are compared at once: they stay in the processor's cache."""
WIDE = ("float32", "float64")
FLOAT32_ROUNDING, FLOAT16_ROUNDING = 2.0**-20, 2.0**-10
"""Relative: a scale is a few float32 operations on the extremes of its weights, and may be stored with 16 bits."""
SMALLEST_SCALE = 2.0**-126
"""A scale below the smallest normal float32 becomes one."""
_LIMITS = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
}
"""The smallest and the largest code of an element type."""


@dataclass(frozen=True)
class Largest:
    """The largest error in steps of its scale (or units of the last place), and the tensor and index with it."""

    steps: float = 0.0
    tensor: str = ""
    index: tuple[int, ...] = ()


@dataclass
class Comparison:
    """The counts of one proof; `doubts` are the reasons why it is bounded only, in words for people.

    `half_rules` are the rules for float16 that gave every value so far.
    """

    tensors: int = 0
    weights: int = 0
    quantized: int = 0
    clipped: int = 0
    largest: Largest = field(default_factory=Largest)
    scales: Counter[str] = field(default_factory=Counter)
    roundings: Counter[str] = field(default_factory=Counter)
    half_rules: list[str] = field(default_factory=lambda: list(HALF_RULES))
    doubts: list[str] = field(default_factory=list)

    def see(self, error: float, tensor: str, index: Iterable[Any]) -> None:
        if error > self.largest.steps:
            self.largest = Largest(error, tensor, tuple(int(at) for at in index))


def compare_constants(pairs: list[tuple[StoredValue, StoredValue]]) -> Comparison:
    """Compare the stored values that have one place, the parent's first, each pair once."""
    comparison, compared = Comparison(), set()
    for parent, child in pairs:
        key = (parent.identity, child.identity)
        if key not in compared:
            compared.add(key)
            compare(comparison, parent, child)
    return comparison


def compare(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    """Compare two constants. Raise UnprovableError if the child's is not that of the parent, rounded."""
    name = child.tensor.name or ""
    if parent.dims != child.dims:
        raise UnprovableError(f"{name} has the shape {_text(child.dims)}, in the parent {_text(parent.dims)}")
    comparison.tensors += 1
    if child.is_float:
        comparison.weights += child.size
    if child.quantization is not None and parent.quantization is not None:
        _refuse_other_codes(parent, child)
    elif child.quantization is not None:
        if parent.element not in FLOATS:
            raise UnprovableError(f"{name} has codes of a tensor that is not floating point")
        comparison.quantized += child.size
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            _compare_codes(comparison, parent, child)
    elif parent.quantization is not None:
        raise UnprovableError(f"{name} has values, the parent has codes")
    elif parent.tolerance or child.tolerance:
        _refuse_far(parent, child)
    elif child.element == parent.element or not (child.is_float and parent.is_float):
        _refuse_unequal(parent, child)
    else:
        _compare_rounded(comparison, parent, child)


def _text(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims)) or "of a scalar"


def _refuse_far(parent: StoredValue, child: StoredValue) -> None:
    """Raise UnprovableError unless two factors, of which one was computed here, are equal up to its rounding."""
    one, other = (value.array().astype(np.float64) for value in (parent, child))
    if not (np.abs(one - other) <= max(parent.tolerance, child.tolerance) * np.abs(one)).all():
        raise UnprovableError(
            f"a factor is {other.reshape(-1)[0]:.9g}, in the parent {one.reshape(-1)[0]:.9g}"
        )


def _refuse_unequal(parent: StoredValue, child: StoredValue) -> None:
    """Raise UnprovableError, naming the first element, unless two constants have one type and equal bytes."""
    name = child.tensor.name or ""
    if child.element != parent.element:
        raise UnprovableError(f"{name} is {child.element}, in the parent {parent.element}")
    if not (is_readable(child.tensor) and is_readable(parent.tensor)):
        if digest_of(child.tensor) != digest_of(parent.tensor) or child.views or parent.views:
            raise UnprovableError(f"{name} differs from the parent's")
        return
    stored = read_array(child.tensor)
    one, other = child.stored_form(parent.array()).reshape(-1), stored.reshape(-1)
    for start in range(0, one.size, CHUNK_ELEMENTS):
        left, right = (
            np.ascontiguousarray(side[start : start + CHUNK_ELEMENTS]).view(np.uint8) for side in (one, other)
        )
        if not np.array_equal(left, right):
            at = start + int(np.flatnonzero(left != right)[0]) // one.itemsize
            index = [int(axis) for axis in np.unravel_index(at, stored.shape)]
            raise UnprovableError(f"{name} differs from the parent's at {index}: {other[at]}, not {one[at]}")


def _refuse_other_codes(parent: StoredValue, child: StoredValue) -> None:
    """Raise UnprovableError unless both constants are the same codes with the same scales and zero points."""
    one, other = parent.quantization, child.quantization
    assert one is not None and other is not None, "callers look"
    facts = [(q.axis, q.block, q.zero is None) for q in (one, other)]
    if facts[0] != facts[1] or parent.views != child.views:
        raise UnprovableError(f"{child.tensor.name} is quantized in another way than in the parent")
    for left, right in ((parent.tensor, child.tensor), (one.scale, other.scale), (one.zero, other.zero)):
        if right is not None and any(part(left) != part(right) for part in (type_of, dims_of, digest_of)):
            raise UnprovableError(f"{right.name} differs from the parent's")


def _compare_codes(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    """Compare codes with values, a few rows at a time: each must be the nearest, and the scales those of a rule."""
    quantization, name = child.quantization, child.tensor.name or ""
    assert quantization is not None, "callers look"
    codes, values, inside = read_array(child.tensor), child.stored_form(parent.array()), None
    axis, block, dims = quantization.axis, quantization.block, codes.shape
    shape: tuple[int, ...] = dims
    spread = tuple(size if at == axis else 1 for at, size in enumerate(dims))
    if axis is None and values.flags.c_contiguous:
        shape, spread = (values.size,), (1,)
    elif axis is not None and block:
        shape = (*dims[:axis], dims[axis] // block, block, *dims[axis + 1 :])
        spread = (*shape[: axis + 1], 1, *shape[axis + 2 :])
        if child.is_padded:
            inside = (np.arange(dims[1]) < child.views[0][1]).reshape(1, *shape[1:])
    values, codes = np.atleast_1d(values.reshape(shape)), np.atleast_1d(codes.reshape(shape))
    scales, scale_type = read_array(quantization.scale).reshape(spread), type_of(quantization.scale)
    zeros = np.zeros(1) if quantization.zero is None else read_array(quantization.zero)
    zeros = zeros.reshape(spread if zeros.size > 1 else (1,) * len(spread))
    limits = _LIMITS.get(type_of(child.tensor), (0, 0))
    if not np.isfinite(scales).all():
        raise UnprovableError(f"{name} has a scale that is not a number")
    low, high = np.full(scales.shape, np.inf), np.full(scales.shape, -np.inf)
    axes = tuple(at for at, size in enumerate(scales.shape) if size == 1)
    share = ARITHMETIC if scale_type in WIDE else HALF_SCALE
    far = beyond = clipped = 0
    worst, row = Largest(), int(np.prod(shape[1:]))
    step = max(1, CHUNK_ELEMENTS // max(1, row))
    for start in range(0, len(values), step):
        span = slice(start, start + step)
        own, zero_span = (span if a.ndim and a.shape[0] > 1 else slice(None) for a in (scales, zeros))
        exact, stored = values[span].astype(np.float64), codes[span]
        steps, middle = scales[own].astype(np.float64), zeros[zero_span].astype(np.float64)
        low[own] = np.minimum(low[own], exact.min(axis=axes, keepdims=True, initial=np.inf))
        high[own] = np.maximum(high[own], exact.max(axis=axes, keepdims=True, initial=-np.inf))
        if ((steps == 0) & (exact != 0)).any():
            raise UnprovableError(f"{name} has a scale of zero for weights that are not zero")
        is_zero = (exact == 0) | (steps == 0)
        exact = exact / steps
        np.copyto(exact, 0.0, where=is_zero)
        errors = exact + middle
        errors -= stored
        np.abs(errors, out=errors)
        if inside is not None:
            errors *= inside
        if not np.isfinite(errors).all():
            raise UnprovableError(f"{name} has values that are not numbers")
        at = int(errors.argmax()) if errors.size else 0
        most = float(errors.reshape(-1)[at]) if errors.size else 0.0
        if most > worst.steps:
            index = tuple(int(part) for part in np.unravel_index(at + start * row, dims))
            worst = Largest(most, name, index[::-1] if child.is_padded else index)
        if most <= HALF_STEP:
            continue
        wrong = errors > HALF_STEP + share * (np.abs(exact) + np.abs(middle).max() + 1)
        top = (stored == limits[1]) & (exact + middle > limits[1])
        bottom = (stored == limits[0]) & (exact + middle < limits[0])
        clipped += int((wrong & (top | bottom)).sum())
        wrong &= ~(top | bottom)
        beyond += int(wrong.sum())
        far += int((wrong & (errors > 1)).sum())
    error, count = f"by up to {worst.steps:.4g} steps at {list(worst.index)}", parent.size
    if far > MAX_FAR_SHARE * max(count, 1):
        raise UnprovableError(
            f"{name} is another tensor: {far} of {count} weights are farther than a step, {error}"
        )
    comparison.see(worst.steps, name, worst.index)
    comparison.clipped += clipped
    rule = _scale_rule(low, high, scales, zeros, limits, scale_type) if count else "empty"
    comparison.scales[rule or "other"] += 1
    if beyond:
        comparison.doubts.append(f"{beyond} weights of {name} are not rounded to the nearest code, {error}")
    if not rule:
        note = f"; {clipped} of {count} weights are clipped" if clipped else ""
        comparison.doubts.append(f"no known rule gives the scales of {name}{note}")


_NAMES = """
symmetric/254 symmetric/255 symmetric/128 range/255 range/254 range/128 range/127 extreme/128
symmetric/14 symmetric/15 range/15 range/14 extreme/8 symmetric/65534 range/65535
"""
SCALE_RULES = tuple(_NAMES.split())
"""The ways in which quantizers choose scales and zero points; docs/prove.md says who uses which."""


def _scale_rule(low: Any, high: Any, scales: Any, zeros: Any, limits: tuple[int, int], kind: str) -> str:
    """The first rule that gives every scale and zero point, from the extreme weights of each; "" if none does."""
    tolerance = FLOAT32_ROUNDING if kind in WIDE else FLOAT16_ROUNDING
    empty, (least, most) = (low == 0) & (high == 0), limits
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    for name in SCALE_RULES:
        family, _, text = name.partition("/")
        steps = int(text)
        if not (most - least) / 4 <= steps <= most - least + 1:
            continue
        if family == "symmetric":  # twice the largest magnitude; the zero point in the middle of its codes
            expected = 2 * np.maximum(-low, high) / steps
            own = np.isin(zeros, [0] if least < 0 else [(most + 1) // 2, most // 2, steps // 2])
        elif family == "range":  # that of the weights and zero; the zero point is the code of zero, rounded
            expected = (high - low) / steps
            starts = {least} if least == 0 else {least, -(steps + 1) // 2, -(steps // 2)}
            exact = [zeros - (start - low / scales) for start in sorted(starts)]
            own = np.logical_or.reduce([np.abs(one) <= 0.5 + 2.0**-12 for one in exact])
        else:  # the weight of the largest magnitude is the smallest code; the other end may be clipped
            expected = np.where(high > -low, high, low) / -steps
            expected = np.where((high == -low) & (scales > 0), -expected, expected)
            own = zeros == (0 if least < 0 else steps)
        near = np.abs(expected - scales) <= tolerance * np.abs(expected)
        tiny = (np.abs(expected) < SMALLEST_SCALE) & (scales == 1)
        if bool(np.all(empty | ((near | tiny) & own))):
            return name
    return ""


def _compare_rounded(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    """Compare a float16 or bfloat16 constant with the wider one that it was converted from, in chunks."""
    name, kind, stored = child.tensor.name or "", child.element, read_array(child.tensor)
    one, other = child.stored_form(parent.array()).reshape(-1), stored.reshape(-1)
    comparison.roundings[kind] += 1
    wrong, far, first = 0, 0, -1
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, one.size, CHUNK_ELEMENTS):
            wide, narrow = (array[start : start + CHUNK_ELEMENTS] for array in (one, other))
            nearest = _nearest(wide, kind)
            equal = (narrow == nearest) & (np.signbit(narrow) == np.signbit(nearest))
            equal |= np.isnan(narrow) & np.isnan(nearest)
            if kind == "float16":
                equal = _by_rules(comparison, name, wide, narrow, equal)
            if equal.all():
                continue
            places = np.flatnonzero(~equal)
            first = start + int(places[0]) if first < 0 else first
            if kind in WIDE:
                raise UnprovableError(f"{name} differs from the parent's at {int(places[0]) + start}")
            if kind == "bfloat16":
                unit = np.maximum(np.abs(wide[places].astype(np.float64)) * 2.0**-8, 2.0**-133)
            else:
                unit = np.abs(np.spacing(nearest[places].astype(np.float16))).astype(np.float64)
            errors = np.abs(narrow[places].astype(np.float64) - wide[places].astype(np.float64)) / unit
            if not np.isfinite(errors).all():
                raise UnprovableError(f"{name} has values that are not numbers")
            wrong += len(places)
            far += int((errors > 1).sum())
            worst = int(errors.argmax())
            at = np.unravel_index(start + int(places[worst]), stored.shape)
            comparison.see(float(errors[worst]), name, at)
    if far > MAX_FAR_SHARE * max(one.size, 1):
        raise UnprovableError(
            f"{name} is another tensor: {far} of {one.size} values differ by more than a unit"
        )
    if wrong:
        index = [int(at) for at in np.unravel_index(first, stored.shape)]
        comparison.doubts.append(
            f"{name} is not the parent's value, rounded, at {index}: {other[first]} for {one[first]}"
        )


def _by_rules(comparison: Comparison, name: str, wide: Any, narrow: Any, nearest: Any) -> Any:
    """Drop the rules that do not give these values; return which values the remaining ones, or one, give."""
    size = np.abs(wide)
    special = ((size < 1.2e-07) & (size > 0)) | (size >= 1e4)
    if not special.any():
        return nearest
    results = {}
    for rule in comparison.half_rules:
        bounded = np.copysign(np.clip(size, *HALF_RULES[rule]), wide)
        expected = np.where(special & np.isfinite(wide), bounded, wide).astype(np.float16)
        results[rule] = np.where(special, expected == narrow, nearest)
    fitting = [rule for rule, equal in results.items() if equal[special].all()]
    if not fitting:
        return max(results.values(), key=lambda equal: int(equal.sum()))
    comparison.half_rules = fitting
    finite, most = special & np.isfinite(wide), min(HALF_RULES[fitting[0]][1], 65519.0)
    clipped = int((finite & (size > most) & (size < INFINITE)).sum())
    if clipped:
        comparison.clipped += clipped
        comparison.doubts.append(f"{clipped} values of {name} are beyond float16 and were clipped")
    return results[fitting[0]]


def _nearest(wide: Any, kind: str) -> Any:
    """The nearest value of a type, ties to even; bfloat16 as float32."""
    if kind != "bfloat16":
        return wide.astype({"float16": np.float16, "float32": np.float32, "float64": np.float64}[kind])
    return wide.astype(ml_dtypes.bfloat16).astype(np.float32)
