"""The interval of a change, against the figures of the papers and against a simulation."""

import numpy as np
import pytest

from onnxreg.schema.compare.figures import difference, own_interval, wilson
from onnxreg.schema.manifest.parts import Check


def test_wilson_is_that_of_newcombes_first_example() -> None:
    """Newcombe, Statistics in Medicine 17, 1998, p. 857: 81 of 263 gives 0.2553 to 0.3662."""
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_the_difference_is_that_of_newcombes_example() -> None:
    """The same volume, p. 873, method 10: 56/70 - 48/80 gives 0.0524 to 0.3339."""
    old, new = 48 / 80, 56 / 70
    found = difference(old, wilson(old, 80), new, wilson(new, 70))
    assert found == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_the_reverse_mirrors() -> None:
    one, other = (0.9, (0.85, 0.93)), (0.97, (0.92, 0.99))
    low, high = difference(*one, *other)
    assert difference(*other, *one) == pytest.approx((-high, -low))


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Of 2,000 pairs of independent suites about 95 % have the true difference in their interval."""
    draws = np.random.default_rng(5)
    old, new, spans = 0.95, 0.92, 150
    covered = 0
    for before, after in draws.binomial(spans, [old, new], (2000, 2)) / spans:
        low, high = difference(before, wilson(before, spans), after, wilson(after, spans))
        covered += low <= new - old <= high
    assert 0.93 <= covered / 2000 <= 0.98


def check(metric: str, value: float | None, **fields: object) -> Check:
    return Check.from_json({"name": metric, "metric": metric, "value": value, "verdict": "info", **fields})


def test_only_a_share_has_an_interval_of_its_samples() -> None:
    assert own_interval(check("accuracy", 0.9, samples=100)) == wilson(0.9, 100)
    assert own_interval(check("spearman", 0.9, samples=100)) is None
    assert own_interval(check("accuracy", None, samples=100)) is None
    assert own_interval(check("accuracy", 0.9)) is None
    assert own_interval(check("spearman", 0.9, interval=[0.8, 0.95])) == (0.8, 0.95)
