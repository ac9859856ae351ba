"""The state line is held against the log: what follows from other keys is not read, and the rest must be what the lines made.

Readers: `new` knows nothing, `seen` looked before the attack. Each case edits the state line and leaves the chain intact.
"""

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.sampling import sampled
from support.trust.tamper import Line, Tree
from support.trust.world import LONG, MODEL, World

from onnxreg.cli.main import main
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.trust.checked_reader import CheckedReader
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ForkError, IntegrityError
from onnxreg.schema.core.ref import Ref

State = dict[str, Any]
Change = Callable[[State], object]
OTHER = str(Digest.of(b"other"))

NEWEST: dict[str, Change] = {
    "reordered": lambda state: state["newest"].reverse(),
    "shortened": lambda state: state.update(newest=["1.0.0"]),
    "emptied": lambda state: state.update(newest=[]),
    "removed": lambda state: state.pop("newest"),
    "no list": lambda state: state.update(newest="1.0.0"),
}


def look(world: World, name: str = MODEL) -> None:
    CheckedReader(DirectoryRegistry(world.tree), KnownHeads()).read_index(name)


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
        look(world)
    for change in (lambda state: None, NEWEST[lie]):
        Tree(world.tree).edit_state(MODEL, change)
        assert [main(["--registry", str(world.tree), *words]) for words in verbs] == [0] * len(verbs)
        answers.append(capfd.readouterr().out)
    assert answers[0] == answers[1]
    assert '"version":"1.1.0"' in answers[1].replace(" ", "")


def hide_the_newest(state: State) -> None:
    for table in ("versions", "summaries"):
        del state[table]["1.1.0"]
    state["channels"]["stable"] |= {
        "version": "1.0.0",
        "manifest": state["versions"]["1.0.0"]["manifest"],
    }


def entry(state: State, version: str = "1.1.0") -> Any:
    return state["versions"][version]


def artifact(state: State) -> Any:
    return state["summaries"]["1.1.0"]["artifacts"][0]


STATES: dict[str, Change] = {
    "the newest version is hidden": hide_the_newest,
    "a version that no channel holds is hidden": lambda state: state["versions"].pop("1.0.0"),
    "a version is yanked": lambda state: entry(state).update(yanks=[OTHER]),
    "a yank is taken back": lambda state: entry(state, "0.9.0").pop("yanks"),
    "a version is gone": lambda state: entry(state).update(gone={"how": "expired", "event": OTHER}),
    "a version is pinned": lambda state: entry(state).update(pinned=True),
    "only some artifacts are held": lambda state: entry(state).update(held=["model.onnx"]),
    "an artifact is refused": lambda state: state.update(refused=[artifact(state)["digest"]]),
    "an artifact is attested": lambda state: entry(state).update(attested={OTHER: "refused"}),
    "a blob is taken down": lambda state: state.update(tombstones=[OTHER]),
    "a version has another size": lambda state: entry(state).update(size=7),
    "a version has another line": lambda state: entry(state).update(seq=1),
    "a channel is added": lambda state: state["channels"].update(beta=state["channels"]["stable"]),
    "a channel is removed": lambda state: state["channels"].pop("stable"),
    "a channel names a policy": lambda state: state["channels"]["stable"].update(policy=OTHER),
}
SUMMARIES: dict[str, Change] = {
    "an artifact has a recall": lambda state: artifact(state).update(recall={"NAME": 1.0}),
    "an artifact has another opset": lambda state: artifact(state).update(opset=1),
    "an artifact has operators": lambda state: artifact(state).update(operators=OTHER),
    "an artifact has a sidecar": lambda state: artifact(state).update(
        files=[{"role": "external-data", "path": "x", "digest": OTHER, "size": 1}]
    ),
    "an artifact is of a stage": lambda state: artifact(state).update(member="ocr"),
    "a version has another license": lambda state: state["summaries"]["1.1.0"].update(license="free"),
    "a version has another task": lambda state: state["summaries"]["1.1.0"].update(task="other"),
}


@pytest.mark.parametrize("change", [*STATES, *SUMMARIES])
def test_the_same_head_with_another_state_is_refused_by_who_has_seen_it(world: World, change: str) -> None:
    look(world)
    Tree(world.tree).edit_state(MODEL, (STATES | SUMMARIES)[change])
    with pytest.raises(IntegrityError):
        look(world)


@pytest.mark.parametrize("change", STATES)
def test_a_newcomer_recomputes_what_a_whole_log_decides(world: World, change: str) -> None:
    Tree(world.tree).edit_state(MODEL, STATES[change])
    with pytest.raises(IntegrityError):
        look(world)


EVENTS = (0, 1, 2, 63, 64, 65, 66, 70, 130, 131)
Grow = Callable[..., None]


