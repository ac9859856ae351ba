"""What a governed channel costs a reader at a remote: each file is asked for once, and always judged."""

from pathlib import Path

import pytest
from support.registries import owner
from support.registries.gated import LAX, NAME, POLICY, refusal
from support.registries.home import Home
from support.servers.faults import Proxy
from support.trust.attack_operations import attack

from onnxreg.cli.main import main
from onnxreg.registry.signing import generate
from onnxreg.registry.store.layout import index_path
from onnxreg.schema.gates.policy import read_policy

STABLE = f"{NAME}:stable"
INDEX, POLICIES = ("GET", f"/{index_path(NAME)}"), ("GET", "/policy.jsonl")


@pytest.fixture
def registry(gated: Home) -> Home:
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    return gated


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    return Home(tmp_path / "reader").store.root


def resolve(reader: Path, site: Proxy, *words: str) -> int:
    site.seen.clear()
    site.answers.clear()
    return main(["--registry", str(reader), "--quiet", "resolve", STABLE, "--remote", site.url, *words])


def test_each_file_is_asked_for_once(reader: Path, site: Proxy) -> None:
    assert resolve(reader, site) == 0
    assert site.seen[:3] == [("GET", "/registry.json"), INDEX, POLICIES]
    documents = site.seen[3:]
    assert len(documents) == len(set(documents)) == 2
    assert all(path.startswith("/blobs/") for _, path in documents)


def test_a_pull_of_what_is_here_asks_for_two_files(reader: Path, site: Proxy) -> None:
    words = ["--registry", str(reader), "--quiet", "pull", STABLE, site.url]
    assert main(words) == 0
    site.seen.clear()
    assert main(words) == 0
    assert site.seen == [INDEX, POLICIES]


def test_another_policy_is_looked_at(registry: Home, reader: Path, site: Proxy) -> None:
    assert resolve(reader, site) == 0
    owner.set_policy(registry, read_policy(LAX, "policy"))
    assert resolve(reader, site) == 0
    assert len(site.seen) > 2
    owner.set_policy(registry, read_policy(POLICY.replace(b"Apache-2.0", b"MIT"), "policy"))
    for _ in range(2):
        assert resolve(reader, site) == 8


def test_another_index_is_looked_at(registry: Home, reader: Path, site: Proxy) -> None:
    assert resolve(reader, site) == 0
    owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0"))
    for _ in range(2):
        assert resolve(reader, site) == 8
    attack(registry, "move 1.1.0")
    assert resolve(reader, site) == 8


def test_another_trust_file_is_looked_at(
    registry: Home, reader: Path, site: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who trusts the key no more is refused what passed while it was trusted."""
    release, other = generate("ed25519"), generate("ed25519")
    trust = tmp_path / "trust.toml"
    monkeypatch.setenv("REG_TRUST", str(trust))
    trust.write_text(f'[keys.release]\nkey = "{release.public}"\n')
    owner.sign(registry, f"{NAME}:1.0.0", release)
    owner.set_policy(
        registry, read_policy(b'[[rule]]\nchannel = "stable"\nsigned_by = ["release"]\n', "policy")
    )
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    assert resolve(reader, site) == 0
    trust.write_text(f'[keys.release]\nkey = "{other.public}"\n')
    assert [resolve(reader, site) for _ in range(2)] == [8, 8]
