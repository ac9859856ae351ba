"""Comparison of measured numbers within a tolerance, for machines that add in another order."""

from collections.abc import Iterator, Mapping
from typing import Any

RATE_TOLERANCE = 0.002
"""Rates (recall, agreement, cosine) may differ by this: less than half of the recall that certification allows to lose."""
DISTANCE_SHARE = 0.1
"""Distances (the largest difference of logits and the like) may differ by this share, or by `RATE_TOLERANCE`."""
MEASURED_KEYS = frozenset({"atol", "least", "min_row_cosine", "quant_recall_delta"})
"""Keys whose numbers are measured, at any depth."""
DISTANCE_KEYS = frozenset({"atol", "least"})
SKIPPED_KEYS = frozenset({"reasons"})
"""Sentences that repeat numbers, which are compared themselves."""

ValueDifference = tuple[str, Any, Any]
"""A path, and the two values; None for a missing one."""


def is_near(metric: str, old: float | None, new: float | None) -> bool:
    """True if two values of a metric are the same within tolerance."""
    if old is None or new is None:
        return old is new
    share = DISTANCE_SHARE * abs(old) if "diff" in metric or metric in DISTANCE_KEYS else 0.0
    return abs(old - new) <= max(RATE_TOLERANCE, share)


def differences(old: Any, new: Any, metric: str = "", at: str = "") -> Iterator[ValueDifference]:
    """Yield the differences of two JSON values: measured numbers only beyond a tolerance, other values always.

    With a `metric` every number that is not whole in both is measured by it; without, those under the keys `MEASURED_KEYS`. The
    `data` of a tensor is compared by its own `atol` and `rtol` (docs/golden.md), if it has them.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        if {"data", "atol", "rtol"} <= old.keys() & new.keys():
            yield from _tensors(old, new, at)
            return
        for name in dict.fromkeys([*old, *new]):
            if name not in SKIPPED_KEYS:
                inner = name if name in MEASURED_KEYS else metric
                yield from differences(old.get(name), new.get(name), inner, f"{at}.{name}" if at else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, metric, f"{at}[{number}]")
    elif metric and _are_numbers(old, new) and float in (type(old), type(new)):
        if not is_near(metric, old, new):
            yield at, old, new
    elif old != new or type(old) is not type(new):
        yield at, old, new


def _are_numbers(*values: Any) -> bool:
    return all(type(value) in (int, float) for value in values)


def _tensors(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[ValueDifference]:
    """Tensors of one shape, type and `rtol`; the recorded `atol` counts."""
    keys = {"dtype", "shape", "rtol"}
    same = all(old.get(key) == new.get(key) for key in keys)
    if not same or not _are_close(old["data"], new["data"], old["atol"], old["rtol"]):
        yield f"{at}.data", None, None


def _are_close(old: Any, new: Any, atol: Any, rtol: Any) -> bool:
    lists = isinstance(old, list) and isinstance(new, list) and len(old) == len(new)
    if not lists or not _are_numbers(atol, rtol, *old, *new):
        return False
    return all(abs(b - a) <= atol + rtol * abs(a) for a, b in zip(old, new, strict=True))