@pytest.fixture(scope="module")
def grow(template: World, tmp_path_factory: pytest.TempPathFactory) -> Grow:
    """An honest publisher moves a channel of a model: the tree becomes that after so many events, all of one history."""

    @cache
    def history(name: str) -> Path:
        root = tmp_path_factory.mktemp("history")
        tree = Path(shutil.copytree(template.tree, root / "tree"))
        for number in range(max(EVENTS) + 1):
            if number in EVENTS:
                shutil.copytree(tree, root / str(number))
            Decisions(DirectoryRegistry(tree)).tag(Ref(name, f"1.{number % 2}.0"), "beta")
        return root

    def grow(world: World, name: str = MODEL, events: int = 1) -> None:
        shutil.rmtree(world.tree)
        shutil.copytree(history(name) / str(events), world.tree)

    return grow


@pytest.mark.parametrize("change", [*STATES, *SUMMARIES])
def test_new_lines_are_replayed_on_the_state_that_was_seen(world: World, grow: Grow, change: str) -> None:
    look(world)
    grow(world)
    Tree(world.tree).edit_state(MODEL, (STATES | SUMMARIES)[change])
    with pytest.raises(IntegrityError):
        look(world)


LONG_STATES: dict[str, Change] = {
    "a sealed version is yanked": lambda state: entry(state).update(yanks=[OTHER]),
    "a sealed version is hidden": lambda state: [
        state[key].pop("1.0.0") for key in ("versions", "summaries")
    ],
    "a channel is moved": lambda state: state["channels"]["stable"].update(seq=1),
    "another catalog": lambda state: state.update(catalog=OTHER),
    "an artifact is refused": lambda state: state.update(refused=[OTHER]),
    "a blob is taken down": lambda state: state.update(tombstones=[OTHER]),
    "a sealed version is pinned": lambda state: entry(state).update(pinned=True),
}


@pytest.mark.parametrize("is_collected", [False, True], ids=["catalog", "no catalog"])
@pytest.mark.parametrize("events", sampled([0, 1, 64], 2))
@pytest.mark.parametrize("change", LONG_STATES)
def test_a_long_log_is_followed_over_a_sealing(
    world: World, grow: Grow, change: str, events: int, is_collected: bool
) -> None:
    """Also where the catalog that was known has been collected since: then the whole log is read."""
    look(world, LONG)
    tree = Tree(world.tree)
    known = tree.state(LONG)["catalog"]
    grow(world, LONG, events)
    if is_collected and tree.state(LONG)["catalog"] != known:
        tree.blob(known).unlink()
    if change == "a sealed version is hidden" and events == 64:
        tree.edit_state(LONG, lambda state: state["channels"].pop("beta"))
    else:
        tree.edit_state(LONG, LONG_STATES[change])
    with pytest.raises(IntegrityError):
        look(world, LONG)


@pytest.mark.parametrize("events", [0, 1, 63, 64, 65, 130])
def test_an_honest_long_log_is_followed(world: World, grow: Grow, events: int) -> None:
    look(world, LONG)
    grow(world, LONG, events)
    look(world, LONG)
    grow(world, LONG, events + 1)
    look(world, LONG)


VISIBLE: dict[str, tuple[Line, Change]] = {
    "pinned": ({"kind": "pin"}, lambda state: entry(state).pop("pinned")),
    "not held": (
        {"kind": "hold", "paths": ["model.onnx"]},
        lambda state: entry(state).pop("held"),
    ),
    "yanked": ({"kind": "yank"}, lambda state: entry(state).pop("yanks")),
    "refused": (
        {
            "kind": "attest",
            "statement": OTHER,
            "media_type": "text/plain",
            "artifact": OTHER,
            "state": "refused",
        },
        lambda state: state.pop("refused"),
    ),
}


@pytest.mark.parametrize("case", VISIBLE)
def test_a_newcomer_to_a_sealed_log_recomputes_what_its_visible_lines_decide(world: World, case: str) -> None:
    tree = Tree(world.tree)
    event, change = VISIBLE[case]
    about = {"version": "1.1.0"} if event["kind"] != "attest" else {}
    manifest = tree.state(LONG)["versions"]["1.1.0"]["manifest"]
    base = {"name": LONG, "nonce": "0" * 32, "time": "2026-01-01T00:00:00Z", "manifest": manifest}
    tree.remake(LONG, [*tree.lines(LONG), {"event": {**base, **about, **event}}])
    look(world, LONG)
    KnownHeads().reset(tree.id)
    tree.edit_state(LONG, change)
    with pytest.raises(IntegrityError):
        look(world, LONG)


def test_a_copy_that_is_behind_is_held_against_its_own_lines(world: World, tmp_path: Path) -> None:
    look(world)
    old = Path(shutil.copytree(world.old, tmp_path / "old"))
    Tree(old).edit_state(MODEL, STATES["a version is pinned"])
    with pytest.raises(IntegrityError):
        CheckedReader(DirectoryRegistry(old), KnownHeads()).read_index(MODEL)


