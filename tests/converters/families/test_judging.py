"""What a reduced precision may lose, and how often a detector rejects what."""

import numpy as np
import pytest
from support.families.seeded import embedded

from onnxreg.converters.families import judge_family
from onnxreg.converters.families.detector import detector_graph, fit
from onnxreg.converters.families.rows import HeldOut
from onnxreg.converters.passes.tools import model_file
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.family_file import FamilyLimits

LIMITS = FamilyLimits()


def truth(rows: int) -> judge_family.Truth:
    return judge_family.Truth(np.zeros(rows, np.int64), "sha256:" + "0" * 64)


def verdict(rows: int, lost: int, won: int, limits: FamilyLimits = LIMITS) -> str:
    before = [True] * (rows - won) + [False] * won
    after = [False] * lost + [True] * (rows - lost)
    check, test = judge_family.accuracy_loss(before, after, "logits", truth(rows), limits)
    assert check["value"] == pytest.approx((lost - won) / rows, abs=1e-6)
    assert check["samples"] == test["samples"] == rows
    assert test["metric"] == "mcnemar_p"
    return str(check["verdict"])


def test_a_loss_above_the_limit_fails() -> None:
    assert verdict(1000, lost=11, won=0) == "fail"
    assert verdict(1000, lost=30, won=10) == "fail"


def test_a_loss_passes_where_its_whole_interval_is_within_the_limit() -> None:
    assert verdict(10_000, lost=20, won=10) == "pass"
    assert verdict(1000, lost=0, won=0) == "pass"


def test_too_few_rows_prove_nothing() -> None:
    assert verdict(100, lost=0, won=0) == "unknown"
    assert verdict(1000, lost=9, won=0) == "unknown"


def test_a_lifted_limit_only_informs() -> None:
    assert verdict(100, lost=50, won=0, limits=FamilyLimits(accuracy_loss=None)) == "info"


def test_without_rows_nothing_is_claimed() -> None:
    assert judge_family.accuracy([], "logits", truth(0)) == []
    assert judge_family.accuracy_loss([], [], "logits", truth(0), LIMITS) == []


def test_rows_of_other_heads_do_not_count() -> None:
    rows = {"head:a": np.array(["x", "", "y"])}
    found = judge_family.Truth.of(HeldOut(rows, "sha256:0"), "head:a", ["x", "y"], "head:a")
    logits = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert judge_family.right(logits, found) == [True, False]


def test_truth_that_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="head:a: the held-out array head:a is not an array of class ids"):
        judge_family.Truth.of(HeldOut({"head:a": np.zeros(3)}, "sha256:0"), "head:a", ["x"], "head:a")


def test_a_detector_that_misses_outliers_fails() -> None:
    draw = np.random.default_rng(0)
    detector = fit(*(embedded(draw.normal(size=(count, 8))) for count in (500, 200)), 95.0)
    alike = embedded(draw.normal(size=(300, 8)))
    far = embedded(50 + draw.normal(size=(300, 8)), stored=True)
    session = model_file.session(detector_graph(detector, 18))
    rejection, found = judge_family.detection(session, "int8", alike, far, LIMITS)
    assert (found["verdict"], found["value"], found["dataset"]) == ("pass", 1.0, far.dataset)
    assert rejection["verdict"] == "info"
    assert (rejection["name"], found["name"]) == ("false rejection, int8 backbone", "rejection of outliers")
    assert rejection["interval"][0] <= rejection["value"] <= rejection["interval"][1]
    (missed,) = judge_family.detection(session, "int8", None, alike, LIMITS)
    assert missed["verdict"] == "fail"


def test_a_rate_is_that_of_the_graph_and_not_of_float64() -> None:
    """With a spread of 1e-4 around 1000, float32 tells only steps of 6e-5 apart: the graph and float64 disagree on some rows."""
    draw = np.random.default_rng(1)
    rows, held_out, fresh = ((1000.00003 + 1e-4 * draw.normal(size=(count, 8))) for count in (500, 200, 4000))
    detector = fit(embedded(rows), embedded(held_out), 95.0)
    session = model_file.session(detector_graph(detector, 18))
    narrow = fresh.astype(np.float32)
    (inside,) = session.run(["in_distribution"], {"embedding": narrow})
    (found,) = judge_family.detection(session, "int8", embedded(narrow), None, LIMITS)
    assert found["value"] == pytest.approx((~inside).mean(), abs=1e-6)
    assert found["value"] != (detector.distances(narrow) > detector.threshold).mean()
