"""Clocks that are wrong: times that events claim, the reader's clock, and what is remembered with a stamp of the future.

No time in a log decides anything.
"""

from pathlib import Path

import pytest
from support.trust.tamper import Tree, event
from support.trust.world import MODEL, World

from onnxreg.cli.main import main

TIMES = {
    "the year 1": "0001-01-01T00:00:00Z",
    "1970": "1970-01-01T00:00:00Z",
    "a year ago": "2025-01-01T00:00:00Z",
    "2038": "2038-01-19T03:14:08Z",
    "the year 9999": "9999-12-31T23:59:59Z",
}
DAY = 86400


def resolve(world: World, tmp_path: Path, *more: str) -> int:
    return main(["--registry", str(tmp_path / "own"), "resolve", MODEL, "--remote", str(world.tree), *more])


def claim(world: World, claimed: object, number: int = -1) -> None:
    tree = Tree(world.tree)
    lines = tree.lines(MODEL)
    lines[number] = event(lines[number], time=claimed)
    tree.remake(MODEL, lines, world.release)


@pytest.mark.parametrize("which", ["the first line", "the last line"])
@pytest.mark.parametrize("claimed", TIMES)
def test_a_claimed_time_changes_no_answer(
    world: World, own_user: Path, tmp_path: Path, claimed: str, which: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where lines go back in time; signatures count in the order of the log."""
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust("[[require]]", 'models = ["acme/*"]', "lines = true"))
    claim(world, TIMES[claimed], 0 if which == "the first line" else -1)
    assert resolve(world, tmp_path, "--json", "--max-age", "1d") == 0
    assert '"1.1.0"' in capfd.readouterr().out
    assert main(["--registry", str(world.tree), "verify"]) == 0
    assert main(["--registry", str(world.tree), "log", MODEL]) == 0


@pytest.mark.parametrize("date", ["1970-01-01", "2026-01-02", "9999-12-31"])
def test_the_date_of_a_revocation_decides_nothing(
    world: World, own_user: Path, tmp_path: Path, date: str
) -> None:
    """A thief can claim any time, so neither a date before nor one after the lines saves the key."""
    own_user.mkdir(parents=True, exist_ok=True)
    lines = ["[keys.release.revoked]", f"date = {date}", 'reason = "stolen"']
    need = ["[[require]]", 'models = ["acme/*"]', "lines = true"]
    (own_user / "trust").write_text(world.trust(*lines, *need))
    assert resolve(world, tmp_path) == 4
