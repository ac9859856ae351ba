"""Write behaviour.json: what a device's client answers, step by step, while a registry changes and its server fails.

python tests/vectors/make_behaviour.py    # with PYTHONPATH=tests; ids and digests differ from run to run

A line of SCRIPTS with `=` or `!` is a call of the client with the answer that it must give. Other lines change the registry:
by a method of Script, or as `reg` does (`@1.0.0` is that version of the model).
"""

import json
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Any

from support.registries import owner
from support.registries.for_devices import CHECKS, LIES, publish
from support.registries.gated import refusal_of
from support.trust.tamper import canonical_json

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry

FILE = Path(__file__).with_name("behaviour.json")
NAME = "acme/pii"
ANDROID, IOS = ({"ort": "1.30", "platform": platform} for platform in ("android", "ios"))
WORDS: dict[str, Any] = {
    "certified": {"query": {"certified": True}},
    "tiny": {"query": {"max_size": 10}},
    "recall": {"query": {"where": "metric['character_recall/NAME'] >= 0.9"}},
    "android": {"device": ANDROID},
    "ios": {"device": IOS},
    "stays-out": {"seed": None},
    "misspelt": {"query": {"certificated": True}},
}
"""What the words of a call put into its question; `@stable` is its tag."""
FAULTS = ("down", "garbled", "absent")
"""No request is answered; each blob has a wrong byte; no blob is there."""
SCRIPTS = """
nothing new changes nothing, and the files that are here serve without a network
  publish 1.0.0
  update = 1.0.0 changed
  update = 1.0.0
  update down = 1.0.0 offline
  resolve down = 1.0.0 offline

a new device needs the network
  publish 1.0.0
  update down ! remote current:none
  update = 1.0.0 changed

wrong and missing bytes leave the device with what it has
  publish 1.0.0
  update garbled ! integrity current:none
  update = 1.0.0 changed
  publish 1.1.0
  update garbled ! integrity current:1.0.0
  update absent ! not-found current:1.0.0
  update = 1.1.0 changed previous:1.0.0

a question that means nothing, names nothing or is met by nothing changes nothing
  publish 1.0.0; tag @1.0.0 stable
  update @stable = 1.0.0 changed
  update @prod ! not-found current:1.0.0
  update @2.0.0 ! not-found current:1.0.0
  update tiny ! not-found current:1.0.0
  update misspelt ! input current:1.0.0

a release that was rolled back is not taken again
  publish 1.0.0
  update = 1.0.0 changed
  rollback ! not-found current:1.0.0
  publish 1.1.0
  update = 1.1.0 changed previous:1.0.0
  rollback down = 1.0.0 previous:none
  rollback down ! not-found current:1.0.0
  update = 1.0.0
  publish 1.2.0
  update = 1.2.0 changed previous:1.0.0
  rollback = 1.0.0
  clear
  update = 1.2.0 changed

no device goes back to a yanked release
  publish 1.0.0
  update = 1.0.0 changed
  publish 1.1.0
  update = 1.1.0 changed
  yank @1.0.0
  resolve = 1.1.0
  tag @1.1.0 stable
  resolve = 1.1.0
  rollback down ! not-found current:1.1.0 previous:1.0.0
  yank @1.0.0 --undo
  update = 1.1.0
  rollback = 1.0.0
  update = 1.0.0

no device stays on a yanked release
  publish 1.0.0
  update = 1.0.0 changed
  publish 1.1.0
  update = 1.1.0 changed
  rollback = 1.0.0
  yank @1.0.0
  update ! not-found current:none previous:none
  clear
  update = 1.1.0 changed

a yank of a channel's release brings the one before
  publish 1.0.0; tag @1.0.0 stable
  update @stable = 1.0.0 changed
  publish 1.1.0; tag @1.1.0 stable
  update @stable = 1.1.0 changed
  yank @1.1.0
  update @stable = 1.0.0 changed
  update @stable = 1.0.0
  rollback ! not-found current:1.0.0

a yank lets the newest release before it answer
  publish 1.0.0; publish 1.1.0
  update = 1.1.0 changed
  yank @1.1.0
  update = 1.0.0 changed
  yank @1.1.0 --undo
  update = 1.1.0 changed

a rollout reaches the devices that take part
  publish 1.0.0; tag @1.0.0 stable; publish 2.0.0
  update @stable = 1.0.0 changed
  rollout start @2.0.0 --channel stable --percent 100
  resolve @stable stays-out = 1.0.0
  update @stable = 2.0.0 changed
  rollout finish @ --channel stable
  resolve @stable stays-out = 2.0.0

a cohort is told by the device document
  publish 1.0.0; tag @1.0.0 stable; publish 2.0.0
  rollout start @2.0.0 --channel stable --percent 100 --where "platform = android"
  update @stable = 1.0.0 changed
  update @stable ios = 1.0.0
  update @stable android = 2.0.0 changed

no device stays on a halted release or goes back to it
  publish 1.0.0; tag @1.0.0 stable; publish 2.0.0
  update @stable = 1.0.0 changed
  rollout start @2.0.0 --channel stable --percent 100
  update @stable = 2.0.0 changed
  rollout halt @ --channel stable
  update @stable = 1.0.0 changed
  rollback down ! not-found current:1.0.0
  update @stable down = 1.0.0 offline
  rollout start @2.0.0 --channel stable --percent 100
  update @stable = 2.0.0 changed
  rollout finish @ --channel stable
  publish 3.0.0; tag @3.0.0 stable
  update @stable = 3.0.0 changed
  rollback = 2.0.0

a file that fails its self-test is refused, and the next certified one is tried
  publish 1.0.0
  update bad:model_int8.onnx = 1.0.0 fp16 changed ran:model_int8.onnx,model_fp16.onnx
  update bad: = 1.0.0 fp16 ran:
  resolve = 1.0.0 fp16 codes:not-certified,failed
  clear
  update = 1.0.0 changed

a release that fails whole is not taken, and the one before stays
  publish 1.0.0
  update bad:1.0.0 ! self-test current:none ran:model_int8.onnx,model_fp16.onnx
  update bad: ! not-found current:none ran:
  publish 1.1.0
  update bad: = 1.1.0 changed
  publish 1.2.0
  update throws ! self-test current:1.1.0
  update = 1.1.0
  publish 1.3.0
  update bad:1.3.0 ! self-test current:1.1.0
  update bad:1.3.0 = 1.1.0 ran:

a channel whose release failed here leaves the device where it is, also without a network
  publish 1.0.0; tag @1.0.0 stable
  update @stable = 1.0.0 changed
  publish 1.1.0; tag @1.1.0 stable
  update @stable bad:1.1.0 ! self-test current:1.0.0
  update @stable = 1.0.0
  update @stable down = 1.0.0 offline

a later evaluation that refuses a file takes its certificate away
  publish 1.0.0
  update certified = 1.0.0 changed
  refuse 1.0.0
  resolve certified = 1.0.0 fp16

an edge that is behind changes nothing
  publish 1.0.0
  update = 1.0.0 changed
  publish 1.1.0
  update = 1.1.0 changed
  back 1
  resolve = 1.1.0 stale
  update = 1.1.0
  cached 1
  resolve = 1.1.0
  publish 1.2.0
  cached 1
  update = 1.2.0 changed

another history is refused, also a shorter one
  publish 1.0.0
  fork
  publish 1.1.0; publish 1.2.0
  update = 1.2.0 changed
  other 1.1.1
  resolve ! integrity current:1.2.0
  home
  update = 1.2.0

another registry of the same name is refused
  publish 1.0.0
  update = 1.0.0 changed
  replaced 1.0.0 1.0.1
  update ! integrity current:1.0.0

an index file that its lines or its manifest contradict is refused, and blocks nobody once it is right
  publish 1.0.0
  lie '"state":"unknown"' '"state":"certified"'
  update ! integrity current:none
  lie '"opset":18' '"opset":17'
  update ! integrity current:none
  lie '"precision":"int8"' '"precision":"int4"'
  update ! integrity current:none
  lie '"seq":' '"seq":1'
  update ! integrity current:none
  lie '"name":"acme/pii"' '"name":"acme/pij"'
  update ! integrity current:none
  lie publish unknown
  update ! integrity current:none
  lie '"opset":18' '"opset":"x"'
  update ! integrity current:none
  update = 1.0.0 changed

figures of an index file that its manifest does not have are refused
  measure 1.0.0
  lie '"sts/spearman":0.83' '"sts/spearman":0.99'
  update recall ! integrity current:none
  lie '"sts/spearman":0.83' '"f1":0.99'
  update recall ! integrity current:none
  lie '"metrics":{"sts/spearman":0.83}' '"metrics":{}'
  update recall ! integrity current:none
  update recall = 1.0.0 changed

the first state must be what its lines say
  publish 1.0.0
  edit 'a channel is added'
  resolve ! integrity

keys of a newer build are not compared
  publish 1.0.0; tag @1.0.0 stable
  resolve = 1.0.0
  edit 'a newer build writes more'
  update = 1.0.0 changed
"""
SCRIPTS += "".join(
    f"\nthe log is as it was, and {lie}\n  publish 1.0.0; publish 1.1.0\n  resolve = 1.1.0\n  edit '{lie}'\n"
    "  resolve ! integrity\n  home\n  resolve = 1.1.0\n"
    for lie in LIES
)


