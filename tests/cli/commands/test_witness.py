"""`reg witness` as it is typed: what it prints, its documents, and its exit statuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.registries.drafts import write_draft

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.signing import Keystore
from onnxreg.schema.witness.note import COSIGNATURE, VerifierKey


class Terminal:
    """Runs `reg` on one registry, which is at a path and under the name of origin."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capture = capture

    def run(self, *words: str, status: int = 0, registry: str = "registry") -> str:
        self._capture.readouterr()
        assert main(["--registry", str(self.root / registry), *words]) == status
        captured = self._capture.readouterr()
        return captured.err if status else captured.out

    def document(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))


@pytest.fixture
def terminal(
    own_user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Terminal:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    registry = Registry(tmp_path / "registry")
    for number, name in enumerate(("acme/pii", "acme/ner")):
        registry.add(write_draft(tmp_path / f"draft-{number}", name, name, 10), "1.0.0")
    made = Terminal(tmp_path, capfd)
    for name in ("log", "w1"):
        made.run("key", "new", name)
    return made


def test_a_log_from_its_beginning_to_a_reader(terminal: Terminal, own_user: Path) -> None:
    there = str(terminal.root / "registry")
    published = terminal.document("witness", "publish", "--key", "log")
    assert (published["size"], published["changed"], published["refused"]) == (
        1,
        ["acme/ner", "acme/pii"],
        [],
    )
    assert published["key"].startswith(f"{published['origin']}+")
    assert "is not known yet" in terminal.run("witness", "cosign", there, "--key", "w1", status=2)
    signed = terminal.document("witness", "cosign", there, "--key", "w1", "--log", published["key"])
    assert (signed["size"], signed["root"], signed["file"]) == (1, published["root"], None)
    shown = terminal.document("witness", "show", there)
    assert (shown["models"], shown["cosigned"][0]["size"]) == (2, 1)
    assert [line["name"] for line in shown["cosigned"][0]["signatures"]] == ["w1"]
    assert shown["cosigned"][0]["signatures"][0]["time"] == signed["time"]
    checked = terminal.document("witness", "verify", there, "--log", published["key"])
    assert (checked["refused"], checked["pending"]) == ([], [])
    (own_user / "trust").write_text(
        f'[[require]]\nwitnesses = {{any = 1, of = ["{signed["witness"]}"], max_age = "1h", log = "{published["key"]}"}}\n'
    )
    terminal.run("resolve", "acme/pii", "--remote", there, registry="own")
    assert "by 1 of w1 in the last" in terminal.run("trust", "show")
    need = terminal.document("trust", "show")["require"][0]["witnesses"]
    assert (need["any"], need["of"], need["max_age"], need["pending"]) == (1, [signed["witness"]], 3600, None)


def test_the_publisher_says_what_it_collected(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the log of policies is no model."""
    monkeypatch.chdir(terminal.root)
    log = terminal.document("witness", "publish", "--key", "log")["key"]
    cosign = ("witness", "cosign", "registry", "--key", "w1", "--log", log, "--output", "public")
    assert "cosigned by w1 in public/" in terminal.run(*cosign)
    publish = ("witness", "publish", "--key", "log", "--from")
    said = terminal.run(*publish, "public")
    assert "0 changed logs" in said and "collected from public: w1" in said
    error = terminal.run(*publish, "publik", status=3)
    assert "publik has no cosigned checkpoint of this log" in error and "--output DIRECTORY" in error
    assert "every file is right; all lines are witnessed" in terminal.run("witness", "verify")
    (terminal.root / "policy.toml").write_text('[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n')
    terminal.run("policy", "set", "policy.toml")
    assert "lines of 1 log are not witnessed yet" in terminal.run("witness", "verify")
    assert terminal.document("witness", "publish", "--key", "log")["changed"] == [".policy"]
    assert "2 models" in terminal.run("witness", "show")


def test_a_witness_has_the_name_of_its_key(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    there = str(terminal.root / "registry")
    log = terminal.document("witness", "publish", "--key", "log")["key"]
    monkeypatch.setenv("REG_SIGNING_KEY", "w1")
    command = ("witness", "cosign", there, "--log", log)
    assert terminal.document(*command)["witness"].startswith("w1+")
    monkeypatch.setenv("REG_SIGNING_KEY", (Keystore().directory / "w1.pem").read_text())
    assert "name it with --name NAME" in terminal.run(*command, status=2)
    assert terminal.document(*command, "--name", "w1")["witness"].startswith("w1+")


def test_the_log_is_not_published_with_another_key(terminal: Terminal) -> None:
    terminal.run("witness", "publish", "--key", "log")
    error = terminal.run("witness", "publish", "--key", "w1", status=4)
    assert "is signed by another key" in error and "cannot be rotated" in error


def test_lines_that_are_not_witnessed_yet_are_no_fault_of_the_log(terminal: Terminal, own_user: Path) -> None:
    """Whatever the trust file of the one who looks demands."""
    there = str(terminal.root / "registry")
    log = terminal.document("witness", "publish", "--key", "log")["key"]
    signed = terminal.document("witness", "cosign", there, "--key", "w1", "--log", log)
    need = f'witnesses = {{any = 1, of = ["{signed["witness"]}"], max_age = "1h"}}'
    (own_user / "trust").write_text(f"[[require]]\n{need}\n")
    terminal.run("tag", "acme/pii:1.0.0", "beta")
    said = terminal.run("witness", "verify", there, registry="own")
    assert "every file is right; lines of 1 log are not witnessed yet" in said


def test_a_model_that_went_back_is_reported(terminal: Terminal) -> None:
    terminal.run("witness", "publish", "--key", "log")
    (terminal.root / "registry" / "index" / "acme" / "pii.jsonl").unlink()
    error = terminal.run("witness", "publish", "--key", "log", status=4)
    assert "not published: acme/pii: it is gone, and had 1 lines" in error
    assert "acme/pii: it is gone" in terminal.run("witness", "verify", status=4)
    assert terminal.document("witness", "publish", "--key", "log", "--accept", "acme/pii")["size"] == 2


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_a_registry_without_a_log(terminal: Terminal, verb: str) -> None:
    assert "the registry has no witness log" in terminal.run("witness", verb, status=3)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ('any = 2, of = ["{key}"], max_age = "1h"', "any = 2 of 1 different witnesses"),
        ('any = 2, of = ["{key}", "{other}"], max_age = "1h"', "any = 2 of 1 different witnesses"),
        ('any = 0, of = ["{key}"], max_age = "1h"', "any = 0"),
        ('any = 1, of = ["{key}"]', "max_age"),
        ('any = 1, of = ["{key}"], max_age = "soon"', "not a length of time"),
        ('any = 1, of = ["ed25519:x"], max_age = "1h"', "not a verifier key"),
        ('any = 1, of = ["{key}"], max_age = "1h", log = "{key}"', "not what it is named for"),
        ('any = 1, of = ["{own}"], max_age = "1h", log = "{log}"', "log is the key of the log"),
        ('any = 1, of = ["{key}"], max_age = "1h", pend = "1h"', "not a key of a trust file"),
    ],
)
def test_a_requirement_that_cannot_be_meant_is_refused(
    words: str, problem: str, terminal: Terminal, own_user: Path
) -> None:
    """The same key under two names is one witness."""
    there = str(terminal.root / "registry")
    log = terminal.document("witness", "publish", "--key", "log")["key"]
    command = ["witness", "cosign", there, "--key", "w1", "--log", log]
    key, other = (terminal.document(*command, "--name", name)["witness"] for name in ("w1", "w2"))
    own = VerifierKey.of("log", COSIGNATURE, Keystore().public("log"))
    words = words.format(key=key, other=other, own=own, log=log)
    (own_user / "trust").write_text(f"[[require]]\nwitnesses = {{{words}}}\n")
    assert problem in terminal.run("trust", "show", status=2)
