"""No interleaving of pushes, collections and pulls, crashes included, loses a blob that a log refers to.

The collection's protocol (`docs/format.md`) runs here as it is, on a store in memory, step by step in every order; and
without any one of its rules a violation is found.
"""

import json
from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

import pytest
from support.explorer.explorer import Exploration, Report, Run
from support.explorer.forgetting import forgetful_collector, forgetful_pusher
from support.explorer.mutants import DOUBLE, SINGLE, Mutant, mutated
from support.explorer.scenarios import (
    SEGMENT,
    SHARED,
    collector,
    dropper,
    expiring,
    garbage,
    manifest,
    nothing,
    puller,
    pusher,
    retention,
    scenario,
    sealing,
)
from support.sampling import sampled

PULL = {"pull": puller("a", "1.0.0")}
BOTH: Any = {"kept": (manifest("a"), manifest("b")), "lists": ("index/",)}
"""Of `garbage`: both models are there from the start, with a manifest that stays."""


def explore(begin: Any, programs: Mapping[str, Run], every: int = 1, **more: Any) -> Report:
    """Explore, print how much it was, and fail with the trace of a violation."""
    report = Exploration(scenario(begin, programs, **more), every).run()
    print(report)
    assert report.violation is None, str(report)
    return report


def test_a_push_a_collection_and_a_pull() -> None:
    programs = {"push": pusher("a"), "collector": collector, **PULL}
    assert explore(garbage, programs, **BOTH).states > 1000


@pytest.mark.more
def test_a_push_of_a_new_model_and_a_collection() -> None:
    assert explore(nothing, {"push": pusher("a"), "collector": collector}, observers=PULL).states > 1000


@pytest.mark.more
def test_a_version_expires_while_another_model_takes_over_its_file() -> None:
    programs = {"push": pusher("b"), "collector": retention}
    pulls = {"pull 1.0.0": puller("a", "1.0.0"), "pull b": puller("b", "1.0.0")}
    assert explore(expiring, programs, observers=pulls).states > 1000


def test_two_collections_one_of_which_expires_a_version() -> None:
    assert explore(expiring, {"collector": collector, "retention": retention}, observers=PULL).states > 100


def test_two_collections_while_a_version_is_dropped() -> None:
    programs = {"drop": dropper, "collector 1": collector, "collector 2": collector}
    assert explore(expiring, programs, observers=PULL, lists=("index/",)).states > 1000


@pytest.mark.more
def test_two_pushes_and_a_collection() -> None:
    programs = {
        "push a": forgetful_pusher("a"),
        "push b": forgetful_pusher("b"),
        "collector": forgetful_collector(),
    }
    assert explore(garbage, programs, every=20, observers=PULL, **BOTH).states > 10_000


@pytest.mark.more
def test_two_pushes_to_the_same_model_and_a_collection() -> None:
    programs = {
        "push a": forgetful_pusher("a"),
        "push a too": forgetful_pusher("a"),
        "collector": forgetful_collector(),
    }
    assert explore(garbage, programs, every=20, observers=PULL, **BOTH).states > 10_000


@pytest.mark.more
def test_a_push_and_two_collections() -> None:
    programs = {
        "push": forgetful_pusher("a"),
        "collector 1": forgetful_collector(),
        "collector 2": forgetful_collector(),
    }
    assert explore(garbage, programs, every=100, observers=PULL, **BOTH).states > 100_000


@pytest.mark.large
@pytest.mark.timeout(3600)
def test_two_pushes_to_two_models_and_two_collections_and_a_pull() -> None:
    """Each push tries once: what it does after a lost race is what another push would do, see the tests before."""
    programs = {
        "push a": forgetful_pusher("a", tries=1),
        "push b": forgetful_pusher("b", tries=1),
        "collector 1": forgetful_collector(),
        "collector 2": forgetful_collector(),
        **PULL,
    }
    assert explore(garbage, programs, every=50, **BOTH).states > 1_000_000


def shape(content: Any) -> frozenset[Any]:
    """Which keys there are, and what the logs say but for nonces, which depend on how often chance was asked before."""
    return frozenset((key, events(data) if key.startswith("index/") else b"") for key, data in content)


def events(index: bytes) -> tuple[str, ...]:
    found = (json.loads(line)["event"] for line in index.splitlines()[1:])
    return tuple(json.dumps(event | {"nonce": ""}, sort_keys=True) for event in found)


@pytest.mark.parametrize("names", [("a",), pytest.param(("a", "b"), marks=pytest.mark.large)])
def test_forgetting_leaves_nothing_out(names: tuple[str, ...]) -> None:
    whole = {f"push {name}": pusher(name) for name in names} | {"collector": collector}
    short = {f"push {name}": forgetful_pusher(name) for name in names} | {"collector": forgetful_collector()}
    explored = [Exploration(scenario(garbage, programs, **BOTH), every=0) for programs in (whole, short)]
    reports = [exploration.run() for exploration in explored]
    assert reports[0].violation is reports[1].violation is None
    shapes = [set(map(shape, exploration.contents.values)) for exploration in explored]
    assert shapes[0] == shapes[1]
    assert reports[0].states > reports[1].states


SEALING = {
    "push": {"push": pusher("a"), "collector": collector},
    "two pushes": {
        "push": forgetful_pusher("a"),
        "push too": forgetful_pusher("a"),
        "collector": forgetful_collector(heads=True),
    },
    "two collections": {
        "push": forgetful_pusher("a"),
        "collector 1": forgetful_collector(heads=True),
        "collector 2": forgetful_collector(heads=True),
    },
}


@pytest.mark.more
@pytest.mark.parametrize(
    "programs", ["push", *(pytest.param(name, marks=pytest.mark.large) for name in [*SEALING][1:])]
)
@pytest.mark.timeout(3600)
def test_a_log_is_sealed_meanwhile(programs: str) -> None:
    """Sealing makes the catalog garbage that everybody may just be about to read."""
    with patch("onnxreg.registry.log.log.SEGMENT_LINES", SEGMENT):
        observers = {"pull": puller("a", "0.1.0")}
        kept = (manifest("a"), SHARED)
        explore(sealing, SEALING[programs], every=20, observers=observers, kept=kept, lists=("index/",))


@pytest.mark.parametrize("rule", sampled(SINGLE, 2))
def test_one_collection_shows_that_the_rule_is_needed(rule: str) -> None:
    violated(SINGLE[rule], {"push": pusher("a"), "collector": collector})


@pytest.mark.more
@pytest.mark.parametrize("rule", DOUBLE)
def test_two_collections_show_that_the_rule_is_needed(rule: str) -> None:
    collectors = {f"collector {number}": forgetful_collector(clearing=True) for number in (1, 2)}
    violated(DOUBLE[rule], {"push": forgetful_pusher("a"), **collectors})


def violated(mutant: Mutant, programs: Mapping[str, Run]) -> None:
    """Without the rule a blob is lost that a log refers to."""
    with mutated(mutant):
        report = Exploration(scenario(garbage, programs, **BOTH), every=0).run()
    print(report)
    assert "is not there, but referred to" in (report.violation or "")
