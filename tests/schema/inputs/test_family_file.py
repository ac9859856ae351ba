"""The limits of a family file: what is stated changes one limit, and no other."""

from typing import Any

import pytest

from onnxreg.schema.core.errors import RegError
from onnxreg.schema.inputs.family_file import FamilyFile, SizeLimits

DOCUMENT: dict[str, Any] = {
    "family": 1,
    "name": "acme/crops",
    "backbone": {"checkpoint": "swin"},
    "heads": {"folder": "heads"},
}


def sizes(**stated: Any) -> SizeLimits:
    return FamilyFile.from_json(DOCUMENT | {"limits": {"size": stated}}).limits.size


def test_a_stated_size_is_a_limit_and_no_other() -> None:
    head = sizes(head={"int8": "150kB"}).head
    assert (head.float32, head.float16, head.int8) == (None, None, 150_000)


@pytest.mark.parametrize("stated", [{"head": {"INT8": "1B"}}, {"fused": {"float16": 1}}, {"tail": {}}])
def test_a_size_of_what_there_is_not_is_refused(stated: dict[str, Any]) -> None:
    with pytest.raises(RegError):
        sizes(**stated)


OOD = {"fit": "fit.npz", "calibrate": "calibrate.npz"}


@pytest.mark.parametrize(
    ("limit", "without", "needed"),
    [
        ("ood_true_positive", {"evaluation": "held-out.npz"}, {"ood": OOD | {"outliers": "far.npz"}}),
        ("ood_true_positive", {"ood": OOD}, {"ood": OOD | {"outliers": "far.npz"}}),
    ],
)
def test_a_stated_limit_needs_what_it_is_measured_on(
    limit: str, without: dict[str, Any], needed: dict[str, Any]
) -> None:
    FamilyFile.from_json(DOCUMENT | without)
    FamilyFile.from_json(DOCUMENT | without | {"limits": {limit: None}})
    FamilyFile.from_json(DOCUMENT | needed | {"limits": {limit: 0.5}})
    with pytest.raises(RegError, match=f"limits.{limit} is stated, and cannot be measured"):
        FamilyFile.from_json(DOCUMENT | without | {"limits": {limit: 0.5}})


@pytest.mark.parametrize("percentile", [0.95, 50, 100])
def test_the_percentile_is_above_half_and_below_all(percentile: float) -> None:
    with pytest.raises(RegError, match=r"ood\.percentile"):
        FamilyFile.from_json(DOCUMENT | {"ood": OOD | {"percentile": percentile}})


def test_the_limits_of_who_states_none() -> None:
    limits = FamilyFile.from_json(DOCUMENT).limits
    assert (limits.parity.float32, limits.size.head.int8) == (0.01, None)
    assert (limits.latency_p95, limits.ood_true_positive) == (200.0, 0.9)


def test_a_limit_that_is_no_number_is_named() -> None:
    with pytest.raises(RegError, match="out of range: inf"):
        FamilyFile.from_json(DOCUMENT | {"limits": {"latency_p95": float("inf")}})
