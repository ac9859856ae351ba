"""What a person sees: colours on a terminal only, 80 columns, silence when asked, and a clean end on Ctrl-C."""

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.sampling import sampled
from support.terminal import on_a_terminal

from onnxreg.cli.main import main
from onnxreg.cli.render import output
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftFile

Reg = Callable[..., Any]
READING = (
    ["ls"],
    ["ls", "acme/pii"],
    ["show", "acme/pii"],
    ["resolve", "acme/pii"],
    ["diff", "acme/pii:0.1.0", "acme/pii"],
    ["log", "acme/pii"],
    ["verify"],
)


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_piped_output_has_no_escapes_and_fits_80_columns(words: list[str], reg: Reg, home: Path) -> None:
    done = reg("--registry", home, *words)
    assert done.status == 0
    assert "\x1b" not in done.out + done.err
    prose = [line for line in done.out.splitlines() if not line.startswith(("url ", "  "))]
    assert max(map(len, prose)) <= 80


def test_verdicts_have_a_colour_on_a_terminal(home: Path) -> None:
    status, drawn = on_a_terminal(home, "show", "acme/pii")
    assert status == 0
    assert "\x1b[31mrefused      \x1b[0m" in drawn


@pytest.mark.parametrize("setting", sampled([{"NO_COLOR": "1"}, {"TERM": "dumb"}], 2))
def test_colours_can_be_refused(setting: dict[str, str], home: Path) -> None:
    assert "\x1b" not in on_a_terminal(home, "show", "acme/pii", **setting)[1]
    assert "\x1b" not in on_a_terminal(home, "ls", "nobody", **setting)[1]


def test_a_bar_is_drawn_on_a_terminal_and_one_line_stays(home: Path, tmp_path: Path) -> None:
    status, drawn = on_a_terminal(home, "push", "acme/pii", str(tmp_path / "share"))
    assert status == 0
    assert "pushing acme/pii" in drawn
    assert drawn.rpartition("\x1b[?25l")[2].count("\x1b[?25h") == 1
    last = drawn.splitlines()[-1]
    assert f"pushed acme/pii:0.2.0 to {tmp_path / 'share'}: 6 blobs, 45.9 kB" in last
    status, drawn = on_a_terminal(home, "push", "acme/pii", str(tmp_path / "other"), "--json")
    assert drawn.startswith("{")
    assert "pushing" not in drawn


