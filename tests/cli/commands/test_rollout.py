"""`reg rollout` on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reg = Callable[..., Any]
NAME = "acme/pii"
WORDS = ("--channel", "stable")


@pytest.fixture(autouse=True)
def _home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(home))


def test_a_rollout_from_start_to_finish(reg: Reg) -> None:
    done = reg("rollout", "start", f"{NAME}:0.2.0", *WORDS, "--percent", "5")
    assert "acme/pii:stable is 0.2.0 for 5 % of the devices, and 0.1.0 for the others" in done.out
    value = reg("rollout", "advance", NAME, *WORDS, "--percent", "100", "--json").json
    assert list(value) == ["name", "channel", "version", "rollout"]
    assert (value["version"], value["rollout"]["to"], value["rollout"]["percent"]) == ("0.1.0", "0.2.0", 100)
    status = reg("rollout", "status", NAME, "--json").json
    assert status == {
        "name": NAME,
        "rollouts": [{"channel": "stable", "version": "0.1.0", "rollout": value["rollout"]}],
    }
    assert "0.2.0" in reg("rollout", "status", NAME).out
    assert "rollout" in reg("log", NAME).out
    finished = reg("rollout", "finish", NAME, *WORDS)
    assert finished.status == 0 and "acme/pii:stable is 0.2.0, for every device" in finished.out
    assert "has no rollout" in reg("rollout", "status", NAME).out


def test_resolve_answers_for_a_seed(reg: Reg) -> None:
    reg("rollout", "start", f"{NAME}:0.2.0", *WORDS, "--percent", "100")
    value = reg("resolve", f"{NAME}:stable", "--json").json
    assert (value["version"], value["rollout"]["to"], value["rollout"]["in"]) == ("0.1.0", "0.2.0", False)
    value = reg("resolve", f"{NAME}:stable", "--seed", "0" * 64, "--json").json
    assert (value["version"], value["rollout"]["in"]) == ("0.2.0", True)
    assert "rollout" not in reg("resolve", NAME, "--json").json
    assert reg("resolve", f"{NAME}:stable", "--seed", "00").status == 2
    assert "0.2.0 is being rolled out to 100 % of the devices" in reg("resolve", f"{NAME}:stable").out


def test_a_lock_says_that_a_rollout_is_under_way(reg: Reg) -> None:
    reg("rollout", "start", f"{NAME}:0.2.0", *WORDS, "--percent", "20")
    done = reg("lock", f"{NAME}:stable")
    assert "0.1.0" in done.out and "0.2.0 is being rolled out to 20 % of the devices" in done.out


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("start", f"{NAME}:0.2.0", *WORDS, "--percent", "0"), 2),
        (("start", f"{NAME}:0.2.0", *WORDS, "--percent", "many"), 2),
        (("start", f"{NAME}:0.2.0", *WORDS), 2),
        (("start", f"{NAME}:9.0.0", *WORDS, "--percent", "5"), 3),
        (("start", f"{NAME}:0.1.0", *WORDS, "--percent", "5"), 5),
        (("halt", NAME, *WORDS), 3),
        (("finish", "acme/none", *WORDS), 3),
    ],
)
def test_wrong_requests_are_refused(words: tuple[str, ...], status: int, reg: Reg) -> None:
    done = reg("rollout", *words)
    assert done.status == status and done.err and "Traceback" not in done.err


def test_the_channel_is_not_moved_meanwhile(reg: Reg) -> None:
    reg("rollout", "start", f"{NAME}:0.2.0", *WORDS, "--percent", "5", "--where", "platform = android")
    done = reg("tag", f"{NAME}:0.2.0", "stable")
    assert done.status == 5 and "reg rollout finish acme/pii --channel stable" in done.err
    assert "platform = 'android'" in reg("rollout", "status", NAME).out
    halted = reg("rollout", "halt", NAME, *WORDS, "--reason", "crashes")
    assert "acme/pii:stable is 0.1.0, for every device" in halted.out


def test_a_rollout_on_a_channel_that_is_not_there_says_how_to_make_it(reg: Reg) -> None:
    done = reg("rollout", "start", f"{NAME}:0.2.0", "--channel", "prod", "--percent", "5")
    assert done.status == 3 and f"reg tag {NAME}:VERSION prod makes it" in done.err
    reg("push", NAME, "./there")
    done = reg("rollout", "start", f"{NAME}:0.2.0", *WORDS, "--percent", "5", "--remote", "./there")
    assert done.status == 3
    assert f"reg tag {NAME}:VERSION stable --remote " in done.err
