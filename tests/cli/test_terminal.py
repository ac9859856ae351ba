"""What a person sees: colours on a terminal only, 80 columns, silence when asked, progress, and a clean end on Ctrl-C."""

import io
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console
from support.command_line import make_draft
from support.sampling import sampled
from support.terminal import on_a_terminal

from onnxreg.cli import output
from onnxreg.cli.main import main
from onnxreg.cli.output import transfer
from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import DraftFile

READING = ["ls", "ls acme/pii", "show acme/pii", "resolve acme/pii", "diff acme/pii:0.1.0 acme/pii", "log acme/pii", "verify"]  # fmt: skip


@pytest.mark.parametrize("words", [*READING, "push acme/pii ./share", "tag tiny beta"])
def test_piped_output_has_no_escapes_and_fits_80_columns_and_quiet_prints_nothing(words, reg, home):
    quiet = reg("--registry", home, "--quiet", *words.split())
    assert (quiet.status, quiet.out, quiet.err) == (0, "", "")
    done = reg("--registry", home, *words.split())
    assert done.status == 0 and "\x1b" not in done.out + done.err
    if words in READING:
        prose = [line for line in done.out.splitlines() if not line.startswith(("url ", "  "))]
        assert max(map(len, prose)) <= 80


def test_quiet_still_prints_errors_and_json(reg, home):
    assert reg("--registry", home, "--quiet", "ls", "nobody").err.startswith("error: ")
    assert reg("--registry", home, "--quiet", "ls", "--json").json["models"]


@pytest.mark.parametrize("setting", [{}, *sampled([{"NO_COLOR": "1"}, {"TERM": "dumb"}], 2)])
def test_verdicts_have_a_colour_on_a_terminal_that_wants_it(setting, home):
    shown = on_a_terminal(home, "show", "acme/pii", **setting)[1]
    assert ("\x1b[31mrefused      \x1b[0m" in shown, "\x1b" in shown) == (not setting, not setting)
    assert setting == {} or "\x1b" not in on_a_terminal(home, "ls", "nobody", **setting)[1]


def test_a_bar_is_drawn_on_a_terminal_and_one_line_stays(home, tmp_path):
    status, drawn = on_a_terminal(home, "push", "acme/pii", str(tmp_path / "share"))
    assert status == 0 and "pushing acme/pii" in drawn
    assert drawn.rpartition("\x1b[?25l")[2].count("\x1b[?25h") == 1
    assert f"pushed acme/pii:0.2.0 to {tmp_path / 'share'}: 6 blobs, 45.9 kB" in drawn.splitlines()[-2]
    status, drawn = on_a_terminal(home, "push", "acme/pii", str(tmp_path / "other"), "--json")
    assert drawn.startswith("{") and "pushing" not in drawn


@pytest.mark.more
def test_a_fleet_has_a_line_for_each_job(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "config.json").write_text('{"architectures": ["no[b]ne"]}')
    rows = (f"- {{source: ./{name}, name: acme/{name}, profile: android}}\n" for name in "ab")
    (tmp_path / "jobs.yaml").write_text("".join(rows))
    status, drawn = on_a_terminal(tmp_path / "new", "export", "--batch", "jobs.yaml", "--jobs", "1")
    assert status == 2 and drawn.count("\x1b[31mfailed") == 2
    no_config = "acme/a: failed: the checkpoint has no config.json"
    for part in (no_config, "acme/b: failed: ", "no[b]ne"):
        assert part in drawn


