"""Every verb with --remote refuses a place that is not what the trust file and the known heads say."""

import shutil
from pathlib import Path

import pytest
from support.docs.grammar import ROOT
from support.registries import owner
from support.registries.drafts import write_draft
from support.sampling import sampled

from onnxreg.cli.reference import commands
from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.signing import Keystore, generate
from onnxreg.registry.system import trust_file
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import read_policy

NAME = "acme/pii"
VERSION = f"{NAME}:0.1.0"
VERBS = {
    "archive create": ["models.tar", NAME],
    "attest": [VERSION, "--report", "report.json"],
    "certificates": [VERSION],
    "coverage": [VERSION, "--devices", "ort-android-1.23"],
    "delta ls": [VERSION],
    "delta make": [VERSION],
    "diff": [VERSION, f"{NAME}:0.1.1"],
    "dossier": [VERSION, "--output", "dossier"],
    "du": [],
    "index fetch": [NAME],
    "gc": [],
    "history": [NAME],
    "lock": [NAME],
    "log": [NAME],
    "ls": [NAME],
    "measure": [VERSION],
    "pin": [VERSION],
    "policy set": ["policy.toml", "--yes"],
    "policy show": [],
    "promote": [VERSION, "beta"],
    "prove": [VERSION],
    "pull": [NAME],
    "purge": [VERSION, "--reason", "taken down"],
    "query": [],
    "resolve": [NAME],
    "rollout advance": [NAME, "--channel", "stable", "--percent", "5"],
    "rollout finish": [NAME, "--channel", "stable"],
    "rollout halt": [NAME, "--channel", "stable"],
    "rollout start": [VERSION, "--channel", "stable", "--percent", "5"],
    "rollout status": [NAME],
    "run": [VERSION, "--self-test"],
    "sbom": [VERSION],
    "show": [VERSION],
    "sign": [VERSION],
    "sign --bundle": [VERSION, "--bundle", "model.sig"],
    "tag": [VERSION, "stable"],
    "untag": [f"{NAME}:stable"],
    "verify": [NAME],
    "yank": [VERSION],
}
"""The arguments of each verb with the option, all of which but those about policies read the model's log."""


POLICY = '[[rule]]\nchannel = "beta"\nlicenses = ["MIT"]\n'


@pytest.fixture(scope="module")
def filled(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with two versions and a policy."""
    root = tmp_path_factory.mktemp("filled")
    registry = Registry(root / "remote")
    for seed, version in (("a", "0.1.0"), ("b", "0.1.1")):
        registry.add(write_draft(root / seed, NAME, seed, 100), version)
    owner.set_policy(registry, read_policy(POLICY.encode(), "policy.toml"))
    return registry.store.root


@pytest.fixture
def remote(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry elsewhere, and the files that the verbs read."""
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    Keystore().new("owner", "ecdsa-p256")
    Path("policy.toml").write_text(POLICY)
    Path("report.json").write_text("{}")
    return Registry(shutil.copytree(filled, tmp_path / "remote"))


def words(verb: str, remote: Registry) -> list[str]:
    return [*verb.partition(" --")[0].split(), *VERBS[verb], "--remote", str(remote.store.root)]


def test_every_verb_with_the_option_is_here():
    with_option = {
        name
        for name, command in commands(ROOT)
        if any("--remote" in parameter.opts for parameter in command.params)
    }
    written = {"push", "index publish"}
    assert with_option - written == {verb.partition(" --")[0] for verb in VERBS}


@pytest.mark.parametrize("verb", sampled(VERBS, 3))
def test_a_remote_without_the_required_signatures_is_refused(reg, remote, verb):
    demand = f'[keys.release]\nkey = "{generate("ed25519").public}"\n'
    models = ".policy" if verb.startswith("policy") else "acme/*"
    demand += f'[[require]]\nmodels = ["{models}"]\nkeys = ["release"]\nlines = true\n'
    trust_file().parent.mkdir(parents=True, exist_ok=True)
    trust_file().write_text(demand)
    Decisions(remote.store).tag(Ref.parse(VERSION), "stable")
    refused = reg(*words(verb, remote))
    assert refused.status == 4, refused.err


@pytest.mark.parametrize("verb", sampled((verb for verb in VERBS if not verb.startswith("policy")), 3))
def test_a_remote_that_went_back_in_time_is_refused(reg, remote, verb):
    backup = shutil.copytree(remote.store.root, remote.store.root.with_name("backup"))
    Decisions(remote.store).tag(Ref.parse(VERSION), "stable")
    assert reg("show", VERSION, "--remote", str(remote.store.root)).status == 0
    shutil.rmtree(remote.store.root)
    backup.rename(remote.store.root)
    refused = reg(*words(verb, remote))
    assert refused.status == 4 and "went back in time" in refused.err + refused.out
