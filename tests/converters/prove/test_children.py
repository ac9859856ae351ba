"""Children that quantizers make are proven, or bounded for a stated reason: no false alarm."""

from pathlib import Path

import pytest
from support.prove.children import BOUNDED, PROVEN, verdict_of


@pytest.mark.parametrize("name", PROVEN)
def test_a_child_is_proven(family: dict[str, Path], name: str) -> None:
    report = verdict_of(family[""], family[name])
    assert (report.verdict, report.reasons) == ("proven", ())
    assert report.unread_nodes == 0
    assert report.weights > 9_000


@pytest.mark.parametrize("name", BOUNDED)
def test_a_static_child_is_bounded_by_its_fixed_ranges(family: dict[str, Path], name: str) -> None:
    report = verdict_of(family[""], family[name])
    assert report.verdict == "bounded"
    assert report.ranges > 10
    assert report.largest is not None
    assert report.largest.steps < 0.51