def add_keys(state: Any) -> None:
    tables = (state["channels"]["stable"], state["versions"]["1.0.0"], state["summaries"]["1.0.0"])
    for table in (state, *tables, *state["summaries"]["1.0.0"]["artifacts"]):
        table["later"] = [1]


EDITS = {**LIES, "a newer build writes more": add_keys}


class Script:
    """One vector: the registry that its lines change, and the steps that its calls make."""

    def __init__(
        self, root: Path, lines: list[str], trees: dict[str, Any], documents: dict[str, str]
    ) -> None:
        self.root, self.trees, self.documents = root, trees, documents
        self.first = self.registry = self.new(root / "home")
        self.served: list[Any] = []
        self.lied: str | None = None
        self.stored: str | None = None
        self.steps: list[Any] = []
        for line in lines:
            if call := re.match(r"(update|resolve|rollback|clear)\b([^=!]*)([=!]?)(.*)", line.strip()):
                self.steps.append(self.step(*call.groups()))
                self.lied = self.stored = None
            else:
                for part in re.split(r";\s*", line.strip()):
                    verb, *words = shlex.split(part)
                    if hasattr(self, verb):
                        getattr(self, verb)(*words)
                        continue
                    words = [re.sub("^@", f"{NAME}:", word).removesuffix(":") for word in words]
                    assert main(["--registry", str(self.registry.store.root), verb, *words]) == 0, line

    def new(self, path: Path) -> Registry:
        os.environ["REG_STATE"] = str(self.root / f"state of {path.name}")
        registry = Registry(path)
        DirectoryRegistry.create(registry.store.root)
        return registry

    def text(self, path: str) -> str:
        return (self.registry.store.root / path).read_bytes().decode("latin-1")

    def step(self, call: str, asked: str, mark: str, answer: str) -> dict[str, Any]:
        tree = {
            "registry": self.text("registry.json"),
            "index": self.lied or self.text(f"index/{NAME}.jsonl"),
        }
        self.served.append(tree)
        for blob in self.registry.store.root.glob("blobs/sha256/*/*"):
            self.documents[blob.name] = blob.read_bytes().decode("latin-1")
        key = next((key for key, other in self.trees.items() if other == tree), str(len(self.trees)))
        self.trees[key] = tree
        step: dict[str, Any] = {"call": call, "tree": key, "question": {}}
        if self.stored:
            step["cached"] = self.stored
        for word in asked.split():
            if word.startswith("@"):
                step["question"]["tag"] = word[1:]
            elif word.startswith("bad:"):
                step["bad"] = list(filter(None, word[4:].split(",")))
            elif word == "throws":
                step["throws"] = True
            elif word in FAULTS:
                step["fault"] = word
            else:
                step["question"].update(WORDS[word])
        first, *words = answer.split() or [""]
        expect: dict[str, Any] = {"error": first} if mark == "!" else {}
        if mark == "=":
            expect = {"version": first, "artifact": f"model_{'fp16' if 'fp16' in words else 'int8'}.onnx"}
            if call == "update":
                expect |= {"changed": "changed" in words, "current": first}
            if call in ("update", "resolve"):
                expect["offline"] = "offline" in words
            if "stale" in words:
                expect["stale"] = True
        for key, _, value in (word.partition(":") for word in words if ":" in word):
            many = [*filter(None, value.split(","))]
            expect[key] = many if key in ("ran", "codes") else None if value == "none" else value
        return {**step, "expect": expect}

    def publish(self, version: str, **more: Any) -> None:
        publish(
            self.registry,
            self.root / f"{version} of {self.registry.store.root.name}",
            version,
            20,
            half=True,
            **more,
        )

    def measure(self, version: str) -> None:
        self.publish(version, checks=CHECKS)

    def refuse(self, version: str) -> None:
        int8 = self.registry.get(f"{NAME}:{version}").manifest.artifacts[1]
        owner.attest(self.registry, f"{NAME}:{version}", refusal_of(str(int8.digest)))

    def back(self, number: str) -> None:
        """Serve the index file of an earlier call once more."""
        self.lied = self.served[int(number) - 1]["index"]

    def cached(self, number: str) -> None:
        """Let a cache answer the next call with the index file of an earlier one, unless it is asked past."""
        self.stored = self.steps[int(number) - 1]["tree"]

    def lie(self, old: str, new: str) -> None:
        """Serve an index file with other words once."""
        right = self.text(f"index/{NAME}.jsonl")
        assert old in right, old
        self.lied = right.replace(old, new)

    def edit(self, lie: str) -> None:
        """Serve another state over the same log once."""
        first, lines = self.text(f"index/{NAME}.jsonl").split("\n", 1)
        state = json.loads(first)
        EDITS[lie](state)
        self.lied = f"{canonical_json(state).decode()}\n{lines}"

    def fork(self) -> None:
        shutil.copytree(self.first.store.root, self.root / "fork")

    def other(self, version: str) -> None:
        """Go to the copy, where this version is published instead."""
        os.environ["REG_STATE"] = str(self.root / "state of fork")
        self.registry = Registry(self.root / "fork")
        self.publish(version)

    def replaced(self, *versions: str) -> None:
        self.registry = self.new(self.root / "another")
        for version in versions:
            self.publish(version)

    def home(self) -> None:
        self.registry = self.first


def make(root: Path) -> dict[str, Any]:
    trees: dict[str, Any] = {}
    documents: dict[str, str] = {}
    vectors = []
    for number, text in enumerate(SCRIPTS.strip().split("\n\n")):
        name, *lines = text.split("\n")
        vectors.append({"name": name, "steps": Script(root / str(number), lines, trees, documents).steps})
    kind = {"format": "onnxreg-behaviour-vectors", "format_version": 1}
    return {**kind, "vectors": vectors, "trees": trees, "documents": documents}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["REG_TRUST"] = f"{scratch}/trust.toml"
        Path(scratch, "trust.toml").touch()
        FILE.write_text(json.dumps(make(Path(scratch)), indent=1) + "\n", "utf-8")