@pytest.mark.parametrize("events", [0, 1])
@pytest.mark.parametrize("where", ["state", "entry", "summary"])
def test_keys_of_a_newer_build_are_not_compared(world: World, grow: Grow, where: str, events: int) -> None:
    look(world)
    grow(world, events=events)

    def change(state: State) -> None:
        {"state": state, "entry": entry(state), "summary": artifact(state)}[where]["later"] = [1]

    Tree(world.tree).edit_state(MODEL, change)
    look(world)


def test_a_known_head_of_an_older_build_is_read(world: World, grow: Grow) -> None:
    """Its file lacks the whole state: the next index file is held against channels and versions, and then remembered."""
    look(world)
    tree, heads = Tree(world.tree), KnownHeads()
    (path,) = [path for path in heads._root.rglob("*.json") if path.stem == "pii"]
    value = json.loads(path.read_bytes())
    for key in ("tombstones", "refused", "summaries"):
        del value[key]
    path.write_bytes(json.dumps(value).encode())
    grow(world)
    look(world)
    known = heads.read(tree.id, MODEL)
    assert known is not None and known.has_state
    assert canonical.encode(known.to_json())


GARBLED: dict[str, tuple[str, Change]] = {
    **{name: (MODEL, change) for name, change in SUMMARIES.items()},
    "another digest of an artifact": (MODEL, lambda state: artifact(state).update(digest=OTHER)),
    "another size of an artifact": (MODEL, lambda state: artifact(state).update(size=1)),
    **{
        name: (LONG, LONG_STATES[name])
        for name in ("a sealed version is yanked", "a blob is taken down", "a sealed version is pinned")
    },
}


@pytest.mark.parametrize("events", sampled([0, 1, 70], 2))
@pytest.mark.parametrize("case", GARBLED)
def test_a_garbled_state_of_the_first_contact_is_corrected(
    world: World, grow: Grow, case: str, events: int
) -> None:
    """No line that the newcomer saw contradicts it; the whole log and the manifests prove the honest state later."""
    name, change = GARBLED[case]
    tree = Tree(world.tree)
    honest = tree.index(name).read_bytes()
    tree.edit_state(name, change)
    look(world, name)
    tree.overwrite(tree.index(name), honest)
    grow(world, name, events)
    look(world, name)
    known = KnownHeads().read(tree.id, name)
    assert known is not None
    assert known.index == Digest.of(tree.index(name).read_bytes()).hex
    tree.edit_state(name, change)
    with pytest.raises(IntegrityError):
        look(world, name)


@pytest.mark.parametrize("name", [MODEL, LONG])
@pytest.mark.parametrize(
    "change",
    [
        lambda state: state["summaries"]["1.1.0"].update(manifest=OTHER),
        lambda state: state["summaries"]["1.1.0"].update(size=1),
        lambda state: state["summaries"].update({"1.1.0": state["summaries"]["1.0.0"]}),
        lambda state: state["summaries"].update({"1.1.0": []}),
        lambda state: state["summaries"].update({"9.0.0": state["summaries"]["1.0.0"]}),
    ],
)
def test_a_summary_of_another_manifest_is_not_remembered(world: World, name: str, change: Change) -> None:
    tree = Tree(world.tree)
    honest = tree.index(name).read_bytes()
    tree.edit_state(name, change)
    with pytest.raises(IntegrityError):
        look(world, name)
    assert KnownHeads().read(tree.id, name) is None
    tree.overwrite(tree.index(name), honest)
    look(world, name)


def test_a_garbled_state_hides_no_fork(world: World) -> None:
    """Another log is refused, however well its own lines prove its state."""
    tree = Tree(world.tree)
    tree.edit_state(MODEL, SUMMARIES["a version has another task"])
    look(world)
    lines = tree.lines(MODEL)
    tree.remake(MODEL, [*lines[:-1], {"event": {**lines[-1]["event"], "nonce": "0" * 32}}])
    with pytest.raises(ForkError):
        look(world)


@pytest.mark.parametrize("where", ["state", "entry", "summary"])
def test_keys_of_a_newer_build_are_no_broken_signature(world: World, where: str, own_user: Path) -> None:
    """A reader who demands signed lines replays the whole log, and compares what both builds know."""
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text(
        world.trust("[[require]]", 'models = ["acme/*"]', "lines = true", "versions = true")
    )

    def change(state: State) -> None:
        {"state": state, "entry": entry(state), "summary": artifact(state)}[where]["later"] = [1]

    Tree(world.tree).edit_state(MODEL, change)
    look(world)
    Tree(world.tree).edit_state(MODEL, NEWEST["emptied"])
    with pytest.raises(IntegrityError):
        look(world)
