"""A list in the state line that follows from other keys is not read: a lie in it changes no answer."""

from collections.abc import Callable
from typing import Any

import pytest
from support.trust.tamper import Tree
from support.trust.world import MODEL, World

from onnxreg.cli.main import main

State = dict[str, Any]
Change = Callable[[State], object]

NEWEST: dict[str, Change] = {
    "reordered": lambda state: state["newest"].reverse(),
    "shortened": lambda state: state.update(newest=["1.0.0"]),
    "emptied": lambda state: state.update(newest=[]),
    "removed": lambda state: state.pop("newest"),
    "no list": lambda state: state.update(newest="1.0.0"),
}


@pytest.mark.parametrize("is_seen", [False, True], ids=["new", "seen"])
@pytest.mark.parametrize("lie", NEWEST)
def test_a_newest_that_lies_changes_no_answer(
    world: World, lie: str, is_seen: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    verbs = (
        ["resolve", MODEL, "--json"],
        ["show", MODEL, "--json"],
        ["sbom", MODEL],
        ["diff", f"{MODEL}:1.0.0", MODEL, "--json"],
        ["query", "newest", "--json"],
        ["ls", "--json"],
    )
    answers = []
    if is_seen:
        assert main(["--registry", str(world.tree), "resolve", MODEL]) == 0
        capfd.readouterr()
    for change in (lambda state: None, NEWEST[lie]):
        Tree(world.tree).edit_state(MODEL, change)
        assert [main(["--registry", str(world.tree), *words]) for words in verbs] == [0] * len(verbs)
        answers.append(capfd.readouterr().out)
    assert answers[0] == answers[1]
    assert '"version":"1.1.0"' in answers[1].replace(" ", "")
