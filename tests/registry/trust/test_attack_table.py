"""The attacks of attacks.toml, each before the readers that it names."""

import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.trust.attack_operations import Histories, Scene, files_of
from support.trust.world import LONG, MODEL, OTHER, World

from onnxreg.cli.main import main
from onnxreg.registry.signing import generate

TABLE = tomllib.loads((Path(__file__).parent / "attacks.toml").read_text())
READERS = TABLE.pop("readers")
STATUSES = {"accepted": 0, "missing": 3, "integrity": 4, "conflict": 5, "gate": 8}
STABLE = f"{MODEL}:stable"
MARKS: Any = ((), *[pytest.mark.more] * 4)
"""`make test` has each fifth case, and `make test-more` the others."""


def cases() -> Iterator[Any]:
    number = 0
    for section, rows in TABLE.items():
        for name, row in rows.items():
            for reader in filter(row.__contains__, READERS):
                number += 1
                yield pytest.param(
                    row, reader, id=f"{section}: {name}: {reader}", marks=MARKS[number % len(MARKS)]
                )


@pytest.fixture(scope="session")
def histories(template, tmp_path_factory) -> Histories:
    return Histories(template.tree, tmp_path_factory.mktemp("histories"))


@pytest.fixture
def scene(request, tmp_path, histories) -> Scene:
    row = request.getfixturevalue("row")
    if row.get("world") == "gated":
        tree = request.getfixturevalue("gated").store.root
        world = World(tree, tree, tree, *(generate("ed25519") for _ in range(3)))
        scene = Scene(tmp_path, world, MODEL, histories)
        scene.reg("promote", f"{MODEL}:1.0.0", "stable")
        return scene
    return Scene(tmp_path, request.getfixturevalue("world"), row.get("model", MODEL), histories)


def command(verb: str, ref: str, place: Path, own: Path) -> list[str]:
    """The words of a reader's verb, or of a verb of the owner of the place."""
    match verb:
        case "resolve":
            return ["--registry", str(own), "resolve", ref, "--remote", str(place)]
        case "pull":
            return ["--registry", str(own), "pull", ref, str(place)]
        case "verify":
            return ["--registry", str(own), "verify", "--remote", str(place)]
        case "gc-there":
            return ["--registry", str(own), "gc", "--remote", str(place)]
    name = ref.partition(":")[0]
    words = {
        "tag": ["tag", f"{name}:1.0.0", "next"],
        "untag": ["untag", f"{name}:stable"],
        "yank": ["yank", f"{name}:1.0.0"],
        "pin": ["pin", f"{name}:1.0.0"],
        "drop": ["drop", f"{name}:0.9.0"],
        "purge": ["purge", f"{name}:0.9.0", "--reason", "asked to"],
        "gc": ["gc"],
        "resolve-here": ["resolve", ref],
        "verify-here": ["verify"],
    }
    return ["--registry", str(place), *words[verb]]


@pytest.mark.parametrize(("row", "reader"), list(cases()))
def test_the_verdict_of_an_attack(row, reader, scene, tmp_path, own_user, monkeypatch, capfd):
    """Each verb begins with what the reader knew before it."""
    who = READERS[reader]
    ref = row.get("ref", STABLE if row.get("world") == "gated" else scene.name)
    scene.do(row.get("first", ""))
    own_user.mkdir(parents=True, exist_ok=True)
    if "trust" in who:
        (own_user / "trust").write_text(scene.world.trust(who["trust"]))
    if who.get("looks"):
        for name in {ref, scene.name} | ({OTHER, LONG} if "world" not in row else set()):
            main(command("resolve", name, scene.tree.root, tmp_path / "looking"))
    scene.do(who.get("then", ""))
    scene.do(row["does"])
    verbs = who.get("verbs", "resolve pull verify").split()
    verdicts = []
    before = files_of(scene.tree.root)
    for verb in verbs:
        own, state = tmp_path / f"own {verb}", tmp_path / f"state {verb}"
        if (own_user / "state").exists():
            shutil.copytree(own_user / "state", state)
        monkeypatch.setenv("REG_STATE", str(state))
        status = main(command(verb, ref, scene.tree.root, own))
        verdicts.append(next((word for word, code in STATUSES.items() if code == status), str(status)))
        if status:
            assert files_of(scene.tree.root) == before
            assert not list((own / "index").rglob("*.jsonl"))
    expected = row[reader].split()
    assert verdicts == (expected * len(verbs) if len(expected) == 1 else expected), "".join(
        capfd.readouterr()
    )
