"""The page is made of the figures that are there, what it compares in this process runs, and wide rows are refused."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from benchmarks import durability, measure, peers, report, resolving, run
from benchmarks.measure import LIMIT, ROUGH_LIMIT, ROUNDS, GroupRun, Row, Run, pairs, row, spread_of

STEADY, UNSTEADY = [1.0, 1.02, 0.98], [1.0, 1.6, 0.5]


def test_the_page_is_made_of_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    report.write(report.load())
    page = Path(__file__).parents[2] / "docs" / "benchmarks.md"
    assert (tmp_path / page.name).read_text() == page.read_text(), "run `make bench GROUPS=page`"


def test_every_group_was_measured_and_every_loss_says_why() -> None:
    results = report.load()
    assert {*results["groups"], *results["growth"]} == {*run.BENCHMARKS, *run.GROWTH}
    shown = report.headlines(results)
    assert len({row for row, _ in shown}) == len(shown) >= len(report.HEADLINES)
    assert [row.what for row, reason in shown if row.cost()[1] > 1 and not reason] == []


def test_a_spread_is_the_notch_of_a_box_plot() -> None:
    assert spread_of([2.0]) == 0
    assert spread_of([0.9, 1.0, 1.1]) == pytest.approx(1.57 * 0.1 / 3**0.5)
    assert spread_of([1.0] * 14 + [50.0]) == 0, "one outlier does not widen it"
    assert spread_of([0.9, 1.0, 1.1] * 4) < spread_of([0.9, 1.0, 1.1]), "more pairs narrow it"


@pytest.mark.parametrize(
    ("values", "unit", "limit"),
    [
        ((2.0, 1.0), "s", LIMIT),
        ((2.0, 0.09), "s", ROUGH_LIMIT),
        ((20.0, 90.0), "ms", ROUGH_LIMIT),
        ((0.01, 0.02), "MB", LIMIT),
        ((3000.0, 1000.0), "/s", LIMIT),
        ((3000.0, 100.0), "/s", ROUGH_LIMIT),
    ],
)
def test_short_rows_and_rows_far_from_the_peer_may_be_wider(
    values: tuple[float, float], unit: str, limit: float
) -> None:
    compared = row("ours", "theirs", [values], unit, "")
    assert compared.limit() == limit
    assert not compared.is_wide()


@pytest.mark.parametrize(("ratios", "times"), [(STEADY, 1), (UNSTEADY, ROUNDS), (UNSTEADY + STEADY * 2, 2)])
def test_wide_pairs_are_measured_again_and_all_of_them_count(ratios: list[float], times: int) -> None:
    values = iter([1.0, *ratios * ROUNDS])
    measured = pairs(lambda: Run(next(values), 1, 1), lambda: Run(1, 1, 1), len(STEADY))
    assert [ours.wall for ours, _ in measured] == (ratios * ROUNDS)[: times * len(STEADY)]


@pytest.mark.parametrize(
    ("ratios", "seconds", "count", "taken"),
    [
        (UNSTEADY, 100, 5, measure.PAIRS),
        (UNSTEADY, 100, 2, measure.PAIRS),
        (STEADY, 100, 5, measure.LEAST),
        (UNSTEADY, measure.BUDGET / 4, 5, 5),
        (UNSTEADY, measure.BUDGET / 16, 5, 15),
        (STEADY, measure.BUDGET / 16, 5, 5),
    ],
)
def test_a_comparison_ends_with_its_budget_and_sooner_if_it_is_steady(
    ratios: list[float], seconds: float, count: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, passed = iter(ratios * 10), [0.0]

    def ours() -> Run:
        passed[0] += seconds
        return Run(next(values), 1, 1)

    monkeypatch.setattr(measure.time, "monotonic", lambda: passed[0])
    assert len(pairs(ours, lambda: Run(1, 1, 1), count)) == taken


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of figures of its own; the page goes beside it, and no peer is installed."""
    (tmp_path / "benchmarks.json").write_text(report.RESULTS.read_text())
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "RESULTS", tmp_path / "benchmarks.json")
    monkeypatch.setattr(peers, "versions", lambda cache: {})
    return tmp_path / "benchmarks.json"


def measured_as(monkeypatch: pytest.MonkeyPatch, ratios: list[float]) -> None:
    """Let the group `verify` come out with these ratios, of times of a second."""
    compared = row("verify", "a peer", [(ratio, 1.0) for ratio in ratios], "s", "")
    monkeypatch.setitem(run.BENCHMARKS, "verify", lambda: [compared])


