"""What a governed channel costs a reader at a remote, and that the gate judges what the reader was told: not what the channel
holds a moment later."""

from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import LAX, NAME, POLICY, refusal
from support.registries.home import Home
from support.servers.faults import Proxy
from support.trust.attack_operations import attack

from onnxreg.registry.log.log import find
from onnxreg.registry.resolution import check_version_trust, coverage
from onnxreg.registry.signing import generate
from onnxreg.registry.store.layout import index_path
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.query.requirements import Query

STABLE = f"{NAME}:stable"
REF = Ref.parse(STABLE)
INDEX, POLICIES = ("GET", f"/{index_path(NAME)}"), ("GET", "/policy.jsonl")


@pytest.fixture
def registry(gated: Home) -> Home:
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    return gated


@pytest.fixture
def reader(tmp_path: Path) -> Home:
    return Home(tmp_path / "reader")


def resolve(reader: Home, site: Proxy) -> int:
    site.seen.clear()
    site.answers.clear()
    return reader.reg("--quiet", "resolve", STABLE, "--remote", site.url)


def test_each_file_is_asked_for_once(reader: Home, site: Proxy) -> None:
    assert resolve(reader, site) == 0
    assert site.seen[:3] == [("GET", "/registry.json"), INDEX, POLICIES]
    documents = site.seen[3:]
    assert len(documents) == len(set(documents)) == 2
    assert all(path.startswith("/blobs/") for _, path in documents)


def test_a_pull_of_what_is_here_asks_for_two_files(reader: Home, site: Proxy) -> None:
    for _ in range(2):
        site.seen.clear()
        assert reader.reg("--quiet", "pull", STABLE, site.url) == 0
    assert site.seen == [INDEX, POLICIES]


def test_another_policy_is_looked_at(registry: Home, reader: Home, site: Proxy) -> None:
    assert resolve(reader, site) == 0
    owner.set_policy(registry, read_policy(LAX, "policy"))
    assert resolve(reader, site) == 0
    assert len(site.seen) > 2
    owner.set_policy(registry, read_policy(POLICY.replace(b"Apache-2.0", b"MIT"), "policy"))
    for _ in range(2):
        assert resolve(reader, site) == 8


def test_another_index_is_looked_at(registry: Home, reader: Home, site: Proxy) -> None:
    assert resolve(reader, site) == 0
    owner.attest(registry, f"{NAME}:1.0.0", refusal(registry, "1.0.0"))
    for _ in range(2):
        assert resolve(reader, site) == 8
    attack(registry, "move 1.1.0")
    assert resolve(reader, site) == 8


def test_another_trust_file_is_looked_at(
    registry: Home, reader: Home, site: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


class TwoFaced:
    """Serves one index file, keeps back what would show that it is forged, and then serves another."""

    def __init__(self, registry: Home, *answers: IndexFile | None, withheld: Any = ()) -> None:
        self._store, self._answers, self.withheld = registry.store, list(answers), list(withheld)

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        if name != NAME:
            return self._store.read_index(name)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def open_blob(self, digest: Digest, start: int = 0) -> Any:
        if digest in self.withheld:
            self.withheld.clear()
            raise MissingBlobError(digest, self._store.url)
        return self._store.open_blob(digest, start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def forged(registry: Home) -> TwoFaced:
    """Tells of a forged promotion, and then of a history that goes on innocently."""
    attack(registry, "forge 1.2.0")
    evil = registry.store.read_index(NAME)
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    withheld = registry.get(f"{NAME}:1.2.0").digest
    return TwoFaced(registry, evil, registry.store.read_index(NAME), withheld=[withheld])


def test_resolve_judges_the_index_that_answered(registry: Home) -> None:
    place = forged(registry)
    registry.heads.reset(registry.id)
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        registry.resolve(STABLE, remote=place)


def test_a_remote_without_an_index_is_judged_too(registry: Home) -> None:
    place = forged(registry)
    found = find(place, REF)
    assert str(found.version) == "1.2.0"
    place.withheld.clear()
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        check_version_trust(place, REF, found, None, registry.heads, look_for_policy=True)


def test_coverage_judges_the_index_that_answered(registry: Home) -> None:
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        coverage(forged(registry), REF, Query(), [])


def test_resolve_judges_the_rollout_that_answered(registry: Home) -> None:
    owner.rollouts(registry).start(Ref.parse(f"{NAME}:1.1.0"), "stable", 0.01)
    for version in ("1.2.0", "1.3.0") * 35:
        registry.tag(f"{NAME}:{version}", "beta")
    true = registry.store.read_index(NAME)
    attack(registry, "set rollouts/stable/percent 100; set checkpoint @other")
    place = TwoFaced(registry, registry.store.read_index(NAME), true)
    registry.heads.reset(registry.id)
    with pytest.raises(NotFoundError):  # the state is compared with the checkpoint first
        registry.resolve(STABLE, remote=place, seed="0" * 64)
