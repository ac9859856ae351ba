"""Compare a constant of the child with that of the parent that has its place: equal, codes, or rounded to float16."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxreg.converters.onnx.elements import FLOATS
from onnxreg.converters.onnx.tensors import digest_of, dims_of, type_of
from onnxreg.converters.prove import scale_rules
from onnxreg.converters.prove.codes import CHUNK_ELEMENTS, CodeRows, CodeTable
from onnxreg.converters.prove.formula import StoredValue, UnprovableError, is_readable, read_array

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

    def seen(self, error: float, tensor: str, index: tuple[int, ...]) -> None:
        if error > self.largest.steps:
            self.largest = Largest(error, tensor, index)


def compare(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    """Compare two constants. Raise UnprovableError if the child's is not that of the parent, rounded."""
    name = child.tensor.name or ""
    if parent.dims != child.dims:
        raise UnprovableError(f"{name} has the shape {_text(child.dims)}, in the parent {_text(parent.dims)}")
    comparison.tensors += 1
    if child.is_float:
        comparison.weights += child.size
    if child.quantization is not None:
        _compare_codes(comparison, parent, child)
    elif parent.quantization is not None:
        raise UnprovableError(f"{name} has values, the parent has codes")
    elif child.element == parent.element or not (child.is_float and parent.is_float):
        _refuse_unequal(parent, child)
    else:
        _Rounding(comparison, parent, child).run()


