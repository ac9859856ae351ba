"""Compare the child's stored tensors with the parent's. A tensor may be equal, quantized, or rounded to 16 bits."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from onnxreg.converters.onnx.tensors import FLOATS, digest_of, dims_of, type_of
from onnxreg.converters.prove.formula import StoredValue, UnprovableError, is_readable, read_array
from onnxreg.schema.gates.statements import LargestError

HALF_RULES: dict[str, tuple[float, float]] = {
    "nearest": (0.0, float("inf")),
    "float16 5.96e-08..65504": (5.96e-08, 65504.0),
    "float16 1e-07..65504": (1e-07, 65504.0),
    "float16 1e-07..10000": (1e-07, 1e4),
}
"""The rules by which converters round to 16 bits. Magnitudes are first limited to a range, except 0 and infinity."""
MAX_CHARACTERS = 1000
HALF_STEP = 0.5
ARITHMETIC = 2.0**-22
"""The relative error allowed in a code (the stored integer), because quantizers compute codes in float32."""
HALF_SCALE = 2.0**-10
"""The relative error allowed in a code whose scale is stored as float16."""
MAX_FAR_SHARE = 0.1
"""The share of a tensor's weights that may differ by more than one quantization step. Beyond it, a proof fails."""
INFINITE = 1e30
"""Magnitudes of this or more count as infinity, so clipping them to float16 loses nothing."""
CHUNK_ELEMENTS = 2**17
WIDE = ("float32", "float64")
FLOAT32_ROUNDING, FLOAT16_ROUNDING = 2.0**-20, 2.0**-10
"""The allowed relative error of a scale: the first if it is stored as float32, the second if as float16."""
SMALLEST_SCALE = 2.0**-126
_LIMITS = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (4, 8, 16, 32)}
_LIMITS |= {f"uint{bits}": (0, 2**bits - 1) for bits in (4, 8, 16)}
"""The smallest and the largest code of an element type."""
Measure = Callable[[int, Any, Any], tuple[Any, Any]]


@dataclass
class Comparison:
    """The figures of a proof. `doubts` are the reasons why the verdict is `bounded` instead of `proven`.

    `largest` is the largest error, in steps of the scale or units in the last place. `half_rules` has keys of
    `HALF_RULES`. Each comparison of float16 values keeps only those rules that reproduce the most values.
    """

    tensors: int = 0
    weights: int = 0
    quantized: int = 0
    clipped: int = 0
    largest: LargestError | None = None
    scales: Counter[str] = field(default_factory=Counter)
    roundings: Counter[str] = field(default_factory=Counter)
    half_rules: list[str] = field(default_factory=lambda: list(HALF_RULES))
    doubts: list[str] = field(default_factory=list)


def compare_constants(pairs: list[tuple[StoredValue, StoredValue]]) -> Comparison:
    """Compare pairs of stored values, each pair once. A pair is (parent, child)."""
    comparison = Comparison()
    for parent, child in dict.fromkeys(pairs):
        _compare(comparison, parent, child)
    return comparison


