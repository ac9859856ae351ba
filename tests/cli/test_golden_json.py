"""The `--json` of every verb is frozen: keys keep their name, type and meaning; keys may be added.

    python tests/cli/test_golden_json.py  # writes tests/fixtures/golden-json.json anew: for a verb that went, or a new one

One story is told on the command line. Digests, ids, times and paths differ from run to run, so that an answer has
placeholders for them, numbered in the order in which they occur in it.
"""

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from support.registries.judged import judged_draft
from support.registries.retrained import draft as retrained_draft

from onnxreg.cli.main import main
from onnxreg.registry import Registry

GOLDEN = Path(__file__).parents[1] / "fixtures" / "golden-json.json"
POLICY = """
[[rule]]
models = ["acme/tagger"]
channel = "stable"
certified = ["onnx-int8"]
max_recall_loss = 0.05
licenses = ["Apache-2.0"]
"""
FLEET = [
    {"name": "old phone", "ort": "1.15.1", "ram": "2GB"},
    {"name": "new phone", "ort": "1.23.2", "ram": "8GB"},
]
STORY: Mapping[str, str] = {
    "add": "add {scratch}/more.onnx --name acme/added --license MIT",
    "add again": "add {scratch}/more.onnx --name acme/added --license MIT",
    "ls": "ls",
    "ls of certified": "ls --certified --format onnx-int8",
    "ls of a model": "ls acme/tagger",
    "show": "show acme/tagger:1.1.0",
    "show a graph": "show acme/net",
    "resolve": "resolve acme/tagger --format onnx-int8 --certified",
    "resolve for a device": "resolve acme/net --device ort-android-1.23",
    "resolve nothing": "resolve acme/tagger --max-size 10",
    "resolve a mistyped name": "resolve acme/taggre",
    "query": "query 'certified and format = onnx-int8'",
    "query a figure": "query 'recall.LABEL01 >= 0.5 and size <= 1MB'",
    "query a mistyped field": "query 'precison = int8'",
    "coverage": "coverage acme/tagger --devices {scratch}/fleet.json",
    "devices": "builtin devices",
    "diff": "diff acme/tagger:1.0.0 acme/tagger:1.1.0",
    "diff of breaking": "diff acme/tagger:1.1.0 acme/tagger:2.0.0",
    "diff of graphs": "diff acme/net:0.1.0 acme/net:0.1.1",
    "history": "history acme/tagger",
    "certify": "certificates acme/tagger:1.1.0",
    "prove": "prove acme/net",
    "sbom": "sbom acme/tagger:1.1.0",
    "tag": "tag acme/tagger:1.0.0 beta",
    "policy set": "policy set {scratch}/policy.toml --yes --reason golden",
    "policy show": "policy show",
    "promote": "promote acme/tagger:1.0.0 stable",
    "promote what fails": "promote acme/tagger:2.0.0 stable",
    "rollout start": "rollout start acme/tagger:1.1.0 --channel stable --percent 5",
    "rollout advance": "rollout advance acme/tagger --channel stable --percent 50",
    "rollout status": "rollout status acme/tagger",
    "resolve in a rollout": "resolve acme/tagger:stable --device {scratch}/phone.json",
    "rollout finish": "rollout finish acme/tagger --channel stable",
    "attest": "attest acme/tagger:1.1.0 --report {scratch}/report.json",
    "resolve what was refused": "resolve acme/tagger:1.1.0 --format onnx-int8 --certified",
    "pin": "pin acme/tagger:1.0.0",
    "yank": "yank acme/net:0.1.1 --reason golden",
    "ls after a yank": "ls acme/net",
    "yank undone": "yank acme/net:0.1.1 --undo",
    "sign": "sign acme/tagger:1.1.0 --key golden",
    "key list": "key list",
    "trust add": "trust add golden {public}",
    "trust show": "trust show",
    "remote add": "remote add origin {scratch}/remote",
    "remote list": "remote list",
    "delta make": "delta make acme/net:0.1.2 --from 0.1.1",
    "delta ls": "delta ls acme/net:0.1.2",
    "push": "push acme/tagger --all --remote origin",
    "push again": "push acme/tagger --all --remote origin",
    "push a graph": "push acme/net --all --remote origin",
    "ls a remote": "ls --remote origin",
    "log": "log acme/tagger",
    "log of a remote": "log acme/net --remote origin",
    "fetch-index": "index fetch --remote origin",
    "ls offline": "ls --remote origin --offline",
    "pull": "--registry {scratch}/other pull acme/net:0.1.1 {scratch}/remote",
    "pull by a delta": "--registry {scratch}/other pull acme/net:0.1.2 {scratch}/remote",
    "pull files": "pull acme/net origin --output {scratch}/files --format onnx-int8",
    "pull what is missing": "pull acme/none origin",
    "lock a channel that fell behind its policy": "lock acme/tagger:stable --output {scratch}/app.lock",
    "promote back": "promote acme/tagger:1.0.0 stable",
    "lock": "lock acme/tagger:1.0.0 --format onnx-int8 --output {scratch}/app.lock",
    "lock check": "lock --check --output {scratch}/app.lock",
    "pull locked": "pull --locked {scratch}/app.lock origin --output {scratch}/app",
    "mirror": "mirror {scratch}/remote {scratch}/mirror",
    "mirror again": "mirror {scratch}/remote {scratch}/mirror",
    "archive": "archive create {scratch}/net.onnxreg acme/net",
    "archive verify": "archive verify {scratch}/net.onnxreg",
    "index publish": "index publish --remote origin",
    "query a figure in a lone model": "query 'recall.LABEL00 >= 0.1' 'acme/tag*'",
    "verify": "verify",
    "verify a remote": "verify --remote origin",
    "doctor": "doctor",
    "du": "du",
    "gc": "gc --dry-run",
    "untag": "untag acme/tagger:beta --reason golden",
    "drop": "drop acme/added:0.1.0",
    "purge": "purge acme/net:0.1.0 --reason golden",
    "gc of versions": "gc --keep-versions 1",
    "ls of what is gone": "ls acme/net",
    "verify damage": "verify acme/net",
    "passes": "builtin passes",
    "profiles": "builtin profiles",
    "profile": "builtin profiles android",
    "schema": "builtin schemas",
    "config": "config",
}
"""Verb, and what distinguishes its use -> the words after `reg`; `--json` is added if the verb has it."""
ACTS = {"pin", "untag", "trust add", "remote add", "schema", "tag", "yank", "yank undone", "sign", "drop"}
"""Steps without `--json`: what they do shows in later answers."""
VARYING = re.compile(
    r"(?P<digest>[0-9a-f]{64})|(?P<id>\b[0-9a-f]{32}\b)|(?P<short>\b[0-9a-f]{12}(?=\.\.\.|\b))"
    r"|(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00))"
    r"|(?P<key>(?:ed25519|ecdsa-p256):[A-Za-z0-9+/=]{20,})|(?P<keyid>\b[0-9a-f]{16}\b)"
    r"|(?P<path>/[^\s\"']*golden-scratch[^\s\"']*)|(?P<uuid>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)"
)
LOOSE = {
    *("seconds", "age", "stored", "actor", "tools", "version_of_onnxreg", "python", "platform"),
    *("fix", "message", "hint", "detail"),
}
"""Keys whose values belong to the machine, the moment, or people: only the type is frozen."""


