"""The page is made of the figures that are there, and what it compares in this process runs."""

from pathlib import Path

import pytest

from benchmarks import durability, report, resolving, run


def test_the_page_is_made_of_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "images").mkdir()
    monkeypatch.setattr(report, "DOCS", tmp_path)
    report.write(report.load())
    docs = Path(__file__).parents[2] / "docs"
    for name in ("benchmarks.md", "images/benchmarks.svg", "images/growth.svg"):
        assert (tmp_path / name).read_text() == (docs / name).read_text(), (
            f"{name}: run `make bench GROUPS=page`"
        )


def test_every_group_was_measured_and_every_loss_says_why() -> None:
    results = report.load()
    assert {*results["groups"], *results["growth"]} == {*run.BENCHMARKS, *run.GROWTH}
    assert "not profiled yet" not in (report.DOCS / "benchmarks.md").read_text()


@pytest.mark.more
def test_resolving_and_durability_are_measured() -> None:
    assert all(row.ours > 0 < row.theirs for row in resolving.benchmark(count=1))
    publish = durability.publish(durability.OneByOne())
    assert publish.wall > 0 < publish.cpu
