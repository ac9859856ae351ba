"""Attacks on the rotation of keys, and who notices."""

import json
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.registries import owner
from support.registries.drafts import write_draft

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.signing import PrivateKey, generate, read_rotation, sign_rotation
from onnxreg.registry.trust.trust_file import add_rotated_key, load_trust
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, Envelope, pae

STRICT = '[[rule]]\nchannel = "stable"\nsigned_by = ["release", "qa", "audit"]\nsignatures = 2\nlicenses = ["MIT"]\n'
NAMES = ("release", "qa", "audit")


@dataclass
class Office:
    """A registry with a strict policy, the keys that it names, and a stranger's."""

    registry: Registry
    keys: dict[str, PrivateKey] = field(default_factory=lambda: {name: generate("ed25519") for name in NAMES})
    stranger: PrivateKey = field(default_factory=lambda: generate("ed25519"))

    def trust(self, *more: str) -> str:
        lines = [f'[keys.{name}]\nkey = "{key.public}"' for name, key in self.keys.items()]
        return "\n".join([*lines, *more, ""])


@pytest.fixture(scope="session")
def office_template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Office:
    root = tmp_path_factory.mktemp("office")
    registry = Registry(root / "registry")
    registry.add(write_draft(root / "draft", "acme/pii", "seed", 10), "1.0.0")
    owner.set_policy(registry, read_policy(STRICT.encode(), "policy.toml"))
    return Office(registry)


@pytest.fixture
def office(office_template: Office, tmp_path: Path, own_user: Path) -> Office:
    own_user.mkdir(parents=True, exist_ok=True)
    copy = shutil.copytree(office_template.registry.store.root, tmp_path / "registry")
    return replace(office_template, registry=Registry(copy))


def _edited(envelope: Envelope, change: Callable[[dict], None]) -> bytes:  # type: ignore[type-arg]
    value = json.loads(envelope.encode())
    payload = json.loads(b64decode(value["payload"]))
    change(payload)
    value["payload"] = b64encode(canonical.encode(payload)).decode()
    return canonical.encode(value)


def _only(envelope: Envelope, number: int) -> bytes:
    return Envelope(
        envelope.payload_type, envelope.payload, envelope.signatures[number : number + 1]
    ).encode()


def _forgeries(office: Office, new: PrivateKey) -> dict[str, tuple[bytes, type[RegError]]]:
    """Statements that a reader must refuse, and how."""
    old, stranger = office.keys["release"], office.stranger
    good = sign_rotation(old, new)
    other = sign_rotation(old, stranger)
    typed = "application/json"
    retyped = Envelope(typed, good.payload, tuple(key.sign(pae(typed, good.payload)) for key in (old, new)))
    return {
        "only the old key signed": (_only(good, 0), IntegrityError),
        "only the new key signed": (_only(good, 1), IntegrityError),
        "another new key": (
            _edited(good, lambda value: value["subject"][0].update(name=str(stranger.public))),
            InputError,
        ),
        "another new key with its id": (
            Envelope(PAYLOAD_TYPE, other.payload, good.signatures).encode(),
            IntegrityError,
        ),
        "more is claimed": (_edited(good, lambda value: value["predicate"].update(models=["*"])), InputError),
        "another type of payload": (retyped.encode(), IntegrityError),
        "by a key that is not trusted": (sign_rotation(stranger, new).encode(), NotFoundError),
        "not a statement": (b"{}", InputError),
    }


FORGERIES = (
    "only the old key signed",
    "only the new key signed",
    "another new key",
    "another new key with its id",
    "more is claimed",
    "another type of payload",
    "by a key that is not trusted",
    "not a statement",
)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_rotation_is_refused(name: str, office: Office, own_user: Path, tmp_path: Path) -> None:
    (own_user / "trust").write_text(office.trust())
    data, family = _forgeries(office, generate("ed25519"))[name]
    (tmp_path / "statement").write_bytes(data)
    with pytest.raises(family):
        add_rotated_key("new", tmp_path / "statement")
    assert len(load_trust().keys) == 3


def test_a_revoked_key_cannot_rotate(office: Office, own_user: Path, tmp_path: Path) -> None:
    revoked = ("[keys.release.revoked]", "date = 2026-01-02", 'reason = "laptop stolen"')
    (own_user / "trust").write_text(office.trust(*revoked))
    statement = tmp_path / "statement"
    statement.write_bytes(sign_rotation(office.keys["release"], office.stranger).encode())
    with pytest.raises(IntegrityError, match="release is revoked"):
        add_rotated_key("new", statement)


def test_a_key_that_replaces_another_counts_where_that_is_named_and_as_one(
    office: Office, own_user: Path, tmp_path: Path
) -> None:
    """In a requirement of the trust file, and in a policy: together with the old key it is one of two."""
    new, newer = generate("ed25519"), generate("ed25519")
    demand = ("[[require]]", 'models = ["acme/*"]', "versions = true", 'keys = ["release"]')
    (own_user / "trust").write_text(office.trust(*demand))
    own = ["--registry", str(tmp_path / "own"), "resolve", "acme/pii", "--remote", office.registry.store.url]
    owner.sign(office.registry, "acme/pii:1.0.0", newer)
    assert main(own) == 4
    for number, keys in enumerate(((office.keys["release"], new), (new, newer))):
        statement = tmp_path / str(number)
        statement.write_bytes(sign_rotation(*keys).encode())
        assert read_rotation(statement.read_bytes(), "statement")[1] == keys[1].public
        add_rotated_key(f"release-{number}", statement)
    assert main(own) == 0
    trust = load_trust()
    ids = [key.public.id for key in (office.keys["release"], new, newer, office.keys["qa"])]
    assert len(trust.signers(ids)) == 2
    assert {"release", "release-0", "release-1"} <= trust.signers(ids[2:3])[0]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (("[keys.new]", 'key = "{}"', 'replaces = "absent"'), "which is not among the keys"),
        (("[keys.new]", 'key = "{}"', 'replaces = "new"'), "replaces itself"),
    ],
)
def test_a_trust_file_with_an_impossible_rotation_is_refused(
    lines: tuple[str, ...], problem: str, office: Office, own_user: Path
) -> None:
    text = "\n".join(lines).format(office.stranger.public)
    (own_user / "trust").write_text(office.trust(text))
    with pytest.raises(InputError, match=problem):
        load_trust()


def test_the_command_line_rotates_a_key(
    own_user: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
    monkeypatch.chdir(tmp_path)
    assert main(["key", "new", "old"]) == 0
    public = capfd.readouterr().out.splitlines()[0]
    assert main(["key", "rotate", "old", "new"]) == 0
    assert main(["key", "rotate", "old", "new"]) == 5
    assert main(["trust", "add", "old", public, "--model", "acme/*"]) == 0
    assert main(["trust", "add", "new", "--from-rotation", "new.rotation.json"]) == 0
    new = load_trust().named("new")
    assert new is not None and (new.models, new.replaces) == (("acme/*",), "old")
    assert main(["trust", "add", "newer", public, "--from-rotation", "new.rotation.json"]) == 2
    assert main(["trust", "add", "newer"]) == 2
