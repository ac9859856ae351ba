"""Write history.json: an index file, others that come after it, and whether a reader who has seen the first accepts them.

python tests/vectors/make_history.py    # with PYTHONPATH=tests; ids and digests differ from run to run
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.registries import owner
from support.registries.gated import NAME, filled, refusal
from support.registries.timed import check, record
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref, Version

FILE = Path(__file__).with_name("history.json")
OTHER = f"sha256:{'0' * 64}"
Change = Callable[[Any], object]


def manifest(registry: Registry, version: str) -> Digest:
    return registry.state(NAME).versions[Version.parse(version)].manifest


def channel(state: Any, tag: str, version: str) -> None:
    state["channels"][tag] |= {"version": version, "manifest": state["versions"][version]["manifest"]}


def start(registry: Registry) -> object:
    return owner.rollouts(registry).start(Ref.parse(f"{NAME}:1.1.0"), "edge", 5, "platform = android")


DEEDS: dict[str, Callable[[Registry], object]] = {
    "nothing": lambda registry: None,
    "a channel is moved": lambda registry: registry.tag(f"{NAME}:1.1.0", "edge"),
    "a channel is removed": lambda registry: owner.untag(registry, NAME, "edge"),
    "a version is yanked": lambda registry: registry.yank(f"{NAME}:1.0.0"),
    "a version is yanked, and not any more": lambda registry: (
        registry.yank(f"{NAME}:1.0.0"),
        registry.yank(f"{NAME}:1.0.0", undo=True),
    ),
    "a version is yanked, and published again": lambda registry: (
        registry.yank(f"{NAME}:1.0.0"),
        registry.publisher(Version(2, 0, 0)).add_again(manifest(registry, "1.0.0")),
    ),
    "another version with the bytes is yanked": lambda registry: (
        registry.publisher(Version(2, 0, 0)).add_again(manifest(registry, "1.0.0")),
        registry.yank(f"{NAME}:2.0.0"),
    ),
    "a version is pinned": lambda registry: owner.pin(registry, f"{NAME}:1.0.0"),
    "a version is dropped": lambda registry: owner.drop(registry, f"{NAME}:1.3.0"),
    "an artifact is refused": lambda registry: owner.attest(
        registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0")
    ),
    "an artifact is timed": lambda registry: record(registry, f"{NAME}:1.0.0", check(1.5)),
    "a rollout is started": lambda registry: start(registry),
    "a rollout is advanced": lambda registry: (
        start(registry),
        owner.rollouts(registry).advance(NAME, "edge", 20),
    ),
    "a rollout is halted": lambda registry: (start(registry), owner.rollouts(registry).halt(NAME, "edge")),
    "a rollout is finished": lambda registry: (
        start(registry),
        owner.rollouts(registry).finish(NAME, "edge"),
    ),
    "a yank ends a rollout": lambda registry: (start(registry), registry.yank(f"{NAME}:1.1.0")),
    "a segment is sealed": lambda registry: [
        (registry.tag(f"{NAME}:1.0.0", "beta"), registry.tag(f"{NAME}:1.1.0", "beta")) for _ in range(35)
    ],
}
LIES: dict[str, tuple[str, Change]] = {
    "a channel was moved back": ("a channel is moved", lambda state: channel(state, "edge", "1.0.0")),
    "another channel was moved": ("a version is pinned", lambda state: channel(state, "edge", "1.1.0")),
    "a channel stayed": (
        "a channel is removed",
        lambda state: state["channels"].update(
            edge={"version": "1.0.0", "manifest": state["versions"]["1.0.0"]["manifest"], "seq": 6}
        ),
    ),
    "a channel was added": (
        "a version is yanked",
        lambda state: state["channels"].update(new=next(iter(state["channels"].values()))),
    ),
    "a yank was hidden": ("a version is yanked", lambda state: state["versions"]["1.0.0"].pop("yanks")),
    "a yank was hidden in a later version": (
        "a version is yanked, and published again",
        lambda state: state["versions"]["2.0.0"].pop("yanks"),
    ),
    "a yank was hidden in an earlier version": (
        "another version with the bytes is yanked",
        lambda state: state["versions"]["1.0.0"].pop("yanks"),
    ),
    "another version was yanked": (
        "a channel is moved",
        lambda state: state["versions"]["1.0.0"].update(yanks=[OTHER]),
    ),
    "a pin was moved": ("a version is yanked", lambda state: state["versions"]["1.1.0"].update(pinned=True)),
    "a version has another manifest": (
        "a version is pinned",
        lambda state: state["versions"]["1.1.0"].update(manifest=OTHER),
    ),
    "a version was invented": (
        "a channel is moved",
        lambda state: state["versions"].update(
            {"9.0.0": {"manifest": OTHER, "size": 1, "seq": state["seq"]}}
        ),
    ),
    "a refusal was hidden": (
        "an artifact is refused",
        lambda state: (state["versions"]["1.0.0"].pop("attested"), state.pop("refused")),
    ),
    "a channel was moved while a segment was sealed": (
        "a segment is sealed",
        lambda state: channel(state, "edge", "1.1.0"),
    ),
    "the share of a rollout was raised": (
        "a rollout is started",
        lambda state: state["rollouts"]["edge"].update(percent=100),
    ),
    "the salt of a rollout was changed": (
        "a rollout is advanced",
        lambda state: state["rollouts"]["edge"].update(salt="0" * 32),
    ),
    "the cohort of a rollout was removed": (
        "a rollout is started",
        lambda state: state["rollouts"]["edge"].pop("where"),
    ),
    "the target of a rollout was changed": (
        "a rollout is started",
        lambda state: state["rollouts"]["edge"].update(
            to="1.0.0", manifest=state["versions"]["1.0.0"]["manifest"]
        ),
    ),
    "a rollout was hidden": ("a rollout is started", lambda state: state.pop("rollouts")),
    "a rollout was invented": (
        "a version is pinned",
        lambda state: state.update(
            rollouts={
                "edge": {
                    "to": "1.1.0",
                    "manifest": state["versions"]["1.1.0"]["manifest"],
                    "percent": 100,
                    "salt": "0" * 32,
                    "seq": state["seq"],
                }
            }
        ),
    ),
    "a halted rollout goes on": (
        "a rollout is halted",
        lambda state: state.update(
            rollouts={
                "edge": {
                    "to": "1.1.0",
                    "manifest": state["versions"]["1.1.0"]["manifest"],
                    "percent": 5,
                    "salt": "0" * 32,
                    "seq": state["seq"] - 1,
                }
            }
        ),
    ),
    "the log went back": ("nothing", lambda state: state.update(seq=state["seq"] - 1)),
}


def make(scratch: Path) -> dict[str, Any]:
    vectors, documents = [], {}
    base = filled(scratch / "base")
    base.tag(f"{NAME}:1.0.0", "edge")
    honest = [(deed, deed, lambda state: None) for deed in DEEDS]
    for name, deed, change in [*honest, *((lie, *LIES[lie]) for lie in LIES)]:
        os.environ["REG_STATE"] = str(scratch / f"state of {name}")
        registry = Registry(shutil.copytree(base.store.root, scratch / name))
        DEEDS[deed](registry)
        tree = Tree(registry.store.root)
        tree.edit_state(NAME, change)
        state = tree.state(NAME)
        for digest in (*state["segments"], *([state["catalog"]] if "catalog" in state else ())):
            documents[digest] = tree.blob(digest).read_text()
        vectors.append(
            {
                "name": name,
                "after": tree.index(NAME).read_text(),
                "error": "integrity" if name in LIES else None,
            }
        )
    return {
        "format": "onnxreg-history-vectors",
        "format_version": 1,
        "before": Tree(base.store.root).index(NAME).read_text(),
        "documents": documents,
        "vectors": vectors,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        FILE.write_text(json.dumps(make(Path(scratch)), indent=1) + "\n", "utf-8")
