"""Write device.json: which release a device takes, leaves or goes back to. The outcomes are stated by hand.

    python tests/vectors/make_device.py [--check]

Nothing of the code under test is used. With --check nothing is written; the exit status is 1 if the file differs.
"""

import json
import sys
from pathlib import Path
from typing import Any

from building import YANKED, Json, States, artifact, onnx, sha

FILE = Path(__file__).with_name("device.json")
SALT = "00112233445566778899aabbccddeeff"
ADMITTED = sha("device 1").removeprefix("sha256:")


def artifacts(version: str) -> list[Json]:
    """A certified INT8, the next certified one, and two that nobody certified."""
    return [
        onnx(f"{version} float16", precision="float16", state="certified", size=2_000_000),
        onnx(f"{version} float32", size=4_000_000),
        onnx(f"{version} int4", precision="int4", size=500_000),
        artifact(f"{version} int8", "onnx-int8", precision="int8", state="certified"),
    ]


def manifest(state: str, version: str) -> str:
    return sha(f"{state} {version}")


def release(state: str, version: str, path: str = "int8") -> Json:
    return {
        "version": version,
        "manifest": manifest(state, version),
        "artifact": {"digest": sha(f"{version} {path}")},
    }


def states() -> States:
    made = States()
    versions: Any = {version: (artifacts(version), []) for version in ("1.0.0", "2.0.0", "3.0.0")}
    newest = ["3.0.0", "2.0.0", "1.0.0"]
    made.many("stable is 2.0.0", versions, newest, channels={"stable": "2.0.0"})
    marks = {"2.0.0": YANKED}
    made.many("stable is 2.0.0, yanked", versions, newest, channels={"stable": "2.0.0"}, marks=marks)
    made.many("2.0.0 is rolled out", versions, newest, channels={"stable": "1.0.0"})
    target = manifest("2.0.0 is rolled out", "2.0.0")
    rollout = {"to": "2.0.0", "manifest": target, "percent": 100, "salt": SALT, "seq": 95}
    made.lines["2.0.0 is rolled out"]["rollouts"] = {"stable": rollout}
    made.many("the rollout was halted", versions, newest, channels={"stable": "1.0.0"})
    return made


def updates() -> list[Json]:
    stable, yanked, rolling, halted = states().lines

    def update(
        name: str,
        state: str,
        expect: Json | str,
        current: str | None = None,
        previous: str | None = None,
        failed: tuple[str, ...] = (),
        withdrawn: tuple[tuple[str, str], ...] = (),
        **question: Any,
    ) -> Json:
        """`failed` has "VERSION PATH" for an artifact and "VERSION" for a manifest."""
        if isinstance(expect, str):
            version, path = expect.split()
            expect = {"version": version, "artifact": f"{version} {path}"}
        digests = [sha(each) if " " in each else manifest(state, each) for each in failed]
        return {
            "name": name,
            "state": state,
            "question": {"tag": "stable", **question},
            "slot": {
                "current": current and release(state, current),
                "previous": previous and release(state, previous),
                "failed": digests,
            },
            "withdrawn": [[how, manifest(state, version)] for how, version in withdrawn],
            "expect": expect,
        }

    stays, leaves, error = {"stays": True}, {"leaves": True, "error": "not-found"}, {"error": "not-found"}
    all_failed = ("2.0.0 int8", "2.0.0 float16")
    return [
        update("a first install", stable, "2.0.0 int8"),
        update("the next release", stable, "2.0.0 int8", "1.0.0"),
        update("a failed file: the next certified one", stable, "2.0.0 float16", failed=all_failed[:1]),
        update(
            "failed files on a first install: not one that nobody certified", stable, error, failed=all_failed
        ),
        update("failed files: the current release stays", stable, stays, "1.0.0", failed=all_failed),
        update(
            "failed files, no tag: an older release",
            halted,
            "2.0.0 int8",
            tag=None,
            failed=("3.0.0 int8", "3.0.0 float16"),
        ),
        update("a file of another release failed", stable, "2.0.0 int8", failed=("3.0.0 int8",)),
        update(
            "a release that was rolled back is refused whole",
            stable,
            stays,
            "1.0.0",
            failed=("2.0.0", "2.0.0 int8"),
        ),
        update(
            "a rolled-back release, and a new one", stable, "3.0.0 int8", "1.0.0", failed=("2.0.0",), tag=None
        ),
        update("in the rollout", rolling, "2.0.0 int8", "1.0.0", seed=ADMITTED),
        update(
            "in the rollout, a failed file",
            rolling,
            "2.0.0 float16",
            "1.0.0",
            failed=all_failed[:1],
            seed=ADMITTED,
        ),
        update(
            "in the rollout, failed files: what the channel holds",
            rolling,
            "1.0.0 int8",
            "1.0.0",
            failed=all_failed,
            seed=ADMITTED,
        ),
        update(
            "a halted rollout: what the channel holds",
            halted,
            "1.0.0 int8",
            "2.0.0",
            "1.0.0",
            withdrawn=(("halted", "2.0.0"),),
            seed=ADMITTED,
        ),
        update(
            "a halted rollout, and the channel's release failed here: the device has none",
            halted,
            leaves,
            "2.0.0",
            failed=("1.0.0",),
            withdrawn=(("halted", "2.0.0"),),
        ),
        update(
            "a yanked release in the channel: the release before",
            yanked,
            "1.0.0 int8",
            "2.0.0",
            "1.0.0",
            withdrawn=(("yanked", "2.0.0"),),
        ),
        update(
            "a yanked release in the channel, and none before: the device has none",
            yanked,
            leaves,
            "2.0.0",
            withdrawn=(("yanked", "2.0.0"),),
        ),
        update(
            "a yanked release in the channel, and the one before was yanked",
            yanked,
            leaves,
            "2.0.0",
            "1.0.0",
            withdrawn=(("yanked", "2.0.0"), ("yanked", "1.0.0")),
        ),
        update(
            "the release before does not fit this app any more",
            yanked,
            leaves,
            "2.0.0",
            "1.0.0",
            withdrawn=(("yanked", "2.0.0"),),
            query={"where": "version != 1.0.0"},
        ),
        update(
            "a yanked release in the channel: another one stays",
            yanked,
            stays,
            "1.0.0",
            withdrawn=(("yanked", "2.0.0"),),
        ),
        update("a yanked release in the channel, on a first install", yanked, error),
        update(
            "a question that nothing answers: the current release stays as it is",
            stable,
            error,
            "1.0.0",
            query={"max_size": 10},
        ),
        update(
            "a halted release that the app asks for by its number",
            halted,
            "2.0.0 int8",
            "2.0.0",
            withdrawn=(("halted", "2.0.0"),),
            tag="2.0.0",
        ),
    ]


