"""The rules by which quantizers choose scales and zero points from the weights of a tensor, channel or block."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOAT32_ROUNDING = 2.0**-20
"""Relative: a scale is a few float32 operations on the extremes of its weights."""
FLOAT16_ROUNDING = 2.0**-10
"""Relative: the same, stored as float16 or bfloat16."""
SMALLEST_SCALE = 2.0**-126
"""A scale below the smallest normal float32 becomes one."""


@dataclass(frozen=True)
class Extremes:
    """The smallest and the largest weight for each scale, and the scales, zero points and limits of codes."""

    low: Any
    high: Any
    scales: Any
    zeros: Any
    limits: tuple[int, int]

    @property
    def wide(self) -> tuple[Any, Any]:
        """The extremes, zero among them."""
        return np.minimum(self.low, 0), np.maximum(self.high, 0)


ScaleRule = Callable[[Extremes], tuple[Any, Any]]
"""The scales that a rule gives, and whether the zero points are its own."""


def _symmetric(steps: int) -> ScaleRule:
    """Twice the largest magnitude by so many steps, and the zero point in the middle of its codes."""

    def scales(of: Extremes) -> tuple[Any, Any]:
        low, high = of.wide
        least, most = of.limits
        middles = {0} if least < 0 else {(most + 1) // 2, most // 2, steps // 2}
        return 2 * np.maximum(-low, high) / steps, np.isin(of.zeros, sorted(middles))

    return scales


def _range(steps: int) -> ScaleRule:
    """The range of the weights and zero by so many steps; the zero point is the code of zero, rounded."""

    def scales(of: Extremes) -> tuple[Any, Any]:
        low, high = of.wide
        least = of.limits[0]
        starts = {least} if least == 0 else {least, -(steps + 1) // 2, -(steps // 2)}
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = -low / of.scales
            fits = [np.abs(of.zeros - (start + exact)) <= 0.5 + 2.0**-12 for start in starts]
        return (high - low) / steps, np.logical_or.reduce(fits)

    return scales


def _extreme(codes: int) -> ScaleRule:
    """The weight of the largest magnitude, with its sign, is the smallest code: the other end may be clipped."""

    def scales(of: Extremes) -> tuple[Any, Any]:
        low, high = of.wide
        exact = np.where(high > -low, high, low) / -codes
        middle = 0 if of.limits[0] < 0 else codes
        own = of.zeros == middle
        return np.where((high == -low) & (of.scales > 0), -exact, exact), own

    return scales


_NAMES = """
symmetric/254 symmetric/255 symmetric/128 range/255 range/254 range/128 range/127 extreme/128
symmetric/14 symmetric/15 range/15 range/14 extreme/8 symmetric/65534 range/65535
"""
_KINDS = {"symmetric": _symmetric, "range": _range, "extreme": _extreme}
RULES: dict[str, ScaleRule] = {
    name: _KINDS[kind](int(steps)) for name in _NAMES.split() for kind, _, steps in [name.partition("/")]
}
"""`symmetric/254`: twice the largest magnitude by 254 steps, and so on; docs/prove.md says who uses which."""


def matching(of: Extremes, scale_type: str) -> Iterator[str]:
    """Yield the names of the rules that give every scale and zero point."""
    tolerance = FLOAT32_ROUNDING if scale_type in ("float32", "float64") else FLOAT16_ROUNDING
    steps = of.limits[1] - of.limits[0]
    empty = (of.low == 0) & (of.high == 0)
    for name, rule in RULES.items():
        if int(name.split("/")[1]) > steps + 1 or int(name.split("/")[1]) * 4 < steps:
            continue
        scales, own = rule(of)
        near = np.abs(scales - of.scales) <= tolerance * np.abs(scales)
        tiny = (np.abs(scales) < SMALLEST_SCALE) & (of.scales == 1)
        if bool(np.all(empty | ((near | tiny) & own))):
            yield name
