"""The power fails at every step of every command, also after another command that was killed or stands still."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.crash.invariants import BlockedError, check, record, record_pair
from support.crash.workloads import AGAIN, PAIRS, WORKLOADS, Pair

SAMPLE, MORE = 5, 15
"""States of a trace, in `make test` and in `make test-more`; `make test-all` looks at each state."""
STOPS, MORE_STOPS = 1, 2
"""Steps before which the first command of a pair is stopped."""
STOPPED = [*itertools.product(PAIRS, (True, False)), (AGAIN[0], True)]
"""A pair, and whether its first command is killed or stands still."""


def sized(cases: Sequence[tuple[Any, ...]], stride: int, few: int, more: int) -> list[Any]:
    """Each case of that stride at its small size, every second case at the larger one, and every case as a whole."""
    return [
        *((*case, few) for case in cases[::stride]),
        *(pytest.param(*case, more, marks=pytest.mark.more) for case in cases[1::2]),
        *(pytest.param(*case, None, marks=pytest.mark.large) for case in cases),
    ]


@pytest.mark.parametrize(("workload", "size"), sized([(one,) for one in WORKLOADS], 4, SAMPLE, MORE), ids=str)
def test_a_power_cut(workload, size, tmp_path, record_property):
    trace = record(tmp_path, workload.before, workload.command)
    record_property("crash states", check(trace, workload.command, size))


@pytest.mark.parametrize(("pair", "killed", "size"), sized(STOPPED, 8, STOPS, MORE_STOPS), ids=str)
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
