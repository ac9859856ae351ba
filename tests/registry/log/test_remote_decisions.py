"""Decisions that are written straight to the log of a remote: a directory, a bucket, a repository on the Hub."""

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME, refusal
from support.registries.home import Home
from support.sampling import sampled
from support.servers import hub

from onnxreg.cli.main import main
from onnxreg.registry.log import commit, decisions
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.log import read_lines
from onnxreg.registry.remotes import open_url
from onnxreg.registry.signing import Keystore
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.system import trust_file
from onnxreg.schema.core.errors import ConflictError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.signing.dsse import read_sig

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")


@pytest.fixture(scope="session")
def remote_hub(tmp_path_factory) -> Iterator[hub.Hub]:
    with hub.running(tmp_path_factory.mktemp("hub")) as server:
        yield server


STORES = ["directory", "s3", "hub"]
SOME_STORES = pytest.mark.parametrize("url", sampled(STORES, 3), indirect=True)


@pytest.fixture(params=STORES)
def url(request, ministack, remote_hub, monkeypatch, tmp_path) -> str:
    """The URL of a place where nothing is yet."""
    ministack.enter(monkeypatch)
    remote_hub.enter(monkeypatch, tmp_path / "hf")
    places = {
        "directory": str(tmp_path / "share"),
        "s3": ministack.fresh(),
        "hub": f"hf://acme/{os.urandom(4).hex()}",
    }
    return places[request.param]


@pytest.fixture
def home(gated, monkeypatch) -> Home:
    """The registry of this user; `reg` uses it too."""
    monkeypatch.setenv("REG_HOME", gated.place)
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "long enough for a test")
    return gated


@pytest.fixture
def there(home, url) -> RegistryStore:
    """A remote with two versions of the model."""
    for version in ("1.0.0", "1.1.0"):
        home.push(f"{NAME}:{version}", url)
    return home.remotes.open(url)


def reg(*words: str) -> int:
    return main(list(words))


def kinds(url: str) -> list[str]:
    """The kinds of the events there, as somebody reads them who comes now."""
    return [line.event.kind for line in read_lines(open_url(url), NAME)]


def test_each_verb_writes_there_and_nothing_here(home, there, url, tmp_path, capfd):
    before, first = len(home.log(NAME)), len(kinds(url))
    report = tmp_path / "report.json"
    report.write_bytes(refusal(home, "1.0.0"))
    Keystore().new("lab", "ed25519")
    at = ("--remote", url)
    for words in (
        ("tag", f"{NAME}:1.0.0", "beta", *at),
        ("pin", f"{NAME}:1.0.0", *at),
        ("yank", f"{NAME}:1.1.0", *at),
        ("yank", f"{NAME}:1.1.0", "--undo", *at),
        ("attest", f"{NAME}:1.0.0", "--report", str(report), *at),
        ("sign", f"{NAME}:1.1.0", "--key", "lab", *at),
        ("untag", f"{NAME}:beta", *at),
    ):
        assert reg(*words) == 0, words
    written = ["tag", "pin", "yank", "unyank", "attest", "attest", "untag"]
    assert kinds(url)[first:] == written
    assert len(home.log(NAME)) == before
    assert f"{NAME}:beta is 1.0.0 in {there.url}" in capfd.readouterr().out
    states = home.get(f"{NAME}:1.0.0", open_url(url)).states.values()
    assert [artifact.state for artifact in states] == ["unknown", "refused"]
    assert not owner.verify(home, remote=there).damages


@SOME_STORES
def test_neither_the_next_push_nor_the_next_pull_conflicts(home, there, url, tmp_path):
    home.tag(f"{NAME}:1.0.0", "beta", remote=there)
    home.yank(f"{NAME}:1.1.0", remote=there)
    owner.attest(home, f"{NAME}:1.0.0", refusal(home, "1.0.0"), remote=there)
    home.push(f"{NAME}:1.3.0", url, channels=())
    home.tag(f"{NAME}:1.0.0", "beta")
    home.push(f"{NAME}:1.0.0", url, channels=["beta"])
    home.pull(f"{NAME}:1.0.0", url)
    assert home.state(NAME).versions[Version(1, 1, 0)].yanked, "a yank travels with what is here"
    states = home.get(f"{NAME}:1.0.0").states.values()
    assert [artifact.state for artifact in states] == ["unknown", "refused"]
    other = Home(tmp_path / "other")
    other.pull(f"{NAME}:beta", url)
    assert [str(version) for version in other.state(NAME).versions] == ["1.0.0"]
    for registry in (home, other):
        registry.check()
    assert not owner.verify(home, remote=there).damages


@SOME_STORES
def test_the_policy_of_the_remote_is_in_force_and_not_that_of_this_registry(home, there, url, capfd):
    assert reg("tag", f"{NAME}:1.0.0", "stable") == 8
    assert "reg promote acme/pii:VERSION stable\n" in capfd.readouterr().err
    assert reg("tag", f"{NAME}:1.0.0", "stable", "--remote", url) == 0
    owner.set_policy(home, owner.policies(home).policy, remote=there)
    assert reg("tag", f"{NAME}:1.1.0", "stable", "--remote", url) == 8
    same = " (with the same --remote)"
    assert f"promote instead: reg promote {NAME}:VERSION stable{same}\n" in capfd.readouterr().err
    assert reg("rollout", "advance", NAME, "--percent", "9", "--channel", "stable", "--remote", url) == 3
    assert f"`reg rollout start` begins one{same}\n" in capfd.readouterr().err
    owner.promote(home, f"{NAME}:1.1.0", "stable")
    assert reg("push", NAME, url, "--tag", "stable") == 8
    hint = f"promote instead: reg promote {NAME}:VERSION stable --remote {open_url(url).url}\n"
    assert hint in capfd.readouterr().err
    owner.set_policy(home, read_policy(b'[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n', "policy"))
    assert reg("push", f"{NAME}:stable", "oci://localhost:9/acme/pii") == 8
    assert "--remote" not in capfd.readouterr().err, "what is wrong is wrong here"
    assert reg("promote", f"{NAME}:1.1.0", "stable", "--remote", url) == 0
    assert home.resolve(f"{NAME}:stable", remote=open_url(url)).located.version == Version(1, 1, 0)


