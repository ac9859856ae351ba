"""The detector rejects what it says it rejects, and is not fitted on what cannot carry it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.graphs import graph, read

from onnxreg.converters.families.detector import (
    Detector,
    Rows,
    detector_graph,
    embed,
    estimate_covariance,
    fit,
    keys_of,
    rejection,
)
from onnxreg.converters.passes import models
from onnxreg.schema.core.errors import InputError

DIMENSION = 32


def draw(count: int = 400, seed: int = 0, shift: float = 0.0, width: int = DIMENSION) -> np.ndarray:
    """Correlated rows, float32."""
    mixing = np.random.default_rng(0).normal(size=(width, width))
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(count, width)) @ mixing + shift).astype(np.float32)


def embedded(rows: np.ndarray, name: str = "rows.npz") -> Rows:
    """Rows as if they had come out of a backbone."""
    return Rows(name, "sha256:" + "0" * 64, keys_of(rows), rows)


def fitted(rows: np.ndarray, held_out: np.ndarray, shrinkage: Any = None) -> Detector:
    return fit(embedded(rows, "fit.npz"), embedded(held_out, "calibrate.npz"), 95.0, shrinkage)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return fitted(draw(2000, 1), draw(1000, 2))


def session_of(detector: Detector, opset: int = 18) -> Any:
    made = detector_graph(detector, "embedding", opset)
    onnx.checker.check_model(models.to_proto(made), full_check=True)
    return models.session(made)


@pytest.mark.more
def test_fresh_rows_are_rejected_as_often_as_it_says():
    """Of 60 detectors with other held-out rows, nearly 95 % say an interval that holds their true rate."""
    rows, fresh, covered = draw(2000, 1), draw(20_000, 3), 0
    for seed in range(100, 160):
        detector = fitted(rows, held_out := draw(400, seed))
        rejected = int((detector.covariance.distances(held_out) > detector.threshold).sum())
        low, high = detector.record(rejected)["false_rejection_interval"]
        covered += low <= (detector.covariance.distances(fresh) > detector.threshold).mean() <= high
    assert covered >= 0.85 * 60


@pytest.mark.parametrize("opset", [17, 18])
def test_the_graph_agrees_with_float64_and_rejects_shifted_rows(detector, opset):
    rows = np.concatenate([draw(500, 5), draw(500, 6, shift=30.0)])
    distance, verdict = session_of(detector, opset).run(None, {"embedding": rows})
    exact = detector.covariance.distances(rows)
    assert np.abs(distance / exact - 1).max() < 1e-5
    clear = np.abs(exact / detector.threshold - 1) > 1e-5
    assert np.array_equal(verdict[clear], (exact <= detector.threshold)[clear])
    assert clear.mean() > 0.99
    assert verdict[500:].mean() < 0.01


def test_a_rate_is_that_of_the_graph_and_not_of_float64():
    """With a spread of 1e-4 around 1000, float32 tells only steps of 6e-5 apart: the graph and float64 disagree on some rows."""
    generator = np.random.default_rng(1)
    rows, held_out, fresh = (1000.00003 + 1e-4 * generator.normal(size=(n, 8)) for n in (500, 200, 4000))
    detector = fitted(rows, held_out)
    session, narrow = session_of(detector), fresh.astype(np.float32)
    (inside,) = session.run(["in_distribution"], {"embedding": narrow})
    found = rejection(session, embedded(narrow), "fresh rows", "false_rejection_rate")
    assert found["value"] == pytest.approx((~inside).mean(), abs=1e-6)
    assert found["value"] != (detector.covariance.distances(narrow) > detector.threshold).mean()


def test_a_detector_that_misses_outliers_fails_and_the_interval_has_the_rate(detector):
    session, metric = session_of(detector), "true_positive_rate"
    alike, far = (
        rejection(session, embedded(draw(300, 9, shift)), "x", metric, 0.9) for shift in (0.0, 50.0)
    )
    assert (alike["verdict"], far["verdict"], far["value"], far["samples"]) == ("fail", "pass", 1.0, 300)
    assert far["interval"][0] <= far["value"] <= far["interval"][1]


def test_without_shrinkage_the_distance_is_mahalanobis():
    rows, held_out = draw(2000, 1), draw(200, 2)
    exact = rows.astype(np.float64)
    inverse = np.linalg.inv(np.cov(exact.T, bias=True))
    away = held_out - exact.mean(axis=0)
    expected = np.sqrt(np.einsum("nd,de,ne->n", away, inverse, away))
    assert np.allclose(fitted(rows, held_out, shrinkage=0.0).covariance.distances(held_out), expected)


def broken() -> np.ndarray:
    rows = draw(400, 1)
    rows[5, 5] = np.nan
    return rows


def normed(rows: np.ndarray) -> np.ndarray:
    """Behind a layer norm with trained weights and offsets, as float32 computes it."""
    generator = np.random.default_rng(1)
    exact = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    weight, offset = (generator.normal(size=rows.shape[1]).astype(np.float32) for _ in range(2))
    return np.asarray(exact * weight + offset)


def of_rank(rank: int) -> np.ndarray:
    """Rows that follow from `rank` of their dimensions, but for what float32 rounds."""
    mixing = np.random.default_rng(2).normal(size=(rank, DIMENSION))
    return np.asarray(draw()[:, :rank] @ mixing).astype(np.float32)


def with_third(column: Any) -> np.ndarray:
    rows = draw()
    rows[:, 3] = column
    return rows


def few_rows_with_noise() -> np.ndarray:
    """Eight rows, each fifty times, told apart in the last digits alone."""
    rows = np.repeat(draw(8), 50, axis=0)
    return np.asarray(rows * (1 + 1e-7 * np.random.default_rng(3).normal(size=rows.shape))).astype(np.float32)


jitter = np.float32(0.1) * (1 + 1e-7 * (np.arange(400) % 2))
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "too few rows": (lambda: fitted(draw(DIMENSION, 1), draw(200, 2)), "ood: fit.npz has 32 distinct rows"),
    "too few held out": (lambda: fitted(draw(400, 1), draw(58, 2)), "ood: calibrate.npz has 58 distinct rows"),
    "few rows, repeated": (lambda: fitted(np.repeat(draw(6, 1), 50, axis=0), draw(200, 2)), "ood: fit.npz has 6 distinct"),
    "one row, repeated": (lambda: fitted(draw(400, 1), np.repeat(draw(1, 2), 59, axis=0)), "ood: calibrate.npz has 1 distinct"),
    "its own held-out set": (lambda: fitted(draw(400, 1), draw(400, 1)), "ood: calibrate.npz shares 400 of its rows"),
    "one shared row": (lambda: fitted(draw(400, 1), np.concatenate([draw(99, 2), draw(1, 1)])), "ood: calibrate.npz shares 1 of"),
    "nan": (lambda: fitted(broken(), draw(200, 2)), "ood: an embedding of fit.npz holds NaN"),
    "a constant dimension": (lambda: estimate_covariance(with_third(0.1), None), "dimension 3 of the fitted embeddings is constant"),
    "a constant dimension, all shrunk": (lambda: estimate_covariance(with_third(0.1), 1.0), "dimension 3"),
    "a dimension of rounding": (lambda: estimate_covariance(with_third(jitter), None), "dimension 3 of the fitted embeddings is constant"),
    "half the rank": (lambda: estimate_covariance(of_rank(16), None), "rank 16 of 32, at least 31 is asked for"),
    "two dimensions lost": (lambda: estimate_covariance(of_rank(30), 0.5), "rank 30 of 32"),
    "few rows, repeated with noise": (lambda: estimate_covariance(few_rows_with_noise(), None), "rank 7 of 32"),
    "equal dimensions, not shrunk": (lambda: estimate_covariance(with_third(draw()[:, 4]), 0.0), "rank 31 of 32, at least 32 is asked for"),
    "a layer norm, not shrunk": (lambda: estimate_covariance(normed(draw()), 0.0), "rank 31 of 32"),
    "hardly shrunk": (lambda: estimate_covariance(with_third(draw()[:, 4]), 1e-18), "singular, even once it was shrunk"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_rows_that_give_no_threshold_or_a_degenerate_fit_are_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(InputError, match=message):
        make()


def test_shrinkage_is_what_ledoit_and_wolf_say_and_carries_what_a_layer_norm_takes():
    """Their estimate falls with the rows; its value for identity covariance tends to 1."""
    few, many = (estimate_covariance(draw(count)).shrinkage for count in (64, 6400))
    assert 0 < many < few < 1
    sphere = np.random.default_rng(8).normal(size=(500, DIMENSION))
    assert estimate_covariance(sphere).shrinkage > 0.9
    found = estimate_covariance(normed(draw()))
    assert (found.rank, 0 < found.shrinkage < 1, 1 < found.condition < 1e6) == (DIMENSION - 1, True, True)


@given(st.lists(st.floats(-6, 6), min_size=8, max_size=8))
def test_rank_and_condition_do_not_depend_on_the_units_of_a_dimension(powers):
    rows = draw(width=8).astype(np.float64)
    plain, scaled = estimate_covariance(rows, 0.0), estimate_covariance(rows * 10.0 ** np.array(powers), 0.0)
    assert plain.rank == scaled.rank == 8
    assert plain.condition == pytest.approx(np.linalg.cond(np.corrcoef(rows.T)), rel=1e-6)
    assert scaled.condition == pytest.approx(plain.condition, rel=1e-6)


WIDTH = 12


@pytest.fixture
def rows_of(tmp_path: Path) -> Callable[..., Rows]:
    """Read the rows of a file; the backbone flattens images `[n, 3, 2, 2]` into embeddings."""
    flat = graph("embedding = Flatten(input)", "float[n, 3, 2, 2] input", f"float[n, {WIDTH}] embedding")
    session = models.session(read(flat))
    return lambda name, images=False: embed(session, "embedding", tmp_path / name, images)


def images(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(count, 3, 2, 2)).astype(np.float32)


BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "one axis": ({"embedding": np.ones(5, np.float32)}, "rows.npz: embedding is float32"),
    "another width": ({"embedding": np.ones((5, 9), np.float32)}, "rows.npz: embedding is float32"),
    "no embeddings": ({"embedding": np.ones((0, WIDTH), np.float32)}, "rows.npz: embedding is float32"),
    "words": ({"embedding": np.array([["a"] * WIDTH] * 5)}, "rows.npz: embedding is <U1"),
    "beyond float32": ({"embedding": np.full((5, WIDTH), 1e300)}, "rows.npz: embedding holds NaN"),
    "another size": ({"input": np.zeros((5, 3, 4, 4), np.float32)}, "rows.npz: input is float32"),
    "neither": ({"pixels": images(3)}, "rows.npz has neither an array called input"),
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_rows_of_another_shape_are_refused_by_their_file(rows_of, tmp_path, what):
    arrays, message = BAD_ROWS[what]
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(InputError, match=f"^{message}"):
        rows_of("rows.npz")


def test_stored_embeddings_stand_in_for_images_only_where_asked(rows_of, tmp_path):
    np.savez(tmp_path / "rows.npz", input=images(70), embedding=np.zeros((70, WIDTH), np.float32))
    stored, made = rows_of("rows.npz"), rows_of("rows.npz", images=True)
    assert not stored.embeddings.any()
    assert np.array_equal(made.embeddings, images(70).reshape(70, -1))
    assert (stored.stored, made.stored) == (True, False)


@pytest.mark.parametrize("kind", ["input", "embedding"])
def test_rows_that_made_the_detector_measure_nothing(rows_of, tmp_path, kind):
    used = images(5)
    half = np.concatenate([images(3, seed=1), used[:2]])
    np.savez(tmp_path / "fit.npz", input=used)
    np.savez(tmp_path / "other.npz", input=images(5, seed=1))
    np.savez(tmp_path / "half.npz", **{kind: half if kind == "input" else half.reshape(5, -1)})
    fit_rows = rows_of("fit.npz")
    rows_of("other.npz").check_apart(fit_rows)
    with pytest.raises(InputError, match=r"half\.npz shares 2 of its rows with fit\.npz"):
        rows_of("half.npz").check_apart(fit_rows)