def rollbacks() -> list[Json]:
    state = "stable is 2.0.0"
    one, two = release(state, "1.0.0"), release(state, "2.0.0")
    same = {**two, "artifact": one["artifact"]}
    bad = two["artifact"]["digest"]

    def rollback(name: str, current: Json | None, previous: Json | None, expect: Json, **more: Any) -> Json:
        slot = {"current": current, "previous": previous, "failed": more.get("failed", [])}
        return {"name": name, "slot": slot, "withdrawn": more.get("withdrawn", []), "expect": expect}

    back = {"current": "1.0.0", "failed": [two["manifest"], bad]}
    error = {"error": "not-found"}
    return [
        rollback("the release before", two, one, back),
        rollback(
            "what failed stays refused",
            two,
            one,
            {**back, "failed": [sha("x"), *back["failed"]]},
            failed=[sha("x")],
        ),
        rollback(
            "files that both releases have are not refused", same, one, {**back, "failed": [two["manifest"]]}
        ),
        rollback("no release before", two, None, error),
        rollback("no release", None, None, error),
        rollback("from a yanked release", two, one, back, withdrawn=[["yanked", two["manifest"]]]),
        *(
            rollback(f"to a release that was {how}", two, one, error, withdrawn=[[how, one["manifest"]]])
            for how in ("yanked", "halted", "purged", "dropped")
        ),
    ]


def withdrawals() -> list[Json]:
    one, two = sha("one"), sha("two")

    def event(kind: str, manifest: str | None = one, **more: Any) -> Json:
        return {"kind": kind, **({"manifest": manifest} if manifest else {}), **more}

    yank, purge, drop = (event(kind, version="1.0.0") for kind in ("yank", "purge", "drop"))
    start = event("rollout", version="1.0.0", tag="stable")
    halt = event("rollout", None, tag="stable")
    finish = event("tag", version="1.0.0", tag="stable")
    rolling = {"stable": {"to": "1.0.0", "manifest": one}}
    yanked, halted = [["yanked", one]], [["halted", one]]
    cases: list[tuple[str, list[Any], Json, list[Json], list[Any]]] = [
        ("nothing", [], {}, [event("pin")], []),
        ("a yank", [], {}, [yank], yanked),
        ("a yank that is taken back", yanked, {}, [event("unyank")], []),
        ("one of two yanks is taken back", [*yanked, *yanked], {}, [event("unyank")], yanked),
        ("a yank of another manifest is taken back", yanked, {}, [event("unyank", two)], yanked),
        ("published again under a new number, it is still yanked", yanked, {}, [event("publish")], yanked),
        ("a purge", [], {}, [purge], [["purged", one]]),
        ("a drop", [], {}, [drop], [["dropped", one]]),
        ("published again after a drop", [["dropped", one]], {}, [event("publish")], []),
        ("an expired release is none that was withdrawn", [], {}, [event("expire")], []),
        ("a rollout that was seen is halted", [], rolling, [halt], halted),
        ("a rollout is started and halted", [], {}, [start, halt], halted),
        ("the rollout of another channel is halted", [], rolling, [event("rollout", None, tag="beta")], []),
        ("a rollout is advanced", [], rolling, [start], []),
        ("a rollout is finished", [], rolling, [finish], []),
        ("a halted rollout is started again", halted, {}, [start], []),
        ("a halted release is tagged", halted, {}, [finish], []),
        ("a halted release is yanked, and that is taken back", halted, {}, [yank, event("unyank")], halted),
        ("finished, and the channel moves on", [], rolling, [finish, event("tag", two, tag="stable")], []),
    ]
    return [
        {
            "name": name,
            "before": before,
            "rollouts": rollouts,
            "lines": [{"seq": seq, "prev": "", "event": each} for seq, each in enumerate(events, 10)],
            "expect": expect,
        }
        for name, before, rollouts, events, expect in cases
    ]


def make() -> str:
    value = {
        "format": "onnxreg-device-vectors",
        "format_version": 1,
        "states": states().lines,
        "updates": updates(),
        "rollbacks": rollbacks(),
        "withdrawals": withdrawals(),
    }
    return json.dumps(value, indent=1) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(FILE.read_text("utf-8") != make())
    FILE.write_text(make(), "utf-8")
