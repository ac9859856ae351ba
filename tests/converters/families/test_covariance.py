"""What carries a covariance is told from what only looks as if it did: before shrinking, which would hide it."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.converters.families.detector import estimate_covariance
from onnxreg.schema.core.errors import InputError

DIMENSION = 32


def draw(count: int = 400, width: int = DIMENSION) -> np.ndarray:
    """Correlated rows, float32."""
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(width, width))
    return (generator.normal(size=(count, width)) @ mixing).astype(np.float32)


def normed(rows: np.ndarray) -> np.ndarray:
    """Behind a layer norm with trained weights and offsets, as float32 computes it."""
    generator = np.random.default_rng(1)
    exact = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    weight, offset = (generator.normal(size=rows.shape[1]).astype(np.float32) for _ in range(2))
    return np.asarray(exact * weight + offset)


def of_rank(rank: int) -> np.ndarray:
    """Rows that follow from `rank` of their dimensions, but for what float32 rounds."""
    return np.asarray(draw()[:, :rank] @ np.random.default_rng(2).normal(size=(rank, DIMENSION))).astype(
        np.float32
    )


def constant() -> np.ndarray:
    rows = draw()
    rows[:, 3] = 0.1
    return rows


def jittered() -> np.ndarray:
    """A dimension that computing alone makes vary."""
    rows = draw()
    rows[:, 3] = np.float32(0.1) * (1 + 1e-7 * (np.arange(len(rows)) % 2))
    return rows


def twice() -> np.ndarray:
    rows = draw()
    rows[:, 3] = rows[:, 4]
    return rows


def few_rows_with_noise() -> np.ndarray:
    """Eight rows, each fifty times, told apart in the last digits alone."""
    rows = np.repeat(draw(8), 50, axis=0)
    return np.asarray(rows * (1 + 1e-7 * np.random.default_rng(3).normal(size=rows.shape))).astype(np.float32)


DEGENERATE: dict[str, tuple[Callable[[], np.ndarray], float | None, str]] = {
    "a constant dimension": (constant, None, "ood: dimension 3 of the fitted embeddings is constant"),
    "a constant dimension, all shrunk": (constant, 1.0, "ood: dimension 3"),
    "a dimension of rounding": (jittered, None, "ood: dimension 3 of the fitted embeddings is constant"),
    "half the rank": (lambda: of_rank(16), None, "singular: rank 16 of 32, at least 31 is asked for"),
    "two dimensions lost": (lambda: of_rank(30), 0.5, "singular: rank 30 of 32"),
    "few rows, repeated": (few_rows_with_noise, None, "singular: rank 7 of 32"),
    "equal dimensions, not shrunk": (twice, 0.0, "singular: rank 31 of 32, at least 32 is asked for"),
    "a layer norm, not shrunk": (lambda: normed(draw()), 0.0, "singular: rank 31 of 32"),
    "hardly shrunk": (twice, 1e-18, "singular, even once it was shrunk"),
}


@pytest.mark.parametrize("what", DEGENERATE)
def test_a_degenerate_fit_is_refused(what: str) -> None:
    rows, shrinkage, message = DEGENERATE[what]
    with pytest.raises(InputError, match=message):
        estimate_covariance(rows(), shrinkage)


def test_the_dimension_that_a_layer_norm_takes_is_carried_by_shrinkage() -> None:
    found = estimate_covariance(normed(draw()))
    assert found.rank == DIMENSION - 1
    assert 0 < found.shrinkage < 1
    assert 1 < found.condition < 1e6


def test_a_full_covariance_needs_no_shrinkage() -> None:
    found = estimate_covariance(draw(), 0.0)
    assert (found.rank, found.shrinkage) == (DIMENSION, 0.0)
    scale = draw().astype(np.float64)
    assert found.condition == pytest.approx(np.linalg.cond(np.corrcoef(scale.T)), rel=1e-6)


def test_shrinkage_is_what_ledoit_and_wolf_say() -> None:
    """Their estimate falls with the rows; its value for identity covariance tends to 1."""
    few, many = (estimate_covariance(draw(count)).shrinkage for count in (64, 6400))
    assert 0 < many < few < 1
    sphere = np.random.default_rng(8).normal(size=(500, DIMENSION))
    assert estimate_covariance(sphere).shrinkage > 0.9


@given(st.lists(st.floats(-6, 6), min_size=8, max_size=8))
def test_rank_and_condition_do_not_depend_on_the_units_of_a_dimension(powers: list[float]) -> None:
    rows = draw(width=8).astype(np.float64)
    plain, scaled = estimate_covariance(rows, 0.0), estimate_covariance(rows * 10.0 ** np.array(powers), 0.0)
    assert plain.rank == scaled.rank == 8
    assert scaled.condition == pytest.approx(plain.condition, rel=1e-6)
