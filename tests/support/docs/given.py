"""What a page takes for granted before its commands: each function sets one thing up in the page's scratch directory."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.signing import Keystore
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict
from support.docs.nets import write_llama, write_mlp, write_stages
from support.docs.pages import REPOSITORY, blocks
from support.dossier.audited import release
from support.registries import owner
from support.registries import retrained as retrained_drafts
from support.registries.judged import judged_draft
from support.servers.s3servers import Server
from support.sounds import write_sound
from support.tasks import seq2seq

TEXT = "the patient was seen by Dr w20"
GOLD = [
    {"start": word.start(), "end": word.end(), "label": "DATE", "text": word[0]}
    for word in re.finditer(r"\w+", TEXT)
]
"""What the tiny checkpoint, whose weights are random, calls dates; its INT8 graph does too."""
FIXTURE = {"text": TEXT, "gold_spans": GOLD, "metadata": {"source": "notes"}}
SUITE = "".join(json.dumps({"id": str(number), **FIXTURE}) + "\n" for number in range(20))
RUNS = {
    "metadata": {"opset": 17},
    "ir_version": 10,
    "operators": [{"domain": "ai.onnx", "name": "MatMul", "opset": 13}],
}
"""What a device must know of a graph."""
LOSS = {"name": "quant_recall_delta", "metric": "character_recall", "value": 0.002, "limit": 0.005}
KEY = "ed25519:PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw="
CERTIFIED = Verdict("certified", "G4/point", (), Digest.of(SUITE.encode()), synthetic=False)


@dataclass
class World:
    """A page's scratch directory, the tests' fixtures, and where the places are that the page speaks of."""

    scratch: Path
    fixture: Callable[[str], Any]
    patch: pytest.MonkeyPatch
    places: dict[str, str] = field(default_factory=dict)


def publish(registry: Registry, draft: Draft, name: str, version: str) -> None:
    """Add a copy of a draft's files: those that are added are gone from their workspace."""
    with registry.workspace() as workspace:
        shutil.copytree(draft.root, workspace, dirs_exist_ok=True)
        registry.add(replace(draft, root=workspace, name=name), version)


def stock(registry: Registry, draft: Draft) -> None:
    """Three versions of one model, two of another; `stable` is the one before the newest."""
    other = replace(draft, fields={**draft.fields, "license": "MIT"})
    models = {"acme/pii": ("1.0.0", "1.1.0", "1.2.0"), "acme/pii-small": ("1.1.0", "1.2.0")}
    for name, versions in models.items():
        for version in versions:
            publish(registry, other if version == "1.0.0" else draft, name, version)
        registry.tag(f"{name}:1.1.0", "stable")


def ocr(world: World) -> None:
    """Three graphs that work together: a detector, a recognizer and a classifier."""
    write_stages(world.scratch)


def checkpoint(world: World) -> None:
    """The checkpoint that the models were exported from, and the texts they were judged on."""
    (world.scratch / "checkpoint").symlink_to(world.fixture("bert"))
    for name in ("golden.jsonl", "heldout.jsonl"):
        (world.scratch / name).write_text(SUITE)


def models(world: World) -> None:
    """The registry has the stock."""
    shutil.copytree(world.fixture("stocked") / "home", world.scratch / "home")


def judged(world: World) -> None:
    """The registry has a tagger of four labels, and its retrained successor."""
    registry = Registry(world.scratch / "home")
    for number, worse in enumerate(({}, {"LABEL03": 0.89}), 1):
        draft = judged_draft(world.scratch / f"tagger{number}", number, 4, worse=worse)
        registry.add(draft, f"1.{number - 1}.0")


def origin(world: World) -> None:
    """A registry in a directory that has the stock too, under the name of origin."""
    shutil.copytree(world.fixture("stocked") / "shared", world.scratch / "shared")
    assert main(["--quiet", "remote", "add", "origin", "shared"]) == 0


def bucket(world: World) -> None:
    """`s3://models` is an empty place at a server on this machine."""
    server: Server = world.fixture("ministack")
    server.enter(world.patch)
    world.places["s3://models"] = server.fresh()


def hub(world: World) -> None:
    """`hf://` is an emulator of the Hub, which knows this user."""
    world.fixture("hub")


