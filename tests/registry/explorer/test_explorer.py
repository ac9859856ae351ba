"""No interleaving of pushes, collections and pulls, crashes included, loses a blob that a log refers to.

The collection's protocol (`docs/format.md`) runs here as it is, on a store in memory, step by step in every order; and
without any one of its rules a violation is found.
"""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from support.explorer.explorer import Exploration, Run
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
INDEX = ("index/",)
BOTH: Any = {"kept": (manifest("a"), manifest("b")), "lists": INDEX}
"""Of `garbage`: both models are there from the start, with a manifest that stays."""


def explore(begin: Any, programs: Mapping[str, Run], states: int = 0, every: int = 1, **more: Any) -> None:
    """Explore more than so many states, print how many, and fail with the trace of a violation."""
    report = Exploration(scenario(begin, programs, **more), every).run()
    print(report)
    assert report.violation is None, str(report)
    assert report.states > states


def forgetful(*names: str, collectors: int = 1, **more: Any) -> dict[str, Run]:
    """Pushes to these models and so many collections, which remember no more than they need."""
    pushes = {f"push {number} {name}": forgetful_pusher(name, **more) for number, name in enumerate(names)}
    return pushes | {f"collector {number}": forgetful_collector() for number in range(collectors)}


ONE = {"push": pusher("a"), "collector": collector}
TWO_PULLS = {"pull 1.0.0": puller("a", "1.0.0"), "pull b": puller("b", "1.0.0")}
DROP = {"drop": dropper, "collector 1": collector, "collector 2": collector}
TWICE = {"collector": collector, "retention": retention}
EXPLORED = {
    "a push, a collection and a pull": partial(explore, garbage, ONE | PULL, 1000, **BOTH),
    "two collections, one of which expires a version": partial(explore, expiring, TWICE, 100, observers=PULL),
    "two collections while a version is dropped": partial(
        explore, expiring, DROP, 1000, observers=PULL, lists=INDEX
    ),
}
MORE = {
    "a push of a new model and a collection": partial(explore, nothing, ONE, 1000, observers=PULL),
    "a version expires while another model takes over its file": partial(
        explore, expiring, {"push": pusher("b"), "collector": retention}, 1000, observers=TWO_PULLS
    ),
    "two pushes and a collection": partial(
        explore, garbage, forgetful("a", "b"), 10_000, 20, observers=PULL, **BOTH
    ),
}
LARGE = {
    "two pushes to a model and a collection": partial(
        explore, garbage, forgetful("a", "a"), 10_000, 20, observers=PULL, **BOTH
    ),
    "a push and two collections": partial(
        explore, garbage, forgetful("a", collectors=2), 100_000, 100, observers=PULL, **BOTH
    ),
    # Each push tries once: what it does after a lost race is what another push would do, see the ones before.
    "two pushes to two models, two collections and a pull": partial(
        explore, garbage, forgetful("a", "b", collectors=2, tries=1) | PULL, 1_000_000, 50, **BOTH
    ),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "case",
    [
        *EXPLORED,
        *(pytest.param(case, marks=pytest.mark.more) for case in MORE),
        *(pytest.param(case, marks=pytest.mark.large) for case in LARGE),
    ],
)
def test_no_interleaving_loses_a_blob(case):
    (EXPLORED | MORE | LARGE)[case]()


def shape(content: Any) -> frozenset[Any]:
    """Which keys there are, and what the logs say but for nonces, which depend on how often chance was asked before."""
    return frozenset((key, events(data) if key.startswith("index/") else b"") for key, data in content)


def events(index: bytes) -> tuple[str, ...]:
    found = (json.loads(line)["event"] for line in index.splitlines()[1:])
    return tuple(json.dumps(event | {"nonce": ""}, sort_keys=True) for event in found)


@pytest.mark.more
@pytest.mark.parametrize("names", [("a",), pytest.param(("a", "b"), marks=pytest.mark.large)])
def test_forgetting_leaves_nothing_out(names):
    whole = {f"push {name}": pusher(name) for name in names} | {"collector": collector}
    short = {f"push {name}": forgetful_pusher(name) for name in names} | {"collector": forgetful_collector()}
    explored = [Exploration(scenario(garbage, programs, **BOTH), every=0) for programs in (whole, short)]
    reports = [exploration.run() for exploration in explored]
    assert reports[0].violation is reports[1].violation is None
    shapes = [set(map(shape, exploration.contents.values)) for exploration in explored]
    assert shapes[0] == shapes[1]
    assert reports[0].states > reports[1].states


SEALING = {
    "push": ONE,
    "two pushes": {
        "push": forgetful_pusher("a"),
        "push too": forgetful_pusher("a"),
        "collector": forgetful_collector(heads=True),
    },
    "two collections": {
        "push": forgetful_pusher("a"),
        **{f"collector {number}": forgetful_collector(heads=True) for number in (1, 2)},
    },
}


@pytest.mark.more
@pytest.mark.parametrize(
    "programs", ["push", *(pytest.param(name, marks=pytest.mark.large) for name in [*SEALING][1:])]
)
@pytest.mark.timeout(3600)
def test_a_log_is_sealed_meanwhile(programs):
    """Sealing makes the catalog garbage that everybody may just be about to read."""
    with patch("onnxreg.registry.log.log.SEGMENT_LINES", SEGMENT):
        observers, kept = {"pull": puller("a", "0.1.0")}, (manifest("a"), SHARED)
        explore(sealing, SEALING[programs], every=20, observers=observers, kept=kept, lists=INDEX)


@pytest.mark.parametrize("rule", sampled(SINGLE, 2))
def test_one_collection_shows_that_the_rule_is_needed(rule):
    violated(SINGLE[rule], ONE)


@pytest.mark.more
@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.large if "intent" in rule else ()) for rule in DOUBLE]
)
def test_two_collections_show_that_the_rule_is_needed(rule):
    collectors = {f"collector {number}": forgetful_collector(clearing=True) for number in (1, 2)}
    violated(DOUBLE[rule], {"push": forgetful_pusher("a"), **collectors})


def violated(mutant: Mutant, programs: Mapping[str, Run]) -> None:
    """Without the rule a blob is lost that a log refers to."""
    with mutated(mutant):
        report = Exploration(scenario(garbage, programs, **BOTH), every=0).run()
    print(report)
    assert "is not there, but referred to" in (report.violation or "")
