"""The page is made of the figures that are there, what it compares in this process runs, and wide rows are refused."""

import json
from pathlib import Path

import pytest

from benchmarks import measure, peers, questions, report, run
from benchmarks.measure import LIMIT, ROUGH_LIMIT, Row, Run, pairs, row, spread_of

STEADY, UNSTEADY = [1.0, 1.02, 0.98], [1.0, 1.6, 0.5]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of figures of its own; the page goes beside it, and no peer is installed."""
    (tmp_path / "benchmarks.json").write_text(report.RESULTS.read_text())
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "benchmarks.json")
    monkeypatch.setattr(peers, "versions", lambda cache: {})
    return tmp_path / "benchmarks.json"


def test_the_page_has_every_group_within_an_hour_and_says_why_each_loss_is_one(results):
    recorded, page = report.load(), Path(__file__).parents[2] / "docs" / "benchmarks.md"
    assert run.main(["page"]) == 0
    assert results.with_suffix(".md").read_text() == page.read_text(), "run `make bench GROUPS=page`"
    assert {*recorded["groups"]} == {*run.BENCHMARKS} >= {*recorded["runs"]}
    assert sum(recorded["runs"][name]["seconds"] for name in report.QUICK) <= 500
    assert sum(each["seconds"] for each in recorded["runs"].values()) <= 3600
    shown = report.headlines(recorded)
    assert len({row for row, _ in shown}) == len(shown) >= len(report.HEADLINES)
    assert [row.what for row, reason in shown if row.cost()[1] > 1 and not reason] == []


def test_a_spread_is_the_notch_of_a_box_plot():
    assert spread_of([2.0]) == 0
    assert spread_of([0.9, 1.0, 1.1]) == pytest.approx(1.57 * 0.1 / 3**0.5)
    assert spread_of([1.0] * 14 + [50.0]) == 0, "one outlier does not widen it"
    assert spread_of([0.9, 1.0, 1.1] * 4) < spread_of([0.9, 1.0, 1.1]), "more pairs narrow it"


@pytest.mark.parametrize(
    ("ours", "theirs", "unit", "limit"),
    [
        (2.0, 1.0, "s", LIMIT),
        (2.0, 0.09, "s", ROUGH_LIMIT),
        (20.0, 90.0, "ms", ROUGH_LIMIT),
        (0.01, 0.02, "MB", LIMIT),
        (3000.0, 1000.0, "/s", LIMIT),
        (3000.0, 100.0, "/s", ROUGH_LIMIT),
    ],
)
def test_short_rows_and_rows_far_from_the_peer_may_be_wider(ours, theirs, unit, limit):
    compared = row("ours", "theirs", [(ours, theirs)], unit, "")
    assert (compared.limit(), compared.is_wide()) == (limit, False)


@pytest.mark.parametrize(
    ("ratios", "seconds", "count", "taken"),
    [
        (STEADY, 0, 3, 3),
        (UNSTEADY, 0, 3, 9),
        (UNSTEADY + STEADY * 2, 0, 3, 6),
        (UNSTEADY, 100, 5, 3),
        (UNSTEADY, 100, 2, 2),
        (UNSTEADY, measure.BUDGET / 4, 5, 5),
        (UNSTEADY, measure.BUDGET / 16, 5, 15),
        (STEADY, measure.BUDGET / 16, 5, 5),
    ],
)
def test_wide_pairs_are_measured_again_within_a_budget_and_all_of_them_count(
    ratios, seconds, count, taken, monkeypatch
):
    values, passed = iter([1.0, *ratios * 10]), [-seconds]

    def ours() -> Run:
        passed[0] += seconds
        return Run(next(values), 1, 1)

    monkeypatch.setattr(measure.time, "monotonic", lambda: passed[0])
    measured = pairs(ours, lambda: Run(1, 1, 1), count)
    assert [one.wall for one, _ in measured] == (ratios * 10)[:taken]


def measured_as(monkeypatch: pytest.MonkeyPatch, ratios: list[float]) -> None:
    """Let the group `verify` come out with these ratios, of times of a second."""
    compared = row("verify", "a peer", [(ratio, 1.0) for ratio in ratios], "s", "")
    monkeypatch.setitem(run.BENCHMARKS, "verify", lambda: [compared])


def test_a_group_with_a_wide_row_is_written_by_force_alone(results, monkeypatch, capsys):
    before = results.read_bytes()
    measured_as(monkeypatch, UNSTEADY)
    assert run.main(["verify"]) == 1 and results.read_bytes() == before
    message = capsys.readouterr().err
    for words in ("verify / a peer: 1.00 within 50 %, the limit is 15 %", "make bench GROUPS", "--force"):
        assert words in message
    assert run.main(["--force", "verify"]) == 0
    written = json.loads(results.read_text())
    assert [Row(**each).ratio for each in written["groups"]["verify"]] == [1.0]
    assert written["runs"]["verify"]["wide"] == ["verify / a peer"]
    assert "verify / a peer" in " ".join(results.with_suffix(".md").read_text().split())


def test_certified_latencies_of_another_processor_are_kept_and_shown(results, monkeypatch):
    monkeypatch.setattr(run, "OF_THE_DEMO", ())
    for isa, ratio in (("x86_64+a", 0.25), ("x86_64+b", 0.75), ("x86_64+a", 0.5)):
        compared = row("latency: the certified file", "its fp32 file", [(ratio, 1.0)], "s", "")
        monkeypatch.setitem(run.BENCHMARKS, "certification", lambda rows=[compared]: rows)
        monkeypatch.setattr(report, "instruction_set", lambda isa=isa: isa)
        assert run.main(["--force", "certification"]) == 0
    shown = {each.what: each.ratio for each, _ in report.headlines(report.load())}
    assert shown["latency: the certified file"] == 0.5
    assert shown["latency: the certified file, x86_64+b"] == 0.75
    assert "latency: the certified file, x86_64+a" not in shown


def test_a_group_that_cannot_be_measured_does_not_end_the_run(results, monkeypatch, capsys):
    """What a group lacks is said before the first group."""

    def missing() -> list[Row]:
        raise SystemExit("the disk is full")

    measured_as(monkeypatch, STEADY)
    monkeypatch.setitem(run.BENCHMARKS, "ingest", missing)
    monkeypatch.setitem(run.BENCHMARKS, "prove", pytest.fail)
    monkeypatch.setitem(run.PROGRAMS, "prove", ("nginx",))
    monkeypatch.setattr(run.shutil, "which", lambda program: None)
    assert run.main(["ingest", "verify", "prove"]) == 1
    message = capsys.readouterr().err
    lack = "prove: not measured: nginx is missing: apt-get install nginx-light\n"
    assert "ingest: not measured: SystemExit: the disk is full" in message
    assert message.index(lack) < message.index("verify ...")
    written = json.loads(results.read_text())["runs"]["verify"]
    assert (written["seconds"], written["wide"], len(written["load"])) == (0, [], 2)
    assert written["date"].startswith("20")


def test_groups_and_the_programs_that_they_need_have_names():
    assert {program for programs in run.PROGRAMS.values() for program in programs} == peers.PACKAGED.keys()
    assert {*run.PROGRAMS, *run.OF_THE_DEMO, *report.QUICK} <= run.BENCHMARKS.keys()
    with pytest.raises(SystemExit, match="no group is named verfy; the groups: startup, "):
        run.main(["verfy"])


@pytest.mark.large
def test_resolving_is_measured():
    assert all(row.ours > 0 < row.theirs for row in questions.resolve(count=1))
