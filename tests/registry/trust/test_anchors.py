"""Where signatures begin in a log, copies that must be signed, and texts of signatures that have one form only."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.trust.tamper import Line, Tree, chained, digest_of, event, unsigned
from support.trust.world import MODEL, OTHER, World

from onnxreg.cli.main import main

BEGIN = 6
"""The first line that must be signed: the lines before it are those of a log that began without signatures."""


def begin_unsigned(tree: Tree, world: World) -> None:
    """Lines before `BEGIN` are unsigned, the others are signed."""
    lines = tree.lines(MODEL)
    mixed = [unsigned(line) for line in lines[: BEGIN - 1]] + lines[BEGIN - 1 :]
    tree.remake(MODEL, mixed, world.release, only=(BEGIN - 1, None))


def anchor(tree: Tree, seq: int = BEGIN - 1) -> str:
    head = digest_of(chained(tree.lines(MODEL), tree.id, MODEL)[seq - 1])
    return f'after = [{{registry = "{tree.id}", model = "{MODEL}", seq = {seq}, head = "{head}"}}]'


def write_trust(own_user: Path, world: World, *more: str) -> None:
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust("[[require]]", 'models = ["acme/*"]', "lines = true", *more))


def resolve(world: World, tmp_path: Path, name: str = MODEL) -> int:
    return main(["--registry", str(tmp_path / "own"), "resolve", name, "--remote", str(world.tree)])


def other(line: Line) -> Line:
    return event(line, actor="somebody else")


LOGS: dict[str, tuple[Callable[[list[Line]], list[Line]], int, int]] = {
    "as it was": (lambda lines: lines, 0, 0),
    "a shorter one": (lambda lines: [*map(unsigned, lines[: BEGIN - 2])], 4, 4),
    "an invented, shorter one": (lambda lines: [unsigned(other(line)) for line in lines[: BEGIN - 2]], 4, 4),
    "one line": (lambda lines: [unsigned(lines[0])], 4, 4),
    "cut at the anchor": (lambda lines: [*map(unsigned, lines[: BEGIN - 1])], 4, 0),
    "another beginning": (lambda lines: [unsigned(other(lines[0])), *lines[1:]], 4, 4),
    "an unsigned end": (lambda lines: [*lines[:-1], unsigned(lines[-1])], 4, 4),
}


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("has_anchor", [False, True], ids=["since", "after"])
def test_a_log_that_began_without_signatures(
    world: World, own_user: Path, tmp_path: Path, log: str, has_anchor: bool
) -> None:
    """With a line number alone the last line must be signed; with a digest the log must have that very line."""
    tree = Tree(world.tree)
    begin_unsigned(tree, world)
    write_trust(own_user, world, anchor(tree) if has_anchor else f"since = {BEGIN}")
    change, *statuses = LOGS[log]
    tree.remake(MODEL, change(tree.lines(MODEL)))
    assert resolve(world, tmp_path) == statuses[has_anchor]


def test_a_short_log_that_is_signed_keeps_any_since(world: World, own_user: Path, tmp_path: Path) -> None:
    write_trust(own_user, world, "since = 1000")
    assert resolve(world, tmp_path, OTHER) == 0


def test_an_anchor_of_another_model_or_registry_says_nothing(
    world: World, own_user: Path, tmp_path: Path
) -> None:
    tree = Tree(world.tree)
    begin_unsigned(tree, world)
    text = anchor(tree)
    for wrong in (text.replace(MODEL, OTHER), text.replace(tree.id, "0" * 32)):
        write_trust(own_user, world, wrong)
        assert resolve(world, tmp_path) == 4


def test_an_anchor_is_written_from_what_reg_trust_shows(
    world: World, own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(world.tree)
    tree.remake(MODEL, [unsigned(line) for line in tree.lines(MODEL)])
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(world.trust())
    assert resolve(world, tmp_path) == 0
    capfd.readouterr()
    assert main(["trust", "show", "--json"]) == 0
    known = next(head for head in json.loads(capfd.readouterr().out)["heads"] if head["name"] == MODEL)
    line = {"registry": tree.id, "model": MODEL, "seq": known["seq"], "head": known["head"]}
    text = ", ".join(f"{key} = {json.dumps(value)}" for key, value in line.items())
    write_trust(own_user, world, f"after = [{{{text}}}]")
    assert resolve(world, tmp_path) == 0
    capfd.readouterr()
    assert main(["trust", "show", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["require"][0]["after"] == [line]
    tree.remake(MODEL, [*tree.lines(MODEL), event(tree.lines(MODEL)[1], reason="again")])
    assert resolve(world, tmp_path) == 4
