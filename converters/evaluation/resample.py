"""Confidence intervals by the bootstrap: groups of items are drawn with replacement.

Items of one group are not independent, so whole groups are drawn (cluster bootstrap; Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, ch. 8). The generator is NumPy's legacy one, whose stream is frozen.
"""

from collections.abc import Callable, Iterator

import numpy as np

from onnxreg.converters.evaluation.scores import Floats, Integers, ScoreTable

RESAMPLES = 1000
SEED = 0
LEVEL = 0.95

Interval = tuple[float, float]


def paired_interval(table: ScoreTable, loss: Callable[[Floats, Floats], float]) -> Interval | None:
    """The 95 % percentile interval of a loss; None if no resample gives a number.

    Args:
        loss: from the rows of the parent and of the candidate, which are resampled together.
    """
    losses = [
        loss(table.parent[rows], table.candidate[rows]) for rows in draws(table.groups, table.group_count)
    ]
    return percentiles(np.array(losses, dtype=np.float64))


def draws(groups: Integers, count: int) -> Iterator[Integers]:
    """Yield the rows of each resample. `groups` is sorted."""
    if not count:
        return
    generator = np.random.RandomState(SEED)
    starts = np.searchsorted(groups, np.arange(count + 1))
    rows = np.arange(len(groups))
    for _ in range(RESAMPLES):
        chosen = generator.randint(0, count, count, dtype=np.int64)
        if count == len(groups):
            yield chosen
        else:
            yield np.concatenate([rows[starts[group] : starts[group + 1]] for group in chosen])


def percentiles(values: Floats) -> Interval | None:
    """The central 95 % of what is not NaN; None if nothing is left, or a value is infinite."""
    values = values[~np.isnan(values)]
    if not len(values) or np.isinf(values).any():
        return None
    low, high = np.quantile(values, (0.025, 0.975)).tolist()
    return low, high