def test_a_takedown_there_deletes_the_bytes_there(home, there, url):
    digests = [file.digest for file in home.get(f"{NAME}:1.1.0").manifest.artifacts]
    assert reg("purge", f"{NAME}:1.1.0", "--reason", "unlicensed", "--remote", url) == 0
    assert there.has(digests) == set() and home.store.has(digests) == set(digests)
    with pytest.raises(ConflictError, match="purged there"):
        home.push(f"{NAME}:1.1.0", url)


def rival(monkeypatch: pytest.MonkeyPatch, decide: Callable[[], object]) -> None:
    """Another writer decides once, after the next read of a log that is to be changed."""
    pending, load_own = [decide], commit.load_own

    def load(*arguments: Any) -> Any:
        ledger = load_own(*arguments)
        if pending:
            pending.pop()()
        return ledger

    monkeypatch.setattr(commit, "load_own", load)
    monkeypatch.setattr(decisions, "load_own", load)


@SOME_STORES
def test_after_a_lost_race_it_decides_again(home, there, url, monkeypatch):
    rival(monkeypatch, lambda: Decisions(open_url(url)).pin(Ref(NAME, "1.0.0")))
    home.tag(f"{NAME}:1.1.0", "beta", remote=there)
    assert kinds(url)[-2:] == ["pin", "tag"]
    rival(monkeypatch, lambda: Decisions(open_url(url)).tag(Ref(NAME, "1.0.0"), "beta"))
    with pytest.raises(ConflictError, match=f"channel beta of {NAME} holds 1.0.0 by now"):
        owner.untag(home, NAME, "beta", remote=there)
    assert kinds(url)[-3:] == ["pin", "tag", "tag"]
    rival(monkeypatch, lambda: Decisions(open_url(url)).yank(Ref(NAME, "1.1.0")))
    with pytest.raises(ConflictError, match="is yanked"):
        home.tag(f"{NAME}:1.1.0", "gamma", remote=there)
    assert kinds(url)[-2:] == ["tag", "yank"]


def test_a_place_that_went_back_gets_no_event(home, tmp_path, capfd):
    """What this user saw there before is compared first, also the policies."""
    share = tmp_path / "share"
    home.push(f"{NAME}:1.0.0", str(share))
    there = home.remotes.open(str(share))
    old = shutil.copytree(share, tmp_path / "old")
    owner.set_policy(home, owner.policies(home).policy, remote=there)
    governed = (share / "policy.jsonl").read_bytes()
    assert reg("yank", f"{NAME}:1.0.0", "--remote", str(share)) == 0
    assert reg("resolve", NAME, "--remote", str(share)) == 3

    (share / "policy.jsonl").unlink()
    assert reg("tag", f"{NAME}:1.0.0", "stable", "--remote", str(share)) == 4
    (share / "policy.jsonl").write_bytes(governed)
    index = share / "index" / f"{NAME}.jsonl"
    index.chmod(0o644)
    index.write_bytes((old / "index" / f"{NAME}.jsonl").read_bytes())
    for words in (("tag", f"{NAME}:1.0.0", "beta"), ("untag", f"{NAME}:beta"), ("pin", f"{NAME}:1.0.0")):
        capfd.readouterr()
        assert reg(*words, "--remote", str(share)) == 4
        assert "went back" in capfd.readouterr().err
    assert index.read_bytes() == (old / "index" / f"{NAME}.jsonl").read_bytes()


def test_lines_there_are_signed_with_the_key_of_this_user(home, tmp_path, monkeypatch):
    home.push(f"{NAME}:1.0.0", str(tmp_path / "share"))
    there = home.remotes.open(str(tmp_path / "share"))
    key = Keystore().new("release", "ed25519")
    monkeypatch.setenv("REG_SIGNING_KEY", "release")
    assert reg("tag", f"{NAME}:1.0.0", "beta", "--remote", there.url) == 0
    line = read_lines(there, NAME)[-1]
    assert line.sig is not None and read_sig(line.sig).keyid == key.id


def test_a_log_without_the_signatures_that_the_trust_file_demands_gets_no_event(home, tmp_path, capfd):
    home.push(f"{NAME}:1.0.0", str(tmp_path / "share"))
    Keystore().new("release", "ed25519")
    assert reg("trust", "add", "release", str(Keystore().public("release"))) == 0
    with trust_file().open("a") as file:
        file.write('[[require]]\nmodels = ["acme/*"]\nlines = true\n')
    for words in (("tag", f"{NAME}:1.0.0", "beta"), ("yank", f"{NAME}:1.0.0"), ("push", "acme/*")):
        assert reg(*words, "--remote", str(tmp_path / "share")) == 4, words
    assert "sign" in capfd.readouterr().err
    assert kinds(str(tmp_path / "share")) == ["publish"], "as it was pushed"