@pytest.mark.parametrize("seconds", [0, 1e-6, 0.5, 40, 4_000, 400_000])
@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_transfer_takes_one_line_however_slow(width, seconds):
    """The time that is left can have hours and days; nothing moves a cursor."""
    now, sink = 1000.0, io.StringIO()
    line, drawn = transfer("pushing acme/a-model-with-a-\x1b[2Jname-that-is-long:1.2.0", width)
    line.renderable.get_time = lambda: now
    drawn.plan(2, 300_000_000)
    drawn.plan(1, 700_000_000)
    with drawn.file("onnx/model_quantized.onnx", 300_000_000) as moved, drawn.file("a.json", 5) as other:
        for count in (30_000_000, 5, 2_000):
            now += seconds
            moved(count)
        other(5)
    Console(file=sink, width=width, force_terminal=True, no_color=True).print(line)
    (whole,) = [line.rstrip() for line in sink.getvalue().splitlines() if line.strip()]
    assert "\x1b" not in whole and "long:1.2.0"[-width // 10 :] in whole and len(whole) <= width - 3
    assert "30.0/1,000.0 MB" in whole or "0.0/1.0 GB" in whole


def test_a_stranger_cannot_move_the_cursor(reg, tmp_path):
    """A line of its own in a reason, such as "signed by release", would be ours."""
    evil, shown = "because\n\x1b]0;owned\x07\x1b[2J", "because\\x0a\\x1b]0;owned\\x07\\x1b[2J"
    registry, at = Registry(tmp_path / "r"), ("--registry", tmp_path / "r")
    registry.add(make_draft(tmp_path / "w", labels=("O", evil)), reason=evil)
    registry.tag("acme/pii", "stable", reason=evil)
    outcomes = [reg(*at, verb, "acme/pii") for verb in ("show", "log")]
    registry.yank("acme/pii:0.1.0", evil)
    outcomes.append(reg(*at, "push", "acme/pii:0.1.0", tmp_path / "share"))
    for done in outcomes:
        assert shown in done.out + done.err and "\x1b" not in done.out + done.err
    (registry.store.root / "index/acme/pii (\x1b[2J).jsonl").touch()
    warned = reg(*at, "verify").out
    assert "\\x1b[2J" in warned and "\x1b" not in warned


def test_a_table_leaves_out_empty_columns_and_aligns_numbers():
    rows = [("a", "", 5), ("long", "", 12)]
    assert list(output.table(("NAME", "NOTE", "SIZE"), rows)) == ["NAME  SIZE", "a        5", "long    12"]
    assert list(output.table(("NAME",), [])) == []


LONG = "a-team-with-a-long-name/" + "-".join(["detector-of-many-things"] * 7)


@pytest.mark.parametrize("words", sampled(["ls", "query", "builtin passes", "show acme/pii"], 2))
def test_tables_fit_the_terminal(words, home, tmp_path):
    Registry(home).add(make_draft(tmp_path / "w", name=LONG))
    status, drawn = on_a_terminal(home, *words.split(), NO_COLOR="1")
    lines = re.split(r"\x1b\[[?0-9]*[A-Za-z]", drawn)[-1].splitlines()
    assert (status, max(map(len, lines)) <= 80) == (0, True)
    if words == "ls":
        assert [line.split() for line in lines if line.startswith("tiny ")] == [["tiny", "0.1.0", "1"]]
        start = next(index for index, line in enumerate(lines) if line.startswith("a-team"))
        assert "".join(line.split()[0] for line in lines[start:])[: len(LONG)] == LONG


def test_long_lines_are_folded_between_words_on_a_terminal_only(home, reg):
    words = ("ls", "--remote", "./a-place-with-a-long-name/where-there-is-no-registry/and-never-was")
    drawn = on_a_terminal(home, *words, NO_COLOR="1")[1].splitlines()
    assert [line[:6] for line in drawn] == ["error:", "      ", "hint: ", "      "]
    assert len(reg("--registry", home, *words).err.splitlines()) == 2
    changed = on_a_terminal(home, "diff", "acme/pii:0.1.0", "acme/pii:0.2.0", NO_COLOR="1")[1]
    assert max(map(len, changed.splitlines())) <= 80


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_output_that_cannot_show_a_character(encoding, tmp_path, monkeypatch):
    """It is escaped: what was published is published, and the exit status says so."""
    made = make_draft(tmp_path / "work")
    (tmp_path / "work" / "config.json").rename(tmp_path / "work" / "模.json")
    files = (DraftFile("config", "模.json"), *made.companions[1:])
    Registry(tmp_path / "home", actor="Łukasz").add(replace(made, companions=files))
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    for words in ("show acme/pii", "resolve acme/pii", "log acme/pii", "ls"):
        assert main(["--registry", str(tmp_path / "home"), *words.split()]) == 0
    assert ("模" if encoding == "utf-8" else r"\u6a21") in stream.buffer.getvalue().decode(encoding)


# Ctrl-C

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


def test_ctrl_c_during_a_pull_leaves_nothing_half_written(reg, home, tmp_path):
    mine = tmp_path / "mine"
    words = ["--registry", str(mine), "pull", "acme/pii", str(home), "--output", str(tmp_path / "out")]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_PULL, *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None and process.stderr.readline() == "moving\n"
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().replace("moving\n", "")  # other threads say it too, at any moment
    assert process.returncode == 130
    hint = "hint: run the same command again: what arrived whole is not moved again"
    assert said.endswith(f"error: interrupted\n{hint}\n")
    assert list((mine / "local" / "tmp").iterdir()) == [] and Registry(mine).names() == []
    assert not list(tmp_path.glob("*out*"))
    assert reg(*words).status == 0 and (tmp_path / "out" / "model.onnx").is_file()
