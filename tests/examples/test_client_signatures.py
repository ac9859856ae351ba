"""Both clients accept only releases and lines that a trusted key signed, if the app wants that."""

import json
import shutil
from base64 import b64decode, b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.for_devices import publish
from support.servers import static
from support.servers.web_client import Call
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.schema.signing.dsse import MEDIA_TYPE, PAYLOAD_TYPE, pae

NAME = "acme/pii"


@pytest.fixture(scope="module", params=["ecdsa-p256", "ed25519"])
def key(request: pytest.FixtureRequest) -> PrivateKey:
    return generate(request.param)


@pytest.fixture
def update(client: Call, registry: Registry, tmp_path: Path) -> Iterator[Any]:
    """Update with these requirements, in a directory of this name."""
    with static.serve(registry.store.root) as url:
        yield lambda options, store="store": client(url, tmp_path / store, "update", NAME, {}, options)


def test_a_release_must_be_signed_by_a_trusted_key(registry, update, tmp_path, key):
    publish(registry, tmp_path / "1", "1.0.0", 1000)
    wanted = {"keys": [str(key.public)], "releases": True}
    assert "1.0.0 is not signed by a trusted key" in update(wanted)["message"]
    owner.sign(registry, f"{NAME}:1.0.0", generate("ed25519"))
    assert update(wanted)["error"] == "integrity"
    owner.sign(registry, f"{NAME}:1.0.0", key)
    assert update(wanted)["version"] == "1.0.0"
    publish(registry, tmp_path / "2", "1.1.0", 1000)
    assert update(wanted)["error"] == "integrity"
    assert update({})["version"] == "1.1.0"


@pytest.mark.parametrize("is_resigned", [False, True])
def test_a_changed_statement_does_not_count(registry, update, tmp_path, key, is_resigned):
    """The payload names another version; once with the old signature, once with one of the same key over it."""
    publish(registry, tmp_path / "1", "1.0.0", 1000)
    owner.sign(registry, f"{NAME}:1.0.0", key)
    tree = Tree(registry.store.root)
    lines = [json.loads(line) for line in tree.index(NAME).read_bytes().splitlines()[1:]]
    (event,) = (line["event"] for line in lines if line["event"].get("media_type") == MEDIA_TYPE)
    envelope = tree.read(event["statement"])
    payload = json.loads(b64decode(envelope["payload"]))
    payload["predicate"]["version"] = "1.0.1"
    forged = json.dumps(payload).encode()
    envelope["payload"] = b64encode(forged).decode()
    if is_resigned:
        envelope["signatures"][0]["sig"] = b64encode(key.sign(pae(PAYLOAD_TYPE, forged)).sig).decode()
    event["statement"] = tree.put(json.dumps(envelope).encode())
    tree.remake(NAME, lines)
    wanted = {"keys": [str(key.public)], "releases": True}
    assert "is not signed by a trusted key" in update(wanted)["message"]
    assert update({})["version"] == "1.0.0"


def test_each_line_must_be_signed(registry, update, tmp_path, key, monkeypatch):
    publish(registry, tmp_path / "1", "1.0.0", 1000)
    unsigned = len(Tree(registry.store.root).index(NAME).read_bytes().splitlines()) - 1
    monkeypatch.setenv("REG_SIGNING_KEY", key.pem("secret").decode())
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "secret")
    publish(registry, tmp_path / "2", "1.1.0", 1000)
    keys = [str(key.public)]
    assert update({"keys": keys, "lines": unsigned + 1})["version"] == "1.1.0"
    assert "line 1 of" in update({"keys": keys, "lines": 1})["message"]
    other = {"keys": [str(generate("ecdsa-p256").public)], "lines": unsigned + 1}
    assert update(other)["error"] == "integrity"
    monkeypatch.delenv("REG_SIGNING_KEY")
    registry.tag(f"{NAME}:1.0.0", "stable")
    assert "is not signed" in update({"keys": keys, "lines": unsigned + 1})["message"]
    assert update({}, "fresh")["version"] == "1.1.0"


def test_what_was_checked_is_checked_again_after_tidy_without_a_network(
    registry, client, site, tmp_path, key
):
    """The signature is in a segment of the log that was sealed."""
    publish(registry, tmp_path / "1", "1.0.0", 1000)
    owner.sign(registry, f"{NAME}:1.0.0", key)
    for number in range(64):
        owner.pin(registry, f"{NAME}:1.0.0", undo=number % 2 == 1)

    def call(name: str, *words: Any) -> Any:
        return client(site.url, tmp_path / "store", name, NAME, *words)

    wanted = {"keys": [str(key.public)], "releases": True}
    assert call("update", {}, wanted)["version"] == "1.0.0"
    call("tidy")
    site.plan = lambda method, path: "reset"
    outcome = call("update", {}, wanted)
    assert (outcome["version"], outcome["offline"]) == ("1.0.0", True)
    assert call("update", {}, {**wanted, "keys": [str(generate("ed25519").public)]})["error"] == "integrity"


def test_a_forged_log_has_no_signature(registry, update, tmp_path, key, monkeypatch):
    """At the first contact, every line that there is must lead to the state, and the last one is signed."""
    monkeypatch.setenv("REG_SIGNING_KEY", key.pem("secret").decode())
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "secret")
    publish(registry, tmp_path / "1", "1.0.0", 1000)
    publish(registry, tmp_path / "2", "1.1.0", 1000)
    for number in range(64):  # so that lines are sealed
        registry.tag(f"{NAME}:1.{number % 2}.0", "stable")
    tree, keys = Tree(registry.store.root), [str(key.public)]
    assert update({"keys": keys, "lines": 1}, "honest")["version"] == "1.1.0"
    honest = shutil.copytree(tree.root, tmp_path / "tree")
    held = {"version": "1.0.0", "manifest": tree.state(NAME)["versions"]["1.0.0"]["manifest"]}
    for forgery in ("lines left out", "state alone", "a short log"):
        shutil.rmtree(tree.root)
        shutil.copytree(honest, tree.root)
        left_out = {"segments": []} if forgery == "lines left out" else {}
        if forgery == "a short log":
            tree.remake(NAME, [{**line, "sig": "x"} for line in tree.lines(NAME)[:2]])
        else:
            tree.edit_state(
                NAME,
                lambda state, left_out=left_out: (
                    state.update(left_out) or state["channels"]["stable"].update(held)
                ),
            )
        wanted = {"keys": keys, "lines": 57 if forgery == "a short log" else 1}
        assert update(wanted, forgery)["error"] == "integrity", forgery


def test_an_edge_that_is_behind_does_not_spare_the_check_of_lines(registry, update, tmp_path, key):
    """The app that saw these lines did not want them signed; the next one does."""
    index = Tree(registry.store.root).index(NAME)
    publish(registry, tmp_path / "1", "1.0.0", 1000)
    first = index.read_bytes()
    publish(registry, tmp_path / "2", "1.1.0", 1000)
    assert update({})["version"] == "1.1.0"
    index.chmod(0o600)
    index.write_bytes(first)
    assert update({})["version"] == "1.1.0"
    assert update({"keys": [str(key.public)], "lines": 1})["error"] == "remote"


@pytest.mark.parametrize("text", ["", "rsa:AAAA", "ed25519:AAAA", "ecdsa-p256:!!!", "ed25519"])
def test_a_malformed_key_is_an_input_error(update, text):
    assert update({"keys": [text]})["error"] == "input"
