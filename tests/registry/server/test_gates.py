"""Gates of a registry that is served: the policy is a file of the tree, and an answer is no longer kept when it changes."""

from collections.abc import Iterator

import pytest
from support.registries import owner
from support.registries.gated import LAX, NAME
from support.servers.regserve import running
from support.trust.attack_operations import attack

from onnxreg.registry import Registry
from onnxreg.schema.core.errors import GateError, IntegrityError
from onnxreg.schema.gates.policy import Policy, read_policy

STABLE = f"{NAME}:stable"


def test_an_answer_follows_from_the_policy_too(site, filled):
    asked = {"ref": "acme/pii:stable"}
    assert site.get("/policy.jsonl").status == 404
    assert site.resolve(asked).json["version"] == "0.1.0"
    owner.set_policy(filled, read_policy(LAX, "policy"))
    refused = site.resolve(asked)
    assert (refused.status, refused.error["family"]) == (409, "gate")
    assert site.get("/policy.jsonl").status == 200
    assert site.resolve({"ref": "acme/pii:0.1.0"}).json["version"] == "0.1.0"
    owner.set_policy(filled, Policy())
    assert site.resolve(asked).json["version"] == "0.1.0"


def test_an_answer_follows_from_the_trust_file_too(site, filled, own_user):
    asked = {"ref": "acme/pii"}
    assert site.resolve(asked).json["version"] == "0.2.0"
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text('[[require]]\nmodels = ["acme/*"]\nversions = true\n')
    refused = site.resolve(asked)
    assert (refused.status, refused.error["family"]) == (500, "integrity")
    assert site.resolve({"ref": "tiny"}).json["version"] == "1.0.0"
    (own_user / "trust").write_text('[[require]]\nmodels = ["acme/*"]\nlines = true\n')
    assert site.resolve(asked).error["family"] == "integrity"
    (own_user / "trust").write_text("garbage = [")
    for refused in (site.resolve(asked), site.get("/acme/pii/resolve/main/x"), site.get("/models/acme/pii")):
        assert refused.status == 503 and str(own_user) not in refused.body.decode()
    (own_user / "trust").unlink()
    assert site.resolve(asked).json["version"] == "0.2.0"


def test_a_server_whose_registry_went_back_says_so(site, filled):
    index = filled.store.root / "index" / "acme" / "pii.jsonl"
    before = index.read_bytes()
    filled.tag("acme/pii:0.2.0", "stable")
    assert site.resolve({"ref": "acme/pii:stable"}).json["version"] == "0.2.0"
    index.write_bytes(before)
    refused = site.resolve({"ref": "acme/pii:stable"})
    assert refused.error["family"] == "integrity"
    assert str(filled.store.root) not in str(refused.error)


@pytest.fixture
def pulled(gated, tmp_path) -> Iterator[tuple[Registry, str]]:
    """A reader who pulled a governed channel, and the URL of the server."""
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    reader = Registry(tmp_path / "reader")
    with running(gated.store.root) as site:
        assert reader.pull(STABLE, site.url).versions
        yield reader, site.url


def test_a_client_finds_the_evidence_anew(pulled, gated):
    reader, url = pulled
    attack(gated, "forge 1.2.0")
    for read in (
        lambda: reader.pull(STABLE, url),
        lambda: reader.resolve(STABLE, remote=reader.remotes.read(url)),
    ):
        with pytest.raises(GateError, match="refused"):
            read()


def test_a_policy_that_disappears_is_damage(pulled, gated):
    reader, url = pulled
    (gated.store.root / "policy.jsonl").unlink()
    with pytest.raises(IntegrityError, match="is gone"):
        reader.resolve(STABLE, remote=reader.remotes.read(url))


def test_offline_the_gate_is_what_it_was(gated, tmp_path):
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    reader = Registry(tmp_path / "reader")
    with running(gated.store.root) as site:
        reader.pull(STABLE, site.url)
    found = reader.resolve(STABLE, remote=reader.remotes.read(site.url, offline=lambda name, age: None))
    assert str(found.located.version) == "1.0.0"