def masked(value: Any) -> Any:
    """The value with placeholders for what differs from run to run."""
    names: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        number = 1 + sum(known.startswith(f"<{kind} ") for known in names.values())
        return "<time>" if kind == "time" else names.setdefault(match[0], f"<{kind} {number}>")

    def mask(item: Any, key: str = "") -> Any:
        if isinstance(item, dict):
            return {VARYING.sub(name, each): mask(part, each) for each, part in item.items()}
        if isinstance(item, list):
            return [mask(part, key) for part in item]
        if key in LOOSE or key.endswith(("seconds", "_ms")):
            return f"<{type(item).__name__}>"
        return VARYING.sub(name, item) if isinstance(item, str) else item

    return mask(value)


def answer(words: list[str], show: bool = False) -> Any:
    """The exit status of a command, and its JSON: its output, or else the family of its error."""
    status, text, errors = run(words)
    if show and status:
        print(status, " ".join(words), errors.strip()[:300])
    try:
        value = masked(json.loads(text)) if text.strip() else None
    except ValueError:
        value = None
    if words[2:4] == ["index", "publish"] and value:
        value["size"] = "<int>"
    failed = [json.loads(line)["error"] for line in errors.splitlines() if line.startswith('{"error"')]
    return {"exit": status, "out": value} | ({"error": failed[0]["family"]} if failed else {})


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process: its exit status and what it printed."""
    out, err = TextIOWrapper(BytesIO(), "utf-8"), TextIOWrapper(BytesIO(), "utf-8")
    with redirect_stdout(out), redirect_stderr(err):
        status = main(words)
    for stream in (out, err):
        stream.flush()
        stream.seek(0)
    return status, out.read(), err.read()


def tell(scratch: Path, show: bool = False) -> Iterator[tuple[str, Any]]:
    """Run the story; yield each step with its answer."""
    registry = Registry(scratch / "home")
    for number, version in enumerate(("1.0.0", "1.1.0")):
        registry.add(judged_draft(scratch / f"tagger{number}", number, 3), version)
    registry.add(judged_draft(scratch / "tagger2", 7, 2, worse={"LABEL01": 0.5}), "2.0.0")
    for step in range(3):
        draft = retrained_draft(scratch / f"net{step}", step)
        if step == 0:
            shutil.copy(draft.root / "model.onnx", scratch / "more.onnx")
        registry.add(replace(draft, name="acme/net"), f"0.1.{step}")
    (scratch / "policy.toml").write_text(POLICY)
    (scratch / "fleet.json").write_text(json.dumps(FLEET))
    (scratch / "phone.json").write_text(json.dumps(FLEET[1]))
    artifact = registry.get("acme/tagger:1.1.0").manifest.artifacts[2]
    report = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact.digest)}
    suite = artifact.certification.evidence.suite if artifact.certification.evidence else None
    (scratch / "report.json").write_text(json.dumps(report | {"suite": str(suite), "state": "refused"}))
    assert run(["--quiet", "key", "new", "golden"])[0] == 0
    public = next(word for word in run(["key", "show", "golden"])[1].split() if word.startswith("ed25519:"))
    for step, line in STORY.items():
        words = shlex.split(line.format(scratch=scratch, public=public))
        if step not in ACTS:
            words.append("--json")
        if not line.startswith("--registry"):
            words = ["--registry", str(scratch / "home"), *words]
        yield step, answer(words, show)


def differences(golden: Any, now: Any, where: str = "") -> Iterator[str]:
    """The places at which an answer lost or changed what is frozen."""
    if isinstance(golden, dict) and isinstance(now, dict):
        for key, item in golden.items():
            if key not in now:
                yield f"{where}.{key} is gone"
            else:
                yield from differences(item, now[key], f"{where}.{key}")
    elif isinstance(golden, list) and isinstance(now, list):
        if len(golden) != len(now):
            yield f"{where} has {len(now)} items, not {len(golden)}"
        for number, (one, other) in enumerate(zip(golden, now, strict=False)):
            yield from differences(one, other, f"{where}[{number}]")
    elif golden != now:
        yield f"{where} is {now!r}, not {golden!r}"


def enter(root: Path, setenv: Callable[[str, str], None]) -> Path:
    """Keep the story's state, keys and cache in its scratch directory."""
    root.mkdir()
    (root / "trust.toml").touch()
    os.chdir(root)
    for name in ("STATE", "KEYS", "CACHE", "HOME"):
        setenv(f"REG_{name}", str(root / name.lower()))
    about = {"REG_KEY_PASSPHRASE": "golden", "REG_ACTOR": "golden@example.org"}
    for name, value in {
        "REG_TRUST": str(root / "trust.toml"),
        "XDG_DATA_HOME": str(root / "data"),
        **about,
    }.items():
        setenv(name, value)
    return root


@pytest.mark.timeout(300)
def test_json_keeps_its_keys_and_values(tmp_path, monkeypatch, reader_in_process):
    golden = json.loads(GOLDEN.read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    found = []
    for step, now in tell(enter(tmp_path / "golden-scratch", monkeypatch.setenv)):
        lines = differences(golden[step], now) if step in golden else ["is not frozen"]
        found += [f"{step}: {line}" for line in lines]
    assert not found, "\n".join(found[:60])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        scratch = enter(Path(directory) / "golden-scratch", os.environ.__setitem__)
        answers = dict(tell(scratch, show=True))
    GOLDEN.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", "utf-8")
