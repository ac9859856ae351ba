"""Intervals and tests against published figures and exact enumeration."""

from math import comb

import numpy as np
import pytest

from onnxreg.converters.families.statistics import PairedTest, least_rows, wilson


def test_wilson_against_a_published_figure() -> None:
    """Newcombe, Stat. Med. 17 (1998), table I: 81 of 263 has 0.2553 to 0.3662."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20)[0] == 0.0
    assert wilson(20, 20)[1] == 1.0


def test_mcnemar_is_the_binomial_test() -> None:
    assert PairedTest(100, 0, 0).mcnemar == 1.0
    assert PairedTest(100, 1, 9).mcnemar == pytest.approx(2 * (1 + 10) / 2**10)
    assert PairedTest(100, 9, 1).mcnemar == PairedTest(100, 1, 9).mcnemar
    every = sum(comb(12, k) for k in range(13) if comb(12, k) <= comb(12, 3)) / 2**12
    assert PairedTest(50, 3, 9).mcnemar == pytest.approx(every)


def test_the_paired_interval_covers() -> None:
    """Drawn 2,000 times with a true loss of 3 %, nearly 95 % of the intervals hold it."""
    draws = np.random.default_rng(0).multinomial(400, [0.06, 0.03, 0.91], size=2000)
    hits = sum(
        low <= 0.03 <= high for low, high in (PairedTest(400, int(a), int(b)).interval for a, b, _ in draws)
    )
    assert 0.93 <= hits / 2000 <= 0.98


def test_pairs_are_counted() -> None:
    found = PairedTest.of([True, True, False, False], [True, False, True, True])
    assert (found.rows, found.lost, found.won, found.loss) == (4, 1, 2, -0.25)


def test_rows_for_a_percentile() -> None:
    assert least_rows(95) == 59
    assert 0.95**59 <= 0.05 < 0.95**58
