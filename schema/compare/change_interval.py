"""The 95 % interval of a change between two versions, from what each version published about itself.

Nothing that is published can be paired: item scores are sorted, so that no row can be tied to an item. So both
versions count as measured on independent texts. They were measured on the same ones, so a paired interval would
usually be narrower.
"""

from math import hypot, sqrt

from onnxreg.schema.manifest.evidence import Check

Interval = tuple[float, float]
Z = 1.959964
"""The 97.5 % quantile of the normal distribution."""
PROPORTIONS = frozenset({"character_recall", "accuracy", "top_1", "top_5", "exact_match", "completion_match"})
"""Metrics that are a share of spans, texts or rows."""


def wilson(share: float, samples: int) -> Interval:
    """The score interval of a share of independent samples (Wilson, JASA 22, 1927)."""
    spread = Z * sqrt(share * (1 - share) / samples + Z * Z / (4 * samples * samples))
    middle, total = share + Z * Z / (2 * samples), 1 + Z * Z / samples
    return (middle - spread) / total, (middle + spread) / total


def difference(old: float, old_interval: Interval, new: float, new_interval: Interval) -> Interval:
    """The interval of `new - old` from those of two independent figures (Zou and Donner, Statistics in Medicine 27,
    2008; for shares with Wilson's intervals it is Newcombe's).

    A figure outside its own interval, as the bootstrap may give, counts as an end of it.
    """
    low = hypot(max(new - new_interval[0], 0.0), max(old_interval[1] - old, 0.0))
    high = hypot(max(new_interval[1] - new, 0.0), max(old - old_interval[0], 0.0))
    return new - old - low, new - old + high


def own_interval(check: Check) -> Interval | None:
    """The published interval of a figure, else that of a share of its samples; None if it has neither."""
    if check.interval is not None:
        return check.interval
    is_share = check.metric in PROPORTIONS and check.value is not None and 0 <= check.value <= 1
    return (
        wilson(check.value, check.samples) if is_share and check.value is not None and check.samples else None
    )