def layout(world: World) -> None:
    """acme/pii has a release, in the channel `stable`; `hf://` is an emulator of the Hub."""
    hub(world)
    _release(world, "1.0.0").tag("acme/pii:1.0.0", "stable")


def rolling(world: World) -> None:
    """acme/pii has two versions; `stable` is the first."""
    _release(world, "1.0.0")
    _release(world, "2.0.0").tag("acme/pii:1.0.0", "stable")


TENSOR = {"name": "x", "dtype": "float32", "shape": [{"kind": "static", "value": 2}]}


def shipping(world: World) -> None:
    """acme/pii has a release with a contract; a directory stands for the bucket `s3://models`."""
    world.places["s3://models"] = str(world.scratch / "bucket")
    _release(world, "1.0.0", inputs=[TENSOR], outputs=[TENSOR])


def next_release(world: World) -> None:
    """Its next release."""
    _release(world, "2.0.0", inputs=[TENSOR], outputs=[TENSOR])


def retrained(world: World) -> None:
    """acme/pii has two versions, of which the second is a retrained first one; `origin` serves both, `s3://models` has them."""
    registry = Registry(world.scratch / "home")
    for step in range(2):
        registry.add(retrained_drafts.draft(world.scratch / f"draft{step}", step))
    origin = Registry(world.scratch / "origin")
    for version in ("0.1.0", "0.1.1"):
        origin.pull(f"acme/pii:{version}", str(registry.store.root))
    url = world.fixture("serve")(world.scratch / "origin")
    assert main(["--quiet", "remote", "add", "origin", url]) == 0
    bucket(world)
    there = world.places["s3://models"] + "/prod"
    assert main(["--quiet", "push", "acme/pii", "--all", "--remote", there]) == 0


def served(world: World) -> None:
    """A registry with the stock in /srv/models, served at http://127.0.0.1:8080."""
    root = shutil.copytree(world.fixture("stocked") / "home", world.scratch / "srv" / "models")
    world.places["http://127.0.0.1:8080"] = world.fixture("serve")(root)


def story(world: World) -> None:
    """What `make demo` trains, tiny: two checkpoints, of which the second was exported."""
    for version in ("0.1.0", "0.2.0"):
        (world.scratch / version).symlink_to(world.fixture("bert"))
    for name in ("heldout.jsonl", "confirm.jsonl"):
        (world.scratch / name).write_text(SUITE)
    registry = Registry(world.scratch / "home")
    publish(registry, world.fixture("exported"), "demo/pii", "0.2.0")


def trusted(world: World) -> None:
    """A file of trusted keys beside the user's own."""
    (world.scratch / "trust.toml").write_text(f'[keys.release-2025]\nkey = "{KEY}"\n')


def keys(world: World) -> None:
    """Nobody is asked for a passphrase; a key of last year is trusted."""
    world.patch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    assert main(["--quiet", "trust", "add", "release-2025", KEY]) == 0


def phones(world: World) -> None:
    """A fleet of two phones."""
    devices = [{"name": f"phone {number}", "ort": "1.23.2", "ram": f"{number}GB"} for number in (2, 4)]
    (world.scratch / "fleet.json").write_text(json.dumps(devices))


def checkpoints(world: World) -> None:
    """Three checkpoints and a recipe for a job file."""
    for name in ("pii-small", "minilm", "ner"):
        target = world.scratch / "checkpoints" / name
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(world.fixture("bert"))
    (world.scratch / "recipes").mkdir()
    steps = "task: token-classification\nsteps: [{name: fp32, pass: OnnxConversion}]\n"
    outputs = "outputs: [{step: fp32, path: model.onnx}]\n"
    (world.scratch / "recipes" / "ner.yaml").write_text(steps + outputs)


def examples(world: World) -> None:
    """The scripts of the checkout."""
    (world.scratch / "examples").symlink_to(REPOSITORY / "examples")


def speech(world: World) -> None:
    """Tiny checkpoints of Whisper and T5, and a file of sound."""
    for kind in ("whisper", "t5"):
        seq2seq.save(kind, world.scratch / kind, layers=1)
    write_sound(world.scratch / "call.wav")


def image(world: World) -> None:
    """One of the images that the family of examples was not trained on."""
    with np.load(world.scratch / "work" / "held-out.npz") as rows:
        np.save(world.scratch / "image.npy", rows["input"][0])