@pytest.mark.more
def test_a_fleet_has_a_bar_and_a_line_for_each_job(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.yaml"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "config.json").write_text('{"architectures": ["no[b]ne"]}')
    jobs.write_text(
        "".join(f"- {{source: ./{name}, name: acme/{name}, profile: android}}\n" for name in "ab")
    )
    status, drawn = on_a_terminal(tmp_path / "new", "export", "--batch", str(jobs), "--jobs", "1")
    assert status == 2
    assert "exporting" in drawn
    assert "2/2" in drawn
    assert "acme/a: failed: the checkpoint has no config.json" in drawn
    assert "acme/b: failed: " in drawn
    assert "no[b]ne" in drawn
    assert drawn.count("\x1b[31mfailed") == 2


@pytest.mark.parametrize(
    "words", [*READING, ["push", "acme/pii", "./share"], ["tag", "tiny", "beta"]], ids=" ".join
)
def test_quiet_prints_nothing(words: list[str], reg: Reg, home: Path) -> None:
    done = reg("--registry", home, "--quiet", *words)
    assert (done.status, done.out, done.err) == (0, "", "")


def test_quiet_still_prints_errors_and_json(reg: Reg, home: Path) -> None:
    assert reg("--registry", home, "--quiet", "ls", "nobody").err.startswith("error: ")
    assert reg("--registry", home, "--quiet", "ls", "--json").json["models"]


def test_a_stranger_cannot_move_the_cursor(reg: Reg, tmp_path: Path, draft: Callable[..., Any]) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    registry = Registry(tmp_path / "r")
    registry.add(draft(tmp_path / "w", labels=("O", evil)), reason=f"because\n{evil}")
    for words in (["show", "acme/pii"], ["log", "acme/pii"]):
        done = reg("--registry", tmp_path / "r", *words)
        assert "\\x1b]0;owned\\x07\\x1b[2J" in done.out
        assert "\x1b" not in done.out


def test_the_reason_of_a_move_or_a_yank_is_escaped(
    reg: Reg, tmp_path: Path, draft: Callable[..., Any]
) -> None:
    """A line of its own, such as "signed by release", would be ours."""
    evil = "because\n\x1b[2J"
    registry = Registry(tmp_path / "r")
    registry.add(draft(tmp_path / "w"))
    registry.tag("acme/pii", "stable", reason=evil)
    shown = reg("--registry", tmp_path / "r", "show", "acme/pii").out
    assert "because\\x0a\\x1b[2J" in shown and "\x1b" not in shown
    registry.yank("acme/pii:0.1.0", evil)
    pushed = reg("--registry", tmp_path / "r", "push", "acme/pii:0.1.0", tmp_path / "share").err
    assert "because\\x0a\\x1b[2J" in pushed and "\x1b" not in pushed
    (registry.store.root / "index/acme/pii (\x1b[2J).jsonl").touch()
    warned = reg("--registry", tmp_path / "r", "verify").out
    assert "\\x1b[2J" in warned and "\x1b" not in warned


SLOW_PULL = """
import os, sys, time
from onnxreg.registry.store.streams import CountingReader
from onnxreg.cli.main import main

def slow(self, block):
    os.write(2, b"moving\\n")
    time.sleep(0.1)
    return at_once(self, memoryview(block)[:100])

at_once, CountingReader.readinto = CountingReader.readinto, slow
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_during_a_pull_leaves_nothing_half_written(reg: Reg, home: Path, tmp_path: Path) -> None:
    words = [
        "--registry",
        str(tmp_path / "mine"),
        "pull",
        "acme/pii",
        str(home),
        "--output",
        str(tmp_path / "out"),
    ]
    command = [sys.executable, "-c", SLOW_PULL, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "moving\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    hint = "hint: run the same command again: what arrived whole is not moved again"
    message = said.replace("moving\n", "")  # other threads say it too, at any moment
    assert message.endswith(f"error: interrupted\n{hint}\n")
    assert list((tmp_path / "mine" / "local" / "tmp").iterdir()) == []
    assert Registry(tmp_path / "mine").names() == []
    assert not list(tmp_path.glob("*out*"))
    assert reg(*words).status == 0
    assert (tmp_path / "out" / "model.onnx").is_file()


def test_sizes_are_powers_of_ten() -> None:
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_234_567: "1.2 MB", 5 * 10**9: "5.0 GB"}
    assert {count: output.size(count) for count in sizes} == sizes


def test_a_table_leaves_out_empty_columns_and_aligns_numbers() -> None:
    assert list(output.table(("NAME", "NOTE", "SIZE"), [("a", "", 5), ("long", "", 12)])) == [
        "NAME  SIZE",
        "a        5",
        "long    12",
    ]
    assert list(output.table(("NAME",), [])) == []


LONG = "a-team-with-a-long-name/" + "-".join(["detector-of-many-things"] * 7)


@pytest.mark.parametrize(
    "words", [["ls"], ["query"], ["builtin", "passes"], ["show", "acme/pii"]], ids=" ".join
)
def test_tables_fit_the_terminal(
    words: list[str], home: Path, draft: Callable[..., Any], tmp_path: Path
) -> None:
    Registry(home).add(draft(tmp_path / "w", name=LONG))
    status, drawn = on_a_terminal(home, *words, NO_COLOR="1")
    lines = re.split(r"\x1b\[[?0-9]*[A-Za-z]", drawn)[-1].splitlines()
    assert (status, max(map(len, lines)) <= 80) == (0, True)
    if words == ["ls"]:
        assert [line.split() for line in lines if line.startswith("tiny ")] == [["tiny", "0.1.0", "1"]]
        start = next(index for index, line in enumerate(lines) if line.startswith("a-team"))
        assert "".join(line.split()[0] for line in lines[start:])[: len(LONG)] == LONG
    if words == ["builtin", "passes"]:
        assert "operators of the default\n" in drawn.replace(" \n", "\n")


def test_a_cell_is_folded_between_words_then_parts_then_anywhere() -> None:
    rows = [("NAME", "WHY"), ("acme/pii-small", "it is no model"), ("b", "fine")]
    assert output.fit_widths(rows, 26) == [14, 10]
    assert list(output.fold_row(rows[1], [14, 10])) == [("acme/pii-small", "it is no"), ("", "model")]
    assert output.fit_widths(rows, 19) == [9, 8]
    assert list(output.fold_row(rows[1], [9, 8])) == [("acme/pii-", "it is no"), ("small", "model")]
    assert list(output.fold_row(("x" * 10, ""), [8, 8])) == [("x" * 8, ""), ("xx", "")]


def test_long_lines_are_folded_between_words_on_a_terminal_only(home: Path, reg: Reg) -> None:
    words = ("ls", "--remote", "./a-place-with-a-long-name/where-there-is-no-registry/and-never-was")
    drawn = on_a_terminal(home, *words, NO_COLOR="1")[1].splitlines()
    assert [line[:6] for line in drawn] == ["error:", "      ", "hint: ", "      "]
    assert len(reg("--registry", home, *words).err.splitlines()) == 2
    changed = on_a_terminal(home, "diff", "acme/pii:0.1.0", "acme/pii:0.2.0", NO_COLOR="1")[1]
    assert max(map(len, changed.splitlines())) <= 80


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_output_that_cannot_show_a_character(
    encoding: str, tmp_path: Path, draft: Callable[..., Draft], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is escaped: what was published is published, and the exit status says so."""
    made = draft(tmp_path / "work")
    (tmp_path / "work" / "config.json").rename(tmp_path / "work" / "模.json")
    files = (DraftFile("config", "模.json"), *made.companions[1:])
    Registry(tmp_path / "home", actor="Łukasz").add(replace(made, companions=files))
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    for words in ("show acme/pii", "resolve acme/pii", "log acme/pii", "ls"):
        assert main(["--registry", str(tmp_path / "home"), *words.split()]) == 0
    shown = stream.buffer.getvalue().decode(encoding)
    assert ("模" if encoding == "utf-8" else r"\u6a21") in shown
