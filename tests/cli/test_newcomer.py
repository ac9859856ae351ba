"""Mistakes that newcomers made: each ends with the exit status of its family, and names what was typed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reg = Callable[..., Any]


def test_an_empty_reason_is_a_wrong_request(reg: Reg, home: Path) -> None:
    for words in (["yank", "acme/pii:0.1.0"], ["tag", "acme/pii:0.1.0", "beta"]):
        done = reg("--registry", home, *words, "--reason", " ")
        assert done.status == 2 and "--reason" in done.err


def test_a_full_disk_behind_the_output_is_an_error_of_this_machine(home: Path) -> None:
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", str(home), "ls"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 9 and "output" in done.stderr


def test_the_full_screen_does_not_point_to_itself(reg: Reg, home: Path) -> None:
    assert "--full" in reg("--registry", home, "show", "acme/pii").out
    assert "--full" not in reg("--registry", home, "show", "acme/pii", "--full").out


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("certify", "certificates"),
        ("publish", "push"),
        ("devices", "builtin devices"),
        ("fetch-index", "index fetch"),
    ],
)
def test_a_former_verb_is_answered_with_the_new_one(reg: Reg, former: str, now: str) -> None:
    done = reg(former, "acme/pii")
    assert done.status == 2 and now in done.err