def onnx_file(world: World) -> None:
    """An ONNX file."""
    write_mlp(world.scratch / "model.onnx")


def nets(world: World) -> None:
    """A perceptron with rows to calibrate it, and a decoder."""
    write_mlp(world.scratch / "mlp.onnx")
    rows = np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32)
    np.savez(world.scratch / "rows.npz", x=rows)
    write_llama(world.scratch / "llama")
    for file in world.fixture("make_checkpoint")("distilbert").glob("tokenizer*"):
        shutil.copy(file, world.scratch / "llama" / file.name)


def governed(world: World) -> None:
    """A registry in /srv/models whose 1.1.0 was judged on made-up texts, and whose 1.2.0 meets the page's policy."""
    _answering(world)
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        _release(world, version)
    further = '[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n'
    (world.scratch / "stricter.toml").write_text(_of_gates("policy.toml") + further)


def audited(world: World) -> None:
    """acme/pii has three versions with recipes; the newest two were promoted under a plan, with a key that the reader trusts."""
    registry = _answering(world)
    owner.set_policy(registry, read_policy(_of_gates("retrain.toml").encode(), "retrain.toml"))
    for number, version in enumerate(("1.0.0", "1.1.0", "1.2.0")):
        registry.add(release(world.scratch / f"draft{number}", str(number), 0.001 * number), version)
        owner.promote(registry, f"acme/pii:{version}", "stable", reason="monthly retrain")


def _answering(world: World) -> Registry:
    """The registry in /srv/models, which is the user's; the user has and trusts the key `release`."""
    home = world.scratch / "srv" / "models"
    world.patch.setenv("REG_HOME", str(home))
    world.patch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    assert main(["--quiet", "trust", "add", "release", str(Keystore().new("release", "ed25519"))]) == 0
    return Registry(home)


def _of_gates(file: str) -> str:
    """A file of the page of gates."""
    return next(block.text for block in blocks(REPOSITORY / "docs" / "gates.md") if block.file == file)


def _release(world: World, version: str, **metadata: Any) -> Registry:
    """Add a version whose INT8 artifact is certified; `metadata` are more keys of that of both artifacts."""
    root = world.scratch / f"draft {version}"
    root.mkdir()
    runs: dict[str, Any] = RUNS | {"metadata": {"opset": 17, **metadata}}
    (root / "model.onnx").write_text(f"fp32 {version} " * 20)
    (root / "model_int8.onnx").write_text(f"int8 {version}".ljust(34))
    (root / "config.json").write_text("{}")
    check = {**LOSS, "samples": 900, "interval": [0.0, 0.004], "verdict": "pass"}
    verdict = replace(CERTIFIED, synthetic=version == "1.1.0")
    fields = {**runs, "checks": [check]}
    int8 = DraftArtifact("onnx-int8", "int8", "model_int8.onnx", verdict=verdict, fields=fields)
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx", fields=runs), int8)
    source = {"id": "acme/base", "digest": str(Digest.of(b"checkpoint"))}
    about = {"license": "Apache-2.0", "source": source}
    registry = Registry(Path(os.environ["REG_HOME"]))
    registry.add(Draft("acme/pii", root, artifacts, (DraftFile("config", "config.json"),), about), version)
    return registry


def outdated(world: World) -> None:
    """A lock of acme/pii from when the bucket's newest release was 1.0.0."""
    there = f"{world.places['s3://models']}/prod"
    assert main(["--quiet", "lock", "acme/pii:1.0.0", "--remote", there]) == 0
    lock = world.scratch / "onnxreg.lock"
    lock.write_text(lock.read_text().replace('"ref": "acme/pii:1.0.0"', '"ref": "acme/pii"'))


def net(world: World) -> None:
    """A Python file that makes a module, its weights, and a recipe that names both."""
    import torch

    code = "torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))"
    (world.scratch / "net.py").write_text(f"import torch\n\n\ndef build():\n    return {code}\n")
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    torch.save(module.state_dict(), world.scratch / "best.pth")
    recipe = {"name": "acme/digits", "source": "net.py:build", "options": {"input": [1, 8, 8]}, "export": {}}
    (world.scratch / "named.yaml").write_text(json.dumps(recipe))
