"""Two people who move channels of one model at once, as processes: on a directory and on an S3 server.

Each move that was acknowledged is in the log exactly once, none that was refused is, and the chain and state fit.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.read.versions import read_log
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]
NAME = "acme/pii"
MOVES = 6

SCRIPT = """
import json, sys
from pathlib import Path
from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import Decisions
from onnxreg.schema.core.errors import ConflictError, NotFoundError
from onnxreg.schema.core.ref import Ref

home, place, who, moves = sys.argv[1:]
registry = Registry(Path(home))
decisions = Decisions(registry.remotes.open(place) if place != home else registry.store, who)
made, refused = [], []
sys.stdin.readline()
for number, (verb, *words) in enumerate(json.loads(moves)):
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
print(json.dumps([made, refused]))
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


def run_both(home: Path, place: str, moves: tuple[Moves, Moves]) -> tuple[list[str], list[str]]:
    """The reasons of all moves that were acknowledged, and of those that were refused."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(home), place, who, json.dumps(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for who, each in zip(("ann", "bob"), moves, strict=True)
    ]
    said = [process.communicate("go\n", timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    found = [json.loads(output) for output, _ in said]
    return [reason for made, _ in found for reason in made], [reason for _, no in found for reason in no]


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
def test_each_acknowledged_move_is_in_the_log_once(case: str, place: str, registry: Registry) -> None:
    home = registry.store.root
    made, refused = run_both(home, place, CASES[case])
    remote = registry.store if place == str(home) else registry.remotes.open(place)
    lines = read_log(remote, NAME)
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
