"""The screen of `reg diff`: an ordinary retrain fits it, nothing is lost, and each form begins with it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries.judged import judged_draft
from support.terminal import on_a_terminal

from onnxreg.registry import Registry

Reg = Callable[..., Any]
NAME = "acme/tagger"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger of 20 labels: retrained, with one worse label; on another suite; not judged; with 200 labels."""
    root = tmp_path_factory.mktemp("tagger")
    registry = Registry(root / "home", actor="ada@lab")
    registry.add(judged_draft(root / "1", 1), "1.0.0")
    registry.add(judged_draft(root / "2", 2, worse={"LABEL03": 0.9}), "1.1.0")
    registry.add(judged_draft(root / "3", 3, suite="other"), "1.2.0")
    registry.add(judged_draft(root / "4", 4, suite=None), "1.3.0")
    registry.add(judged_draft(root / "5", 5, suite=None), "1.4.0")
    for number in (6, 7):
        registry.add(judged_draft(root / str(number), number, labels=200), f"2.{number}.0")
    return registry.store.root


@pytest.fixture(autouse=True)
def _home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(home))


def test_an_ordinary_retrain_is_one_screen(home: Path) -> None:
    status, drawn = on_a_terminal(home, "diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", NO_COLOR="1")
    lines = drawn.splitlines()
    assert status == 0 and len(lines) <= 40 and max(map(len, lines)) <= 80
    text = re.sub(r"\s+", " ", drawn)
    assert (
        "1 of 44 comparable figures got worse: LABEL03 in model_int8.onnx by 0.0801 (95 %: 0.0267 to 0.14)."
        in text
    )
    assert "model_int8.onnx int8 17.5 kB certified same new" in text
    assert "LABEL03 int8 0.9801 0.9000 -0.0801 -0.140, -0.027 worse" in text
    assert "notable source changed: source.digest sha256:" in text
    assert "and 22 changes that follow (--full): 12 from new weights, 10 from the evaluation" in text


def test_figures_that_are_not_shown_are_counted_by_verdict(reg: Reg) -> None:
    done = reg("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0")
    rows = [line for line in done.out.splitlines() if line.startswith("LABEL")]
    assert rows[0].endswith("worse") and all(line.endswith("unclear") for line in rows[1:])
    assert f"and {44 - len(rows)} figures more: 26 unclear, 1 better, 2 equal" in done.out
    many = reg("diff", f"{NAME}:2.6.0", f"{NAME}:2.7.0").out
    assert len(many.splitlines()) <= 40
    assert re.search(r"and 389 figures more: .*unclear", many)


def test_full_lists_every_change_below_the_screen(reg: Reg) -> None:
    words = ("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0")
    changes = reg(*words, "--json").json["changes"]
    screen, full = reg(*words).out, reg(*words, "--full").out
    head = screen.partition("\nand 22 changes")[0]
    assert full.startswith(head)
    listed = full.removeprefix(head).splitlines()
    assert [f"  {change['message']}" for change in changes] == [
        line for line in listed if line.startswith("  ")
    ]


def test_json_has_the_screen_beside_all_changes(reg: Reg) -> None:
    document = reg("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", "--json").json
    screen = document["overview"]
    tables = [screen[key] for key in ("artifacts", "figures", "facts", "folded")]
    positions = [position for table in tables for row in table for position in row["changes"]]
    assert sorted(positions) == list(range(len(document["changes"])))
    worst = screen["figures"][0]
    assert (worst["name"], worst["verdict"], worst["basis"]) == ("LABEL03", "worse", "samples")


def test_markdown_and_the_page_begin_with_the_screen(reg: Reg) -> None:
    words = ("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0")
    verdict = reg(*words, "--json").json["overview"]["verdict"]
    shown = reg(*words, "--markdown").out.replace("\\", "")
    assert shown.index(verdict[1]) < shown.index("| LABEL03 |") < shown.index("#### 22 degrading")
    assert "and 22 changes that follow (below)" in shown
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", reg(*words, "--html", "-").out))
    assert page.index(verdict[1]) < page.index("-0.1400 to -0.0267") < page.index("22 degrading changes")


def test_other_suites_are_not_compared(reg: Reg) -> None:
    shown = reg("diff", f"{NAME}:1.1.0", f"{NAME}:1.2.0").out
    assert "Of 2 comparable figures none is clearly worse. 42 not compared: another suite." in shown
    assert re.search(r"notable +certification basis changed in 2 artifacts: .*suite sha256:", shown)
    assert "LABEL03" not in shown and "fails" not in shown


def test_versions_without_a_suite_say_so(reg: Reg) -> None:
    shown = reg("diff", f"{NAME}:1.3.0", f"{NAME}:1.4.0").out
    assert "No figure is worse" not in shown
    lost = reg("diff", f"{NAME}:1.2.0", f"{NAME}:1.3.0").out
    assert "No longer certified: model_fp16.onnx, model_int8.onnx." in lost
    assert "removed, pass" not in lost and re.search(r"LABEL\d\d .* removed\n", lost)


def test_colours_only_on_a_terminal_that_wants_them(home: Path, reg: Reg) -> None:
    words = ("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0")
    assert "\x1b[31mworse" in on_a_terminal(home, *words)[1]
    assert "\x1b" not in on_a_terminal(home, *words, NO_COLOR="1")[1]
    assert "\x1b" not in reg(*words).out
