"""Whether measured numbers are the same for all that counts, on machines that add in another order."""

from collections.abc import Iterator, Mapping
from typing import Any

RATE = 0.002
"""Rates (recall, agreement, cosine) may differ by this: less than half of the recall that certification allows to lose."""
DISTANCE = 0.1
"""Distances (the largest difference of logits and the like) may differ by this share, or by `RATE`."""
MEASURED = frozenset({"quant_recall_delta", "min_row_cosine"})
"""Keys whose numbers are measured wherever they stand."""
TOLD = frozenset({"reasons"})
"""Sentences that repeat numbers; what they are about is compared itself."""

Difference = tuple[str, Any, Any]
"""Where, and the two values; None where there is none."""


def near(metric: str, old: float | None, new: float | None) -> bool:
    """Whether two values of a metric are the same within tolerance."""
    if old is None or new is None:
        return old is new
    share = DISTANCE * abs(old) if "diff" in metric else 0.0
    return abs(old - new) <= max(RATE, share)


def differences(old: Any, new: Any, numbers: bool = False, at: str = "") -> Iterator[Difference]:
    """Where two JSON values differ: numbers that are measured by more than a tolerance, everything else at all.

    With `numbers` every number with a fraction is measured. The `data` of a tensor is measured against its own `atol` and
    `rtol` (docs/golden.md), where it has them.
    """
    key = at.rpartition(".")[2]
    if key in TOLD:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        if {"data", "atol", "rtol"} <= old.keys() & new.keys():
            yield from _tensors(old, new, at)
            return
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name), new.get(name), numbers, f"{at}.{name}" if at else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, numbers or key in MEASURED, f"{at}[{number}]")
    elif _are_measured(old, new, numbers or key in MEASURED):
        if not near(key, old, new):
            yield at, old, new
    elif old != new or type(old) is not type(new):
        yield at, old, new


def _are_measured(old: Any, new: Any, measured: bool) -> bool:
    """A number that is whole in both is a count, not a measurement."""
    kinds = {type(old), type(new)}
    return measured and float in kinds and kinds <= {int, float}


def _tensors(old: Mapping[str, Any], new: Mapping[str, Any], at: str) -> Iterator[Difference]:
    atol, rtol = old["atol"], old["rtol"]
    same = (old.get("shape"), old.get("dtype"), rtol) == (new.get("shape"), new.get("dtype"), new["rtol"])
    pairs = zip(old["data"], new["data"], strict=False)
    if not same or any(abs(b - a) > atol + rtol * abs(a) for a, b in pairs):
        yield f"{at}.data", None, None
