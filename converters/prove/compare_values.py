"""Compare a constant of the child with that of the parent that has its place."""

from typing import Any

from onnxreg.converters.onnx.elements import FLOATS
from onnxreg.converters.onnx.stored_tensors import digest_of
from onnxreg.converters.prove import scale_rules
from onnxreg.converters.prove.codes import CHUNK_ELEMENTS, CodeRows, CodeTable
from onnxreg.converters.prove.comparison import Comparison, Largest
from onnxreg.converters.prove.float_rounding import Rounding
from onnxreg.converters.prove.formula import UnprovableError
from onnxreg.converters.prove.stored_value import StoredValue, is_readable, read_array

HALF_STEP = 0.5
ARITHMETIC = 2.0**-22
"""Of a code: quantizers divide, or multiply by a reciprocal, and add in float32. Three roundings, each 2**-24 at most."""
HALF_SCALE = 2.0**-10
"""The same if the scale is stored as float16: codes were computed before it was rounded."""
MAX_FAR_SHARE = 0.1
"""If more weights of a tensor than this are farther than a step, it is another tensor."""


def compare(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    """Compare two constants. Raise UnprovableError if the child's is not that of the parent, rounded."""
    name = child.tensor.name
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
        Rounding(comparison, parent, child).run()


def _compare_codes(comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
    if parent.quantization is not None:
        _refuse_other_codes(parent, child)
        return
    if parent.element not in FLOATS:
        raise UnprovableError(f"{child.tensor.name} has codes of a tensor that is not floating point")
    comparison.quantized += child.size
    _Codes(comparison, child.tensor.name, CodeTable(child, parent)).run()


class _Codes:
    """The comparison of one quantized weight."""

    def __init__(self, comparison: Comparison, name: str, table: CodeTable) -> None:
        import numpy as np

        self._to, self._name, self._table = comparison, name, table
        self._low = np.full(table.scales.shape, np.inf)
        self._high = np.full(table.scales.shape, -np.inf)
        self._axes = tuple(at for at, size in enumerate(table.scales.shape) if size == 1)
        self._beyond = self._far = self._clipped = 0
        self._worst = Largest()

    def run(self) -> None:
        import numpy as np

        if not np.isfinite(self._table.scales).all():
            raise UnprovableError(f"{self._name} has a scale that is not a number")
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for rows in self._table.rows():
                self._row(rows)
            self._judge()

    def _row(self, rows: CodeRows) -> None:
        import numpy as np

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
        import numpy as np

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


def _refuse_unequal(parent: StoredValue, child: StoredValue) -> None:
    """Raise UnprovableError, naming the first element, unless two constants have one type and equal bytes."""
    name = child.tensor.name
    if child.element != parent.element:
        raise UnprovableError(f"{name} is {child.element}, in the parent {parent.element}")
    if not (is_readable(child.tensor) and is_readable(parent.tensor)):
        if digest_of(child.tensor) != digest_of(parent.tensor) or child.views or parent.views:
            raise UnprovableError(f"{name} differs from the parent's")
        return
    import numpy as np

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
        if (left.dtype, left.dims) != (right.dtype, right.dims) or digest_of(left) != digest_of(right):
            raise UnprovableError(f"{right.name} differs from the parent's")


def _text(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims)) or "of a scalar"
