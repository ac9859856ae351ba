"""Two people who move channels of one model at once, as processes: on a directory and on an S3 server.

Each move that was acknowledged is in the log exactly once, none that was refused is, and the chain and state fit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.log.lookup import read_lines
from onnxreg.registry.maintain.verification import verify
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]
NAME = "acme/pii"
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
    home, place, who, moves, environment = json.loads(line)
    os.environ.update(environment)
    registry = Registry(Path(home))
    decisions = Decisions(registry.remotes.open(place) if place != home else registry.store, who)
    made, refused = [], []
    say("ready")
    sys.stdin.readline()
    for number, (verb, *words) in enumerate(moves):
        reason = f"{who} {number}"
        try:
            if verb == "untag":
                decisions.untag("acme/pii", *words, reason)
            elif verb == "tag":
                decisions.tag(Ref("acme/pii", words[0]), words[1], reason)
            else:
                getattr(decisions, verb)(Ref("acme/pii", words[0]), reason, *words[1:])
            made.append(reason)
        except (ConflictError, NotFoundError):
            refused.append(reason)
    say([made, refused])
"""

Moves = list[list[object]]


def alternating(channel: str, first: int = 0) -> Moves:
    return [["tag", f"0.1.{(first + number) % 2}", channel] for number in range(MOVES)]


CASES: dict[str, tuple[Moves, Moves]] = {
    "one channel, other versions": (alternating("stable"), alternating("stable", 1)),
    "one channel, the same moves": (alternating("stable"), alternating("stable")),
    "one channel, one version": ([["tag", "0.1.0", "stable"]] * MOVES, [["tag", "0.1.1", "stable"]] * MOVES),
    "two channels": (alternating("stable"), alternating("beta")),
    "many channels": (
        [["tag", "0.1.0", f"a{number}"] for number in range(MOVES)],
        [["tag", "0.1.1", f"a{number}"] for number in range(MOVES)],
    ),
    "tagging and untagging": (alternating("stable"), [["untag", "stable"]] * MOVES),
    "both untagging": ([["untag", "held"]] * 3, [["untag", "held"]] * 3),
    "tagging and yanking": (
        alternating("stable"),
        [["yank", "0.1.1", number % 2 == 1] for number in range(MOVES)],
    ),
    "both yanking": ([["yank", "0.1.1", False]] * 2, [["yank", "0.1.1", False]] * 2),
    "tagging and pinning": (
        alternating("stable"),
        [["pin", "0.1.0", number % 2 == 1] for number in range(MOVES)],
    ),
    "by channel": ([["tag", "held", f"b{number}"] for number in range(MOVES)], alternating("held")),
}


@dataclass(frozen=True)
class Tagger:
    """A person at work, as a process that lives as long as the tests of this file."""

    who: str
    process: subprocess.Popen[str]

    def say(self, value: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(value)}\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"{self.who} died"
        return json.loads(line)


@pytest.fixture(scope="module")
def taggers() -> Iterator[list[Tagger]]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as running:
        yield [
            Tagger(who, running.enter_context(subprocess.Popen([sys.executable, "-c", SCRIPT], **pipes)))
            for who in ("ann", "bob")
        ]


def run_both(
    taggers: list[Tagger], home: Path, place: str, moves: tuple[Moves, Moves]
) -> tuple[list[str], list[str]]:
    """The reasons of all moves that were acknowledged, and of those that were refused."""
    for tagger, each in zip(taggers, moves, strict=True):
        tagger.say([str(home), place, tagger.who, each, dict(os.environ)])
    assert [tagger.hear() for tagger in taggers] == ["ready", "ready"]
    for tagger in taggers:
        tagger.say("go")
    outcomes = [tagger.hear() for tagger in taggers]
    return [reason for made, _ in outcomes for reason in made], [
        reason for _, refused in outcomes for reason in refused
    ]


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.more)])
def place(request: pytest.FixtureRequest, registry: Registry, make_draft: MakeDraft) -> str:
    """A registry with two versions and a channel that holds one."""
    for seed in "ab":
        registry.add(make_draft(seed=seed))
    registry.tag(f"{NAME}:0.1.0", "held")
    if request.param == "directory":
        return str(registry.store.root)
    url = str(request.getfixturevalue("bucket_url"))
    for version in ("0.1.0", "0.1.1"):
        registry.push(f"{NAME}:{version}", url)
    from onnxreg.registry.log.decisions import Decisions
    from onnxreg.schema.core.ref import Ref

    Decisions(registry.remotes.open(url)).tag(Ref(NAME, "0.1.0"), "held")
    return url


@pytest.mark.parametrize("case", CASES)
def test_each_acknowledged_move_is_in_the_log_once(
    case: str, place: str, registry: Registry, taggers: list[Tagger]
) -> None:
    home = registry.store.root
    made, refused = run_both(taggers, home, place, CASES[case])
    remote = registry.store if place == str(home) else registry.remotes.open(place)
    lines = read_lines(remote, NAME)
    reasons = [line.event.reason for line in lines if line.event.reason]
    assert len(reasons) == len(set(reasons)) and not set(refused) & set(reasons)
    idle = set(made) - set(reasons)
    assert set(reasons) <= set(made)
    assert all(is_idle(lines, CASES[case], reason) for reason in idle)
    assert made and not verify(remote).damages


def is_idle(lines: list, moves: tuple[Moves, Moves], reason: str) -> bool:  # type: ignore[type-arg]
    """Whether an acknowledged move may have left no line: at some time the log already said what it asks for.

    Then the verb says so and adds nothing. An untagging always adds a line.
    """
    who, _, number = reason.partition(" ")
    verb, *words = moves[who == "bob"][int(number)]
    if verb == "untag":
        return False
    if verb == "tag" and words[0] != "held":
        held = {
            (event.tag, str(event.version)) for event in (line.event for line in lines) if event.kind == "tag"
        }
        return (words[1], words[0]) in held
    return verb in ("yank", "pin") or words[0] == "held"
