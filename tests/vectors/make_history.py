"""Write history.json: an index file, others that come after it, and whether a reader who has seen the first accepts them.

python tests/vectors/make_history.py    # with PYTHONPATH=tests; ids and digests differ from run to run
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from support.registries.gated import NAME, filled
from support.trust.attack_operations import attack
from support.trust.tamper import Tree

from onnxreg.registry import Registry

FILE = Path(__file__).with_name("history.json")
START = "reg rollout start @model:1.1.0 --channel edge --percent 5 --where 'platform = android'"
HONEST = f"""
nothing |
a channel is moved | reg tag @model:1.1.0 edge
a channel is removed | reg untag @model:edge
a version is yanked | reg yank @model:1.0.0
a version is yanked, and not any more | reg yank @model:1.0.0; reg yank @model:1.0.0 --undo
a version is yanked, and published again | reg yank @model:1.0.0; publish 2.0.0 @manifest:1.0.0
another version with the bytes is yanked | publish 2.0.0 @manifest:1.0.0; reg yank @model:2.0.0
a version is pinned | reg pin @model:1.0.0
a version is dropped | reg drop @model:1.3.0
an artifact is refused | refuse 1.0.0
a rollout is started | {START}
a rollout is advanced | {START}; reg rollout advance @model --channel edge --percent 20
a rollout is halted | {START}; reg rollout halt @model --channel edge
a rollout is finished | {START}; reg rollout finish @model --channel edge
a yank ends a rollout | {START}; reg yank @model:1.1.0
a segment is sealed | seal
"""
"""What happens next to the model, by the operations of `support/trust/attack_operations.py`."""
EDGE = "copy versions/{0}/manifest channels/edge/manifest; set channels/edge/version {0}"
TARGET = '{"to": "1.1.0", "manifest": "@manifest:1.1.0", "percent": %s, "salt": "%s", "seq": %s}'
LIES = f"""
a channel was moved back | a channel is moved | {EDGE.format("1.0.0")}
another channel was moved | a version is pinned | {EDGE.format("1.1.0")}
a channel stayed | a channel is removed | set channels/edge '{{"seq": 6}}'; {EDGE.format("1.0.0")}
a channel was added | a version is yanked | copy channels/edge channels/new
a yank was hidden | a version is yanked | delete versions/1.0.0/yanks
a yank was hidden in a later version | a version is yanked, and published again | delete versions/2.0.0/yanks
a yank was hidden in an earlier version | another version with the bytes is yanked | delete versions/1.0.0/yanks
another version was yanked | a channel is moved | set versions/1.0.0/yanks '["@other"]'
a pin was moved | a version is yanked | set versions/1.1.0/pinned true
a version has another manifest | a version is pinned | set versions/1.1.0/manifest @other
a version was invented | a channel is moved | set versions/9.0.0 '{{"manifest": "@other", "size": 1, "seq": "@state:seq"}}'
a refusal was hidden | an artifact is refused | delete versions/1.0.0/attested; delete refused
a channel was moved while a segment was sealed | a segment is sealed | {EDGE.format("1.1.0")}
the share of a rollout was raised | a rollout is started | set rollouts/edge/percent 100
the salt of a rollout was changed | a rollout is advanced | set rollouts/edge/salt {"0" * 32}
the cohort of a rollout was removed | a rollout is started | delete rollouts/edge/where
the target of a rollout was changed | a rollout is started | set rollouts/edge/to 1.0.0; set rollouts/edge/manifest @manifest:1.0.0
a rollout was hidden | a rollout is started | delete rollouts
a rollout was invented | a version is pinned | set rollouts '{{"edge": {TARGET % (100, "0" * 32, '"@state:seq"')}}}'
a halted rollout goes on | a rollout is halted | set rollouts '{{"edge": {TARGET % (5, "0" * 32, 7)}}}'
the log went back | nothing | set seq 5
"""
"""What the state line says then, which the history does not."""


def make(scratch: Path) -> dict[str, Any]:
    vectors, documents = [], {}
    base = filled(scratch / "base")
    base.tag(f"{NAME}:1.0.0", "edge")
    honest = dict(row.split(" |", 1) for row in HONEST.strip().splitlines())
    lies = [row.split(" | ") for row in LIES.strip().splitlines()]
    cases = [(name, deeds, None) for name, deeds in honest.items()]
    cases += [(name, f"{honest[deed]}; {lie}", "integrity") for name, deed, lie in lies]
    for name, deeds, error in cases:
        registry = Registry(shutil.copytree(base.store.root, scratch / name / "home"))
        attack(registry, deeds)
        tree = Tree(registry.store.root)
        state = tree.state(NAME)
        for digest in (*state["segments"], *filter(None, [state.get("checkpoint")])):
            if tree.blob(digest).exists():
                documents[digest] = tree.blob(digest).read_text()
        vectors.append({"name": name, "after": tree.index(NAME).read_text(), "error": error})
    return {
        "format": "onnxreg-history-vectors",
        "format_version": 1,
        "before": base.tree.index(NAME).read_text(),
        "documents": documents,
        "vectors": vectors,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        FILE.write_text(json.dumps(make(Path(scratch)), indent=1) + "\n", "utf-8")
