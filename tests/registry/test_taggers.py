"""Two people who move channels of one model at once, as processes: on a directory and on an S3 server.

Each move that was acknowledged is in the log exactly once, none that was refused is, and the chain and state fit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.registries.home import NAME, Home

from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import read_lines
from onnxreg.registry.maintain.verification import verify
from onnxreg.schema.core.ref import Ref

MOVES = 6
SCRIPT = """
import json, os, sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import Decisions
from onnxreg.schema.core.errors import ConflictError, NotFoundError
from onnxreg.schema.core.ref import Ref

def say(value):
    print(json.dumps(value), flush=True)

for line in sys.stdin:
    home, place, moves, environment = json.loads(line)
    os.environ.update(environment)
    registry = Registry(Path(home))
    decisions = Decisions(registry.remotes.open(place) if place != home else registry.store)
    made, refused = [], []
    say("ready")
    sys.stdin.readline()
    for reason, move in moves.items():
        verb, version, *channel = move.split()
        try:
            if verb == "untag":
                decisions.untag("acme/pii", version, reason)
            elif verb == "tag":
                decisions.tag(Ref("acme/pii", version), *channel, reason)
            else:
                undo = verb.startswith("un")
                getattr(decisions, verb.removeprefix("un"))(Ref("acme/pii", version), reason, undo)
            made.append(reason)
        except (ConflictError, NotFoundError):
            refused.append(reason)
    say([made, refused])
"""
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


class Tagger:
    """A person at work, as a process that lives as long as the tests of this file."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def say(self, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(value)}\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@pytest.fixture(scope="module")
def taggers() -> Iterator[list[Tagger]]:
    command, pipe = [sys.executable, "-c", SCRIPT], subprocess.PIPE
    with ExitStack() as running:
        started = (subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2))
        yield [Tagger(running.enter_context(process)) for process in started]


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.more)])
def place(request: pytest.FixtureRequest, registry: Home) -> str:
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
def test_each_acknowledged_move_is_in_the_log_once(
    case: str, place: str, registry: Home, taggers: list[Tagger]
) -> None:
    turns = {who: moves.split("; ") for who, moves in zip(("ann", "bob"), CASES[case], strict=True)}
    moves = {
        who: {f"{who} {n}": turn[n % len(turn)].format(n) for n in range(MOVES)}
        for who, turn in turns.items()
    }
    for tagger, each in zip(taggers, moves.values(), strict=True):
        tagger.say([registry.place, place, each, dict(os.environ)])
    assert [tagger.hear() for tagger in taggers] == ["ready", "ready"]
    for tagger in taggers:
        tagger.say("go")
    outcomes = [tagger.hear() for tagger in taggers]
    made, refused = ({reason for outcome in outcomes for reason in outcome[part]} for part in (0, 1))
    remote = registry.store if place == registry.place else registry.remotes.open(place)
    lines = read_lines(remote, NAME)
    reasons = [line.event.reason for line in lines if line.event.reason]
    assert len(reasons) == len(set(reasons)) and not refused & set(reasons)
    assert made and set(reasons) <= made and not verify(remote).damages
    every = moves["ann"] | moves["bob"]
    assert all(may_be_idle(lines, every[reason]) for reason in made - set(reasons))


def may_be_idle(lines: list[Any], move: str) -> bool:
    """Whether an acknowledged move may have left no line: at some time the log already said what it asks for.

    Then the verb says so and adds nothing. An untagging always adds a line.
    """
    verb, version, *channel = move.split()
    if verb == "tag" and version != "held":
        events = [line.event for line in lines if line.event.kind == "tag"]
        return (channel[0], version) in {(event.tag, str(event.version)) for event in events}
    return verb != "untag"
