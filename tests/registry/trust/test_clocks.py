"""Clocks that are wrong: no time that an event or a revocation claims decides anything."""

import pytest
from support.registries.home import Home
from support.trust.tamper import event
from support.trust.world import MODEL

from .conftest import User

TIMES = {
    "the year 1": "0001-01-01T00:00:00Z",
    "1970": "1970-01-01T00:00:00Z",
    "a year ago": "2025-01-01T00:00:00Z",
    "2038": "2038-01-19T03:14:08Z",
    "the year 9999": "9999-12-31T23:59:59Z",
}


@pytest.mark.parametrize("number", [0, -1], ids=["the first line", "the last line"])
@pytest.mark.parametrize("claimed", TIMES)
def test_a_claimed_time_changes_no_answer(
    user: User, claimed: str, number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where lines go back in time; signatures count in the order of the log."""
    user.demands()
    lines = user.tree.lines(MODEL)
    lines[number] = event(lines[number], time=TIMES[claimed])
    user.tree.remake(MODEL, lines, user.world.release)
    assert user.resolve(MODEL, "--json", "--max-age", "1d") == 0
    assert '"1.1.0"' in capfd.readouterr().out
    for words in (("verify",), ("log", MODEL)):
        assert Home(user.tree.root).reg(*words) == 0


@pytest.mark.parametrize("date", ["1970-01-01", "2026-01-02", "9999-12-31"])
def test_the_date_of_a_revocation_decides_nothing(user: User, date: str) -> None:
    """A thief can claim any time, so neither a date before nor one after the lines saves the key."""
    user.demands("[keys.release.revoked]", f"date = {date}", 'reason = "stolen"')
    assert user.resolve() == 4