def _compare(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    name, kind = child.tensor.name or "", child.element
    if parent.dims != child.dims:
        raise UnprovableError(f"{name} has the shape {[*child.dims]}, in the parent {[*parent.dims]}")
    comparison.tensors += 1
    if child.is_float:
        comparison.weights += child.size
    if child.is_coded and parent.is_coded:
        _refuse_other_codes(parent, child)
    elif child.is_coded:
        if parent.element not in FLOATS:
            raise UnprovableError(f"{name} has codes of a tensor that is not floating point")
        comparison.quantized += child.size
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            _compare_codes(comparison, parent, child)
    elif parent.is_coded:
        raise UnprovableError(f"{name} has values, the parent has codes")
    elif parent.tolerance or child.tolerance:
        one, other = (value.array().astype(np.float64) for value in (parent, child))
        if not (np.abs(one - other) <= max(parent.tolerance, child.tolerance) * np.abs(one)).all():
            raise UnprovableError(f"a factor is {other.flat[0]:.9g}, in the parent {one.flat[0]:.9g}")
    elif kind == parent.element or not (child.is_float and parent.is_float):
        _refuse_unequal(parent, child)
    else:
        comparison.roundings[kind] += 1
        with np.errstate(over="ignore", invalid="ignore"):
            if kind in WIDE:
                _refuse_unequal(parent, child)
            else:
                _compare_rows(comparison, parent, child, partial(_unit_errors, comparison, name, kind))


def _refuse_unequal(parent: StoredValue, child: StoredValue) -> None:
    name = child.tensor.name or ""
    if child.element != parent.element and not (child.is_float and parent.is_float):
        raise UnprovableError(f"{name} is {child.element}, in the parent {parent.element}")
    if not (is_readable(child.tensor) and is_readable(parent.tensor)):
        if digest_of(child.tensor) != digest_of(parent.tensor) or child.views or parent.views:
            raise UnprovableError(f"{name} differs from the parent's")
        return
    stored = read_array(child.tensor)
    one, other = child.stored_form(parent.array()).reshape(-1), stored.reshape(-1)
    for start in range(0, other.size, CHUNK_ELEMENTS):
        right = np.ascontiguousarray(other[start : start + CHUNK_ELEMENTS])
        left = np.ascontiguousarray(one[start : start + CHUNK_ELEMENTS], right.dtype)
        same = left.view(np.uint8) == right.view(np.uint8)
        if not same.all():
            at = int(same.argmin()) // left.itemsize
            index = _index(start + at, stored.shape)
            raise UnprovableError(f"{name} differs from the parent's at {index}: {right[at]}, not {left[at]}")


def _index(at: int, dims: tuple[int, ...]) -> list[int]:
    return [int(axis) for axis in np.unravel_index(at, dims)]


def _refuse_other_codes(parent: StoredValue, child: StoredValue) -> None:
    facts = [(side.axis, side.block, side.zero is None, side.views) for side in (parent, child)]
    if facts[0] != facts[1]:
        raise UnprovableError(f"{child.tensor.name} is quantized in another way than in the parent")
    for tensor in ("tensor", "scale", "zero"):
        left, right = getattr(parent, tensor), getattr(child, tensor)
        if right is not None and any(part(left) != part(right) for part in (type_of, dims_of, digest_of)):
            raise UnprovableError(f"{right.name} differs from the parent's")


def _compare_rows(
    comparison: Comparison, parent: StoredValue, child: StoredValue, measure: Measure, group: int = 1
) -> None:
    """Compare the child's codes or 16-bit values with the parent's values, some rows at a time.

    `measure(first_row, values, codes)` returns errors, in steps of the scale, and a mask: True if a nearer code exists.
    """
    name, count = child.tensor.name or "", child.size
    values, codes = child.stored_form(parent.array()), read_array(child.tensor)
    dims = codes.shape
    if child.axis is None:
        values, codes = values.reshape(-1), codes.reshape(-1)
    far = beyond = largest = 0
    worst, row = 0.0, values[:1].size
    rows = group * max(1, CHUNK_ELEMENTS // max(1, row * group))
    for start in range(0, len(values), rows):
        errors, wrong = measure(start, values[start : start + rows], codes[start : start + rows])
        if not np.isfinite(errors).all():
            raise UnprovableError(f"{name} has values that are not numbers")
        if errors.max() > worst:
            worst, largest = float(errors.max()), start * row + int(errors.argmax())
        beyond += int(wrong.sum())
        far += int((wrong & (errors > 1)).sum())
    index = _index(largest, dims) if count else []
    error = f"by up to {worst:.4g} steps at {index}"
    if far > MAX_FAR_SHARE * count:
        raise UnprovableError(
            f"{name} is another tensor: {far} of {count} weights are over a step off, {error}"
        )
    if worst > (comparison.largest.steps if comparison.largest else 0):
        comparison.largest = LargestError(steps=worst, tensor=name[:MAX_CHARACTERS], index=tuple(index))
    if beyond:
        nearest = "code" if child.is_coded else child.element
        comparison.doubts.append(f"{beyond} weights of {name} are not the nearest {nearest}, {error}")


def _compare_codes(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    """Compare codes with the parent's values. Add a doubt if a nearer code exists, or if no rule gives the scales."""
    name, block = child.tensor.name or "", child.block
    axis: Any = child.axis
    scales = read_array(child.scale)
    if not block:
        spread = [size if at == axis else 1 for at, size in enumerate(dims_of(child.tensor))]
        scales = scales.reshape(1 if axis is None else spread)
    zeros = np.zeros(1) if child.zero is None else read_array(child.zero)
    zeros = np.broadcast_to(zeros.reshape(() if zeros.size == 1 else scales.shape), scales.shape)
    limits = _LIMITS.get(type_of(child.tensor), (0, 0))
    if not np.isfinite(scales).all():
        raise UnprovableError(f"{name} has a scale that is not a number")
    if not child.size:
        comparison.scales["empty"] += 1
        return

    low, high = np.full(scales.shape, np.inf), np.full(scales.shape, -np.inf)
    share = ARITHMETIC if type_of(child.scale) in WIDE else HALF_SCALE
    alike = tuple(at for at, size in enumerate(scales.shape) if size == 1)
    group, before = block if block and axis == 0 else 1, comparison.clipped

    def measure(start: int, values: Any, codes: Any) -> tuple[Any, Any]:
        exact, end = values.astype(np.float64), start + len(values)
        own = slice(start // group, -(-end // group)) if len(scales) > 1 else slice(None)
        steps, middle = scales[own].astype(np.float64), zeros[own].astype(np.float64)
        for extremes, function in ((low, np.minimum), (high, np.maximum)):
            if block:
                ends = function.reduceat(exact, range(0, exact.shape[axis], block), axis)
            else:
                ends = function.reduce(exact, alike, keepdims=True)
            extremes[own] = function(extremes[own], ends)
        if block:
            at = np.arange(exact.shape[axis]) // block
            steps, middle = steps.take(at, axis), middle.take(at, axis)
        if ((steps == 0) & (exact != 0)).any():
            raise UnprovableError(f"{name} has a scale of zero for weights that are not zero")
        exact = np.where(exact == 0, 0.0, exact / steps)
        errors = np.abs(exact + middle - codes)
        wrong = errors > HALF_STEP
        if wrong.any():
            wrong = errors > HALF_STEP + share * (np.abs(exact) + np.abs(middle).max() + 1)
            end_codes = (codes == limits[1]) & (exact + middle > limits[1])
            end_codes |= (codes == limits[0]) & (exact + middle < limits[0])
            comparison.clipped += int((wrong & end_codes).sum())
            wrong &= ~end_codes
        return errors, wrong

    _compare_rows(comparison, parent, child, measure, group)
    rule = _scale_rule(low, high, scales, zeros, limits, type_of(child.scale))
    comparison.scales[rule or "other"] += 1
    if not rule:
        clipped = comparison.clipped - before
        note = f"; {clipped} of {child.size} weights are clipped" if clipped else ""
        comparison.doubts.append(f"no known rule gives the scales of {name}{note}")


_NAMES = """
symmetric/254 symmetric/255 symmetric/128 range/255 range/254 range/128 range/127 extreme/128
symmetric/14 symmetric/15 range/15 range/14 extreme/8 symmetric/65534 range/65535
"""
SCALE_RULES = tuple(_NAMES.split())
"""The rules by which quantizers choose scales and zero points. docs/prove.md explains each rule."""


def _scale_rule(low: Any, high: Any, scales: Any, zeros: Any, limits: tuple[int, int], kind: str) -> str:
    """Return the first of `SCALE_RULES` that gives all scales and zero points; "" if none does."""
    tolerance = FLOAT32_ROUNDING if kind in WIDE else FLOAT16_ROUNDING
    empty, (least, most) = (low == 0) & (high == 0), limits
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    for name in SCALE_RULES:
        family, _, text = name.partition("/")
        steps = int(text)
        if not (most - least) / 4 <= steps <= most - least + 1:
            continue
        if family == "symmetric":  # from twice the largest magnitude; the zero point is the middle code
            expected = 2 * np.maximum(-low, high) / steps
            own = np.isin(zeros, [0] if least < 0 else [(most + 1) // 2, most // 2, steps // 2])
        elif family == "range":  # from the range of the weights and zero; the zero point is the code of zero
            expected = (high - low) / steps
            starts = {least} if least == 0 else {least, -(steps + 1) // 2, -(steps // 2)}
            exact = [zeros - (start - low / scales) for start in sorted(starts)]
            own = np.logical_or.reduce([np.abs(one) <= 0.5 + 2.0**-12 for one in exact])
        else:  # the smallest code is the weight of the largest magnitude; the other end may be clipped
            expected = np.where(high > -low, high, low) / -steps
            expected = np.where((high == -low) & (scales > 0), -expected, expected)
            own = zeros == (0 if least < 0 else steps)
        near = np.abs(expected - scales) <= tolerance * np.abs(expected)
        tiny = (np.abs(expected) < SMALLEST_SCALE) & (scales == 1)
        if bool(np.all(empty | ((near | tiny) & own))):
            return name
    return ""


def _unit_errors(
    comparison: Comparison, name: str, kind: str, start: int, wide: Any, narrow: Any
) -> tuple[Any, Any]:
    """Return the errors of 16-bit values in units in the last place, and a mask of the wrong values."""
    nearest, size = wide.astype(np.float16 if kind == "float16" else ml_dtypes.bfloat16), np.abs(wide)
    equal = (narrow == nearest) & (np.signbit(narrow) == np.signbit(nearest))
    equal |= np.isnan(narrow) & np.isnan(nearest)
    special = ((size < 1.2e-07) & (size > 0)) | ((size >= 1e4) & np.isfinite(wide))
    if kind == "float16" and special.any():
        by_rule = {}
        for rule in comparison.half_rules:
            bounded = np.copysign(np.clip(size, *HALF_RULES[rule]), wide).astype(np.float16)
            by_rule[rule] = np.where(special, bounded == narrow, equal)
        most = max(int(one.sum()) for one in by_rule.values())
        comparison.half_rules = [rule for rule, one in by_rule.items() if int(one.sum()) == most]
        rule = comparison.half_rules[0]
        equal, bound = by_rule[rule], min(HALF_RULES[rule][1], 65519.0)
        if clipped := int((special & equal & (size > bound) & (size < INFINITE)).sum()):
            comparison.clipped += clipped
            comparison.doubts.append(f"{clipped} values of {name} are beyond float16 and were clipped")
    errors, wrong = np.zeros(wide.shape), ~equal
    if wrong.any():
        error = narrow[wrong].astype(np.float64) - wide[wrong]
        errors[wrong] = np.abs(error / np.spacing(nearest[wrong]).astype(np.float64))
    return errors, wrong
