"""Compare a float16 or bfloat16 constant with the wider one that it was converted from."""

from typing import Any

from onnxreg.converters.prove.codes import CHUNK_ELEMENTS
from onnxreg.converters.prove.comparison import HALF_RULES, Comparison
from onnxreg.converters.prove.formula import UnprovableError
from onnxreg.converters.prove.stored_value import StoredValue, read_array

INFINITE = 1e30
"""A finite number of this magnitude means infinity, as in attention masks: to clip it loses nothing."""
MAX_FAR_SHARE = 0.1


class Rounding:
    """The comparison of one constant, in chunks."""

    def __init__(self, comparison: Comparison, parent: StoredValue, child: StoredValue) -> None:
        self._to, self._child = comparison, child
        self._name = child.tensor.name
        stored = read_array(child.tensor)
        self._dims = stored.shape
        self._one, self._other = child.stored_form(parent.array()).reshape(-1), stored.reshape(-1)
        self._rules = list(comparison.half_rules)
        self._wrong = self._far = 0
        self._first = -1

    def run(self) -> None:
        import numpy as np

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
        import numpy as np

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
        import numpy as np

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
        import numpy as np

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


def _nearest(wide: Any, kind: str) -> Any:
    """The nearest value of a type, ties to even; bfloat16 as float32."""
    import numpy as np

    if kind != "bfloat16":
        return wide.astype({"float16": np.float16, "float32": np.float32, "float64": np.float64}[kind])
    bits = np.ascontiguousarray(wide, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(wide), np.float32("nan"), rounded.view(np.float32))
