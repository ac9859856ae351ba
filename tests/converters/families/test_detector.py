"""The detector rejects what it says it rejects, and is not fitted on what cannot carry it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from support.families.seeded import embedded

from onnxreg.converters.families import detector as subject
from onnxreg.converters.families.detector import Detector, detector_graph, detector_tensors
from onnxreg.converters.passes.tools import model_file
from onnxreg.schema.core.errors import InputError

DIMENSION = 32


def draw(count: int, seed: int, shift: float = 0.0) -> np.ndarray:
    """Correlated rows, float32."""
    mixing = np.random.default_rng(0).normal(size=(DIMENSION, DIMENSION))
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(count, DIMENSION)) @ mixing + shift).astype(np.float32)


def fit(rows: np.ndarray, held_out: np.ndarray, *options: float) -> Detector:
    return subject.fit(embedded(rows, "fit.npz"), embedded(held_out, "calibrate.npz"), *options)


@pytest.fixture(scope="module")
def detector() -> Detector:
    return fit(draw(2000, 1), draw(1000, 2), 95.0)


def test_fresh_rows_are_rejected_as_often_as_it_says() -> None:
    """Of 60 detectors with other held-out rows, nearly 95 % say an interval that holds their true rate."""
    rows, fresh, covered = draw(2000, 1), draw(20_000, 3), 0
    for seed in range(100, 160):
        detector = fit(rows, draw(400, seed), 95.0)
        _, (low, high) = detector.false_rejection
        covered += low <= (detector.distances(fresh) > detector.threshold).mean() <= high
    assert covered >= 0.85 * 60


def test_shifted_rows_are_rejected(detector: Detector) -> None:
    assert (detector.distances(draw(1000, 4, shift=30.0)) > detector.threshold).mean() > 0.99


def test_the_graph_agrees_with_float64(detector: Detector) -> None:
    graph = detector_graph(detector, 18)
    onnx.checker.check_model(graph, full_check=True)
    rows = np.concatenate([draw(500, 5), draw(500, 6, shift=5.0)])
    distance, verdict = model_file.session(graph).run(None, {"embedding": rows})
    exact = detector.distances(rows)
    assert np.abs(distance / exact - 1).max() < 1e-5
    clear = np.abs(exact / detector.threshold - 1) > 1e-5
    assert np.array_equal(verdict[clear], (exact <= detector.threshold)[clear])
    assert clear.mean() > 0.99


def test_the_tensors_are_the_detector(detector: Detector) -> None:
    tensors = detector_tensors(detector)
    rows = draw(10, 7)
    again = np.linalg.norm((rows.astype(np.float64) - tensors["mean"]) @ tensors["whitening"], axis=1)
    assert np.allclose(again, detector.distances(rows), rtol=1e-12)
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.float64)}


def test_without_shrinkage_the_distance_is_mahalanobis() -> None:
    rows, held_out = draw(2000, 1), draw(200, 2)
    plain = fit(rows, held_out, 95.0, 0.0)
    exact = rows.astype(np.float64)
    inverse = np.linalg.inv(np.cov(exact.T, bias=True))
    away = held_out - exact.mean(axis=0)
    expected = np.sqrt(np.einsum("nd,de,ne->n", away, inverse, away))
    assert np.allclose(plain.distances(held_out), expected)


def broken() -> np.ndarray:
    rows = draw(400, 1)
    rows[5, 5] = np.nan
    return rows


Case = tuple[Callable[[], tuple[Any, ...]], str]
REFUSED: dict[str, Case] = {
    "too few rows": (
        lambda: (draw(DIMENSION, 1), draw(200, 2), 95.0),
        "ood: fit.npz has 32 distinct rows for 32 dimensions: too few",
    ),
    "too few held out": (
        lambda: (draw(400, 1), draw(58, 2), 95.0),
        "ood: calibrate.npz has 58 distinct rows: too few",
    ),
    "few rows, repeated": (
        lambda: (np.repeat(draw(6, 1), 50, axis=0), draw(200, 2), 95.0),
        "ood: fit.npz has 6 distinct rows for 32 dimensions: too few",
    ),
    "one held-out row, repeated": (
        lambda: (draw(400, 1), np.repeat(draw(1, 2), 59, axis=0), 95.0),
        "ood: calibrate.npz has 1 distinct rows: too few",
    ),
    "its own held-out set": (
        lambda: (draw(400, 1), draw(400, 1), 95.0),
        "ood: calibrate.npz and fit.npz are one set",
    ),
    "one shared row": (
        lambda: (draw(400, 1), np.concatenate([draw(99, 2), draw(1, 1)]), 95.0),
        "ood: calibrate.npz shares 1 of its 100 rows with fit.npz",
    ),
    "nan": (lambda: (broken(), draw(200, 2), 95.0), "ood: an embedding of fit.npz holds NaN"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_scores_without_a_threshold_are_refused(what: str) -> None:
    arguments, message = REFUSED[what]
    with pytest.raises(InputError, match=message):
        fit(*arguments())
