"""Where signatures begin in a log, copies that must be signed, and texts of signatures that have one form only."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from support.trust.tamper import Line, Tree, chained, digest_of, event, unsigned
from support.trust.world import MODEL, OTHER

from .conftest import User

BEGIN = 6
"""The first line that must be signed: the lines before it are those of a log that began without signatures."""


def begin_unsigned(user: User) -> None:
    """Lines before `BEGIN` are unsigned, the others are signed."""
    lines = user.tree.lines(MODEL)
    mixed = [unsigned(line) for line in lines[: BEGIN - 1]] + lines[BEGIN - 1 :]
    user.tree.remake(MODEL, mixed, user.world.release, only=(BEGIN - 1, None))


def anchor(tree: Tree, seq: int = BEGIN - 1) -> str:
    head = digest_of(chained(tree.lines(MODEL), tree.id, MODEL)[seq - 1])
    return f'after = [{{registry = "{tree.id}", model = "{MODEL}", seq = {seq}, head = "{head}"}}]'


def write_trust(user: User, *more: str) -> None:
    user.trusts("[[require]]", 'models = ["acme/*"]', "lines = true", *more)


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
def test_a_log_that_began_without_signatures(user: User, log: str, has_anchor: bool) -> None:
    """With a line number alone the last line must be signed; with a digest the log must have that very line."""
    begin_unsigned(user)
    write_trust(user, anchor(user.tree) if has_anchor else f"since = {BEGIN}")
    change, *statuses = LOGS[log]
    user.tree.remake(MODEL, change(user.tree.lines(MODEL)))
    assert user.resolve() == statuses[has_anchor]


def test_a_short_log_that_is_signed_keeps_any_since(user: User) -> None:
    write_trust(user, "since = 1000")
    assert user.resolve(OTHER) == 0


def test_an_anchor_of_another_model_or_registry_says_nothing(user: User) -> None:
    begin_unsigned(user)
    text = anchor(user.tree)
    for wrong in (text.replace(MODEL, OTHER), text.replace(user.tree.id, "0" * 32)):
        write_trust(user, wrong)
        assert user.resolve() == 4


def test_an_anchor_is_written_from_what_reg_trust_shows(
    user: User, capfd: pytest.CaptureFixture[str]
) -> None:
    def shown() -> Any:
        capfd.readouterr()
        assert user.home.reg("trust", "show", "--json") == 0
        return json.loads(capfd.readouterr().out)

    tree = user.tree
    tree.remake(MODEL, [unsigned(line) for line in tree.lines(MODEL)])
    user.trusts()
    assert user.resolve() == 0
    known = next(head for head in shown()["heads"] if head["name"] == MODEL)
    line = {"registry": tree.id, "model": MODEL, "seq": known["seq"], "head": known["head"]}
    text = ", ".join(f"{key} = {json.dumps(value)}" for key, value in line.items())
    write_trust(user, f"after = [{{{text}}}]")
    assert user.resolve() == 0
    assert shown()["require"][0]["after"] == [line]
    tree.remake(MODEL, [*tree.lines(MODEL), event(tree.lines(MODEL)[1], reason="again")])
    assert user.resolve() == 4
