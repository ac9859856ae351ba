"""The power fails at every step of every command, also after another command that was killed or stands still."""

import itertools
import random
from pathlib import Path

import pytest
from support.crash.invariants import BlockedError, check, record, record_pair
from support.crash.workloads import AGAIN, PAIRS, WORKLOADS, Pair
from support.sampling import sampled

SAMPLE, MORE = 5, 25
STOPS, MORE_STOPS = 1, 2

STOPPED = [*itertools.product(PAIRS, (True, False)), (AGAIN[0], True)]
"""A pair, and whether its first command is killed or stands still."""
SOME_STOPPED = [
    pytest.param(*each, marks=() if number % 4 == 0 else pytest.mark.more)
    for number, each in enumerate(STOPPED)
]


@pytest.mark.parametrize(
    "size", [SAMPLE, pytest.param(MORE, marks=pytest.mark.more), pytest.param(None, marks=pytest.mark.large)]
)
@pytest.mark.parametrize("workload", sampled(WORKLOADS, 2), ids=str)
def test_a_power_cut(workload, size, tmp_path, record_property):
    trace = record(tmp_path, workload.before, workload.command)
    record_property("crash states", check(trace, workload.command, size))


@pytest.mark.parametrize(
    "size",
    [STOPS, pytest.param(MORE_STOPS, marks=pytest.mark.more), pytest.param(None, marks=pytest.mark.large)],
)
@pytest.mark.parametrize(("pair", "killed"), SOME_STOPPED, ids=str)
def test_a_power_cut_behind_another_command(pair, killed, size, tmp_path, record_property):
    """What the second command acknowledged is there, although it built on what the first one had not made durable."""
    record_property("crash states", check_pair(pair, killed, size, tmp_path))


def check_pair(pair: Pair, killed: bool, size: int | None, place: Path) -> int:
    """Stop the first command before each of its steps, or before `size` of them."""
    whole = record(place / "whole", pair.before, pair.first)
    stops: list[int] = list(range(whole.end - whole.start))
    if size is not None:
        stops = random.Random(pair.name).sample(stops, size)
    checked = 0
    for stop in stops:
        try:
            trace = record_pair(place / str(stop), pair, stop, killed)
        except BlockedError:
            continue
        checked += check(trace, pair.second, None if size is None else 4, [trace.end])
    return checked


@pytest.mark.large
@pytest.mark.parametrize("pair", AGAIN, ids=str)
def test_nothing_to_do_behind_a_command_that_stands_still(pair, tmp_path):
    check_pair(pair, False, None, tmp_path)