def test_a_group_with_a_wide_row_is_not_written(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = results.read_bytes()
    measured_as(monkeypatch, UNSTEADY)
    assert run.main(["verify"]) == 1
    assert results.read_bytes() == before
    message = capsys.readouterr().err
    assert "verify / a peer: 1.00 within 50 %, the limit is 15 %" in message
    assert "make bench GROUPS" in message and "--force" in message
    assert message.startswith("load ")


def test_a_wide_row_is_written_by_force_and_the_page_says_so(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_as(monkeypatch, UNSTEADY)
    assert run.main(["--force", "verify"]) == 0
    written = json.loads(results.read_text())
    assert [Row(**each).ratio for each in written["groups"]["verify"]] == [1.0]
    assert written["runs"]["verify"]["wide"] == ["verify / a peer"]
    assert "verify / a peer" in results.with_suffix(".md").read_text()


def test_a_steady_group_is_written_with_its_day_seconds_and_load(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured_as(monkeypatch, STEADY)
    assert run.main(["verify"]) == 0
    written = json.loads(results.read_text())["runs"]["verify"]
    assert written["seconds"] == 0 and written["wide"] == [] and len(written["load"]) == 2
    assert written["date"].startswith("20")


def test_a_group_that_cannot_be_measured_does_not_end_the_run(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> list[Row]:
        raise SystemExit("wrk is missing: apt-get install wrk")

    measured_as(monkeypatch, STEADY)
    monkeypatch.setitem(run.BENCHMARKS, "ingest", missing)
    assert run.main(["ingest", "verify"]) == 1
    assert "ingest: not measured: wrk is missing" in capsys.readouterr().err
    assert "verify" in json.loads(results.read_text())["runs"]


def test_what_a_group_lacks_is_said_before_the_first_group(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured_as(monkeypatch, STEADY)
    monkeypatch.setitem(run.PROGRAMS, "hub", ("nginx", "curl"))
    monkeypatch.setattr(run.shutil, "which", lambda program: None if program == "nginx" else program)
    monkeypatch.setitem(run.BENCHMARKS, "hub", pytest.fail)
    assert run.main(["verify", "hub"]) == 1
    message = capsys.readouterr().err
    assert message.index(
        "hub: not measured: nginx is missing: apt-get install nginx-light\n"
    ) < message.index("verify ...")
    assert "verify" in json.loads(results.read_text())["runs"]


def test_every_program_has_its_package() -> None:
    assert {program for programs in run.PROGRAMS.values() for program in programs} == peers.PACKAGED.keys()
    assert {*run.PROGRAMS, *run.OF_THE_DEMO} <= run.BENCHMARKS.keys()


def test_an_unknown_group_is_refused() -> None:
    with pytest.raises(SystemExit, match="no group is named verfy; the groups: startup, "):
        run.main(["verfy"])


def test_the_recorded_runs_fit_into_an_hour() -> None:
    runs = report.load().get("runs", {})
    assert {*runs} <= {*run.BENCHMARKS, *run.GROWTH}
    alone = [each["seconds"] for name, each in runs.items() if name not in run.COUNTED]
    side_by_side = [runs[name]["seconds"] for name in run.COUNTED if name in runs]
    assert sum(alone) + max(sum(side_by_side) / 2, *side_by_side) <= run.RUN_SECONDS
    assert sum(each["seconds"] for name, each in runs.items() if name in report.QUICK) <= 480


@pytest.mark.more
def test_resolving_and_durability_are_measured() -> None:
    assert all(row.ours > 0 < row.theirs for row in resolving.benchmark(count=1))
    publish = durability.publish(durability.OneByOne())
    assert publish.wall > 0 < publish.cpu


def test_a_run_of_all_begins_with_the_oldest_figures_and_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also figures of builds that recorded the day alone are older than those of a later minute."""
    earlier = {"late": ("2026-11-26T10:30+00:00", 1), "slow": ("2026-11-26", 11), "old": ("2026-11-24", 1)}
    runs = {
        name: {"date": date, "seconds": seconds, "load": [], "wide": []}
        for name, (date, seconds) in earlier.items()
    }
    measured: list[str] = []

    def group(name: str) -> list[Row]:
        measured.append(name)
        return []

    monkeypatch.setattr(run, "BENCHMARKS", {name: partial(group, name) for name in [*earlier, "new"]})
    monkeypatch.setattr(run, "GROWTH", {})
    monkeypatch.setattr(run, "COUNTED", ())
    monkeypatch.setattr(run, "CACHE", tmp_path)
    monkeypatch.setattr(run, "RUN_SECONDS", 10)
    monkeypatch.setattr(peers, "install", lambda cache: None)
    monkeypatch.setattr(peers, "versions", lambda cache: {})
    monkeypatch.setattr(report, "load", lambda: {"runs": runs})
    monkeypatch.setattr(report, "save", lambda *_: None)
    monkeypatch.setattr(report, "write", lambda results: None)
    assert run.main([]) == 1
    assert measured == ["new", "old"]
    said = capsys.readouterr().err.splitlines()[-2:]
    assert said == [
        f"""{name}: not measured: the hour is over; type: make bench GROUPS="'{name}'\""""
        for name in ("slow", "late")
    ]
    assert run.main(["slow"]) == 0


def test_groups_that_count_run_apart_and_say_why_they_failed(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their processes are not started here; `verify` runs in this one."""
    commands: list[list[str]] = []

    def start(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(words[words.index("--part") :])
        return subprocess.CompletedProcess(words, int(words[-1] == "memory"), f"{words[-1]}: its lines\n")

    measured_as(monkeypatch, STEADY)
    monkeypatch.setattr(run.subprocess, "run", start)
    assert run.main(["--force", "verify", "memory", "growth models"]) == 1
    assert sorted(commands) == [["--part", "--force", "growth models"], ["--part", "--force", "memory"]]
    out, err = capsys.readouterr()
    assert out.startswith("growth models: its lines\n")
    assert err.endswith("3 groups in 0.0 minutes, 1 not written\nmemory: not written\nmemory: its lines\n")


def test_a_group_that_runs_apart_writes_no_page(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> list[Row]:
        raise SystemExit("the disk is full")

    monkeypatch.setitem(run.BENCHMARKS, "memory", broken)
    assert run.main(["--part", "memory"]) == 1
    assert not results.with_suffix(".md").exists()
    assert capsys.readouterr().out == "memory: not measured: the disk is full\n"


def test_processes_that_save_at_once_lose_nothing(results: Path) -> None:
    group = GroupRun("2026-11-28", 1, [0.0, 0.0], [])
    names = [f"group {number}" for number in range(32)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: report.save("groups", name, [], group, {}), names))
    assert {*names} <= report.load()["groups"].keys()