def _compare_codes(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    if parent.quantization is not None:
        _refuse_other_codes(parent, child)
        return
    if parent.element not in FLOATS:
        raise UnprovableError(f"{child.tensor.name} has codes of a tensor that is not floating point")
    comparison.quantized += child.size
    _Codes(comparison, child.tensor.name or "", CodeTable(child, parent)).run()


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
        left, right = (np.ascontiguousarray(side[start : start + CHUNK_ELEMENTS]) for side in (one, other))
        unequal = left.view(np.uint8).reshape(left.size, -1) != right.view(np.uint8).reshape(right.size, -1)
        if unequal.any():
            at = start + int(np.flatnonzero(unequal.any(axis=1))[0])
            index = [int(at) for at in np.unravel_index(at, stored.shape)]
            raise UnprovableError(f"{name} differs from the parent's at {index}: {other[at]}, not {one[at]}")


def _refuse_other_codes(parent: StoredValue, child: StoredValue) -> None:
    one, other = parent.quantization, child.quantization
    assert one is not None and other is not None, "callers look"
    facts = [(q.axis, q.block, q.matrix, q.bits) for q in (one, other)]
    tensors = [(parent.tensor, child.tensor), (one.scale, other.scale)]
    if facts[0] != facts[1] or parent.views != child.views or (one.zero is None) != (other.zero is None):
        raise UnprovableError(f"{child.tensor.name} is quantized in another way than in the parent")
    if one.zero is not None and other.zero is not None:
        tensors.append((one.zero, other.zero))
    for left, right in tensors:
        if any(part(left) != part(right) for part in (type_of, dims_of, digest_of)):
            raise UnprovableError(f"{right.name} differs from the parent's")


class _Codes:
    """The comparison of one quantized weight."""

    def __init__(self, comparison: Comparison, name: str, table: CodeTable) -> None:
        self._to, self._name, self._table = comparison, name, table
        self._low = np.full(table.scales.shape, np.inf)
        self._high = np.full(table.scales.shape, -np.inf)
        self._axes = tuple(at for at, size in enumerate(table.scales.shape) if size == 1)
        self._beyond = self._far = self._clipped = 0
        self._worst = Largest()

    def run(self) -> None:
        if not np.isfinite(self._table.scales).all():
            raise UnprovableError(f"{self._name} has a scale that is not a number")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for rows in self._table.rows():
                self._row(rows)
            self._judge()

    def _row(self, rows: CodeRows) -> None:
        span = rows.span
        low = rows.values.min(axis=self._axes, keepdims=True, initial=np.inf)
        high = rows.values.max(axis=self._axes, keepdims=True, initial=-np.inf)
        self._low[span] = np.minimum(self._low[span], low)
        self._high[span] = np.maximum(self._high[span], high)
        if ((rows.scales == 0) & (rows.values != 0)).any():
            raise UnprovableError(f"{self._name} has a scale of zero for weights that are not zero")
        exact = rows.values / rows.scales
        np.copyto(exact, 0.0, where=(rows.values == 0) | (rows.scales == 0))
        errors = exact + rows.zeros
        errors -= rows.codes
        np.abs(errors, out=errors)
        if not np.isfinite(errors).all():
            raise UnprovableError(f"{self._name} has values that are not numbers")
        self._count(rows, exact, errors)

    def _count(self, rows: CodeRows, exact: Any, errors: Any) -> None:
        errors = self._table.real(errors)
        worst = int(errors.argmax()) if errors.size else 0
        most = float(errors.reshape(-1)[worst]) if errors.size else 0.0
        if most > self._worst.steps:
            self._worst = Largest(most, self._name, self._table.index(rows.start, worst, errors.shape))
        if most <= HALF_STEP:
            return
        share = ARITHMETIC if self._table.scale_type in ("float32", "float64") else HALF_SCALE
        exact = self._table.real(exact)
        allowed = HALF_STEP + share * (np.abs(exact) + np.abs(rows.zeros).max() + 1)
        beyond = errors > allowed
        if not beyond.any():
            return
        codes = self._table.real(rows.codes.astype(np.float64))
        exact_codes = self._table.real(np.broadcast_to(rows.zeros, rows.codes.shape)) + exact
        low, high = self._table.limits
        clipped = beyond & (((codes == high) & (exact_codes > high)) | ((codes == low) & (exact_codes < low)))
        self._clipped += int(clipped.sum())
        beyond &= ~clipped
        self._beyond += int(beyond.sum())
        self._far += int((beyond & (errors > 1)).sum())

    def _judge(self) -> None:
        table, comparison = self._table, self._to
        if self._far > MAX_FAR_SHARE * max(table.count, 1):
            raise UnprovableError(
                f"{self._name} is another tensor: {self._far} of {table.count} weights are farther than a step, "
                f"by up to {self._worst.steps:.4g} steps at {list(self._worst.index)}"
            )
        comparison.seen(self._worst.steps, self._name, self._worst.index)
        comparison.clipped += self._clipped
        extremes = scale_rules.Extremes(self._low, self._high, table.scales, table.zeros, table.limits)
        rules = list(scale_rules.matching(extremes, table.scale_type)) if table.count else ["empty"]
        comparison.scales[rules[0] if rules else "other"] += 1
        if self._beyond:
            at = f"by up to {self._worst.steps:.4g} steps at {list(self._worst.index)}"
            comparison.doubts.append(
                f"{self._beyond} weights of {self._name} are not rounded to the nearest code, {at}"
            )
        if not rules:
            clipped = f"; {self._clipped} of {table.count} weights are clipped" if self._clipped else ""
            comparison.doubts.append(f"no known rule gives the scales of {self._name}{clipped}")


class _Rounding:
    """The comparison of one float16 or bfloat16 constant with the wider one that it was converted from, in chunks."""

    def __init__(self, comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
        self._to, self._child = comparison, child
        self._name = child.tensor.name or ""
        stored = read_array(child.tensor)
        self._dims = stored.shape
        self._one, self._other = child.stored_form(parent.array()).reshape(-1), stored.reshape(-1)
        self._rules = list(comparison.half_rules)
        self._wrong = self._far = 0
        self._first = -1

    def run(self) -> None:
        comparison, kind = self._to, self._child.element
        comparison.roundings[kind] += 1
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, self._one.size, CHUNK_ELEMENTS):
                chunk = slice(start, start + CHUNK_ELEMENTS)
                self._chunk(start, self._one[chunk], self._other[chunk], kind)
        if self._rules:
            comparison.half_rules = self._rules
        if self._wrong or not self._rules:
            if self._far > MAX_FAR_SHARE * max(self._one.size, 1):
                raise UnprovableError(
                    f"{self._name} is another tensor: {self._far} of {self._one.size} values differ by more than a unit"
                )
            at = max(self._first, 0)
            index = [int(at) for at in np.unravel_index(at, self._dims)]
            comparison.doubts.append(
                f"{self._name} is not the parent's value, rounded, at {index}: {self._other[at]} for {self._one[at]}"
            )

    def _chunk(self, start: int, wide: Any, narrow: Any, kind: str) -> None:
        nearest = _nearest(wide, kind)
        equal = (narrow == nearest) & (np.signbit(narrow) == np.signbit(nearest)) | (
            np.isnan(narrow) & np.isnan(nearest)
        )
        if kind == "float16":
            equal = self._by_rules(start, wide, narrow, equal)
        if not equal.all():
            self._differ(start, wide, narrow, nearest, equal)

    def _by_rules(self, start: int, wide: Any, narrow: Any, nearest: Any) -> Any:
        """Drop the rules that do not give these values; return which values the remaining ones, or one, give."""
        size = np.abs(wide)
        special = ((size < 1.2e-07) & (size > 0)) | (size >= 1e4)
        if not special.any():
            return nearest
        results = {}
        for name in self._rules:
            low, high = HALF_RULES[name]
            bounded = np.copysign(np.clip(size, low, high), wide)
            expected = np.where(special & np.isfinite(wide), bounded, wide).astype(np.float16)
            results[name] = np.where(special, expected == narrow, nearest)
        fitting = [name for name, equal in results.items() if equal[special].all()]
        if not fitting:
            return max(results.values(), key=lambda equal: int(equal.sum()))
        self._rules = fitting
        finite = special & np.isfinite(wide)
        clipped = int((finite & (size > min(HALF_RULES[fitting[0]][1], 65519.0)) & (size < INFINITE)).sum())
        if clipped:
            self._to.clipped += clipped
            self._to.doubts.append(f"{clipped} values of {self._name} are beyond float16 and were clipped")
        return results[fitting[0]]

    def _differ(self, start: int, wide: Any, narrow: Any, nearest: Any, equal: Any) -> None:
        wrong = np.flatnonzero(~equal)
        if self._first < 0:
            self._first = start + int(wrong[0])
        unit = np.abs(np.spacing(nearest[wrong].astype(np.float16))).astype(np.float64)
        if self._child.element == "bfloat16":
            unit = np.maximum(np.abs(wide[wrong].astype(np.float64)) * 2.0**-8, 2.0**-133)
        if self._child.element in ("float32", "float64"):
            raise UnprovableError(f"{self._name} differs from the parent's at {int(wrong[0]) + start}")
        errors = np.abs(narrow[wrong].astype(np.float64) - wide[wrong].astype(np.float64)) / unit
        if not np.isfinite(errors).all():
            raise UnprovableError(f"{self._name} has values that are not numbers")
        self._wrong += len(wrong)
        self._far += int((errors > 1).sum())
        worst = int(errors.argmax())
        index = np.unravel_index(start + int(wrong[worst]), self._dims)
        self._to.seen(float(errors[worst]), self._name, tuple(int(at) for at in index))


def _text(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims)) or "of a scalar"


def _nearest(wide: Any, kind: str) -> Any:
    """The nearest value of a type, ties to even; bfloat16 as float32."""
    if kind != "bfloat16":
        return wide.astype({"float16": np.float16, "float32": np.float32, "float64": np.float64}[kind])
    bits = np.ascontiguousarray(wide, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(wide), np.float32("nan"), rounded.view(np.float32))
