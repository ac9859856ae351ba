"""Two people who move channels of one model at once: acknowledged moves are in the log once, refused ones never."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from support.registries.home import NAME, Home

from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import read_lines
from onnxreg.registry.maintain import verify
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.schema.core.errors import ConflictError, NotFoundError
from onnxreg.schema.core.ref import Ref

MOVES = 6
TO_AND_FRO = "tag 0.1.0 stable; tag 0.1.1 stable"
CASES = {
    "one channel, other versions": (TO_AND_FRO, "tag 0.1.1 stable; tag 0.1.0 stable"),
    "one channel, the same moves": (TO_AND_FRO, TO_AND_FRO),
    "one channel, one version": ("tag 0.1.0 stable", "tag 0.1.1 stable"),
    "two channels": (TO_AND_FRO, "tag 0.1.0 beta; tag 0.1.1 beta"),
    "many channels": ("tag 0.1.0 a{}", "tag 0.1.1 a{}"),
    "tagging and untagging": (TO_AND_FRO, "untag stable"),
    "both untagging": ("untag held", "untag held"),
    "tagging and yanking": (TO_AND_FRO, "yank 0.1.1; unyank 0.1.1"),
    "both yanking": ("yank 0.1.1", "yank 0.1.1"),
    "tagging and pinning": (TO_AND_FRO, "pin 0.1.0; unpin 0.1.0"),
    "by channel": ("tag held b{}", "tag 0.1.0 held; tag 0.1.1 held"),
}
"""The moves of both, which each repeats in turn; `{}` is the number of the move."""


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.more)])
def place(request, registry) -> str:
    """A registry with two versions and a channel that holds one."""
    versions = [registry.make(seed=seed).ref for seed in "ab"]
    if request.param == "directory":
        registry.tag(versions[0], "held")
        return registry.place
    url = str(request.getfixturevalue("bucket_url"))
    for ref in versions:
        registry.push(ref, url)
    Decisions(registry.remotes.open(url)).tag(Ref(NAME, "0.1.0"), "held")
    return url


@pytest.mark.parametrize("case", CASES)
def test_each_acknowledged_move_is_in_the_log_once(case, place, registry):
    together = Barrier(2)

    def opened() -> RegistryStore:
        own = Home(registry.store.root)
        return own.store if place == registry.place else own.remotes.open(place)

    def work(who: str, moves: str) -> tuple[dict[str, str], set[str]]:
        """What was acknowledged, and what was refused; both begin each move at once."""
        decisions, made, refused = Decisions(opened()), dict[str, str](), set[str]()
        turn = moves.split("; ")
        for number in range(MOVES):
            move, reason = turn[number % len(turn)].format(number), f"{who} {number}"
            together.wait(60)
            try:
                decide(decisions, move, reason)
                made[reason] = move
            except (ConflictError, NotFoundError):
                refused.add(reason)
        return made, refused

    with ThreadPoolExecutor(2) as pool:
        (ours, no), (theirs, nor) = pool.map(work, ("ann", "bob"), CASES[case])
    made, lines = ours | theirs, read_lines(opened(), NAME)
    reasons = [line.event.reason for line in lines if line.event.reason]
    assert len(reasons) == len(set(reasons)) and not (no | nor) & set(reasons)
    assert made and set(reasons) <= made.keys() and not verify(opened()).damages
    assert all(may_be_idle(lines, made[reason]) for reason in made.keys() - set(reasons))


def decide(decisions: Decisions, move: str, reason: str) -> None:
    verb, version, *channel = move.split()
    if verb == "untag":
        decisions.untag(NAME, version, reason)
    elif verb == "tag":
        decisions.tag(Ref(NAME, version), *channel, reason)
    else:
        getattr(decisions, verb.removeprefix("un"))(Ref(NAME, version), reason, verb.startswith("un"))


def may_be_idle(lines: list[Any], move: str) -> bool:
    """True if an acknowledged move may have added no line: at some time the log already said what it asks for."""
    verb, version, *channel = move.split()
    if verb == "tag" and version != "held":
        events = [line.event for line in lines if line.event.kind == "tag"]
        return (channel[0], version) in {(event.tag, str(event.version)) for event in events}
    return verb != "untag"
