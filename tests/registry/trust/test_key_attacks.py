"""Attacks on the rotation of keys and on policies that demand signatures, and who notices."""

import json
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.registries.drafts import write_draft
from support.trust.world import plain_pem

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.gates.policy_log import approve_policy, read_policies, with_policy
from onnxreg.registry.signing import PrivateKey, generate, read_rotation, sign_rotation
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.edit import add_rotated_key
from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import GateError, InputError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.gates.policy import Policy, read_policy
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, Envelope, pae, sign_line

STRICT = '[[rule]]\nchannel = "stable"\nsigned_by = ["release", "qa", "audit"]\nsignatures = 2\nlicenses = ["MIT"]\n'
LOOSE = '[[rule]]\nchannel = "stable"\nsigned_by = ["release", "qa", "audit"]\nsignatures = 2\n'
NAMES = ("release", "qa", "audit")


def policy(text: str) -> Policy:
    return read_policy(text.encode(), "policy.toml")


@dataclass
class Office:
    """A registry with a strict policy, the keys that it names, and a stranger's."""

    registry: Registry
    keys: dict[str, PrivateKey] = field(default_factory=lambda: {name: generate("ed25519") for name in NAMES})
    stranger: PrivateKey = field(default_factory=lambda: generate("ed25519"))

    def trust(self, *more: str) -> str:
        lines = [f'[keys.{name}]\nkey = "{key.public}"' for name, key in self.keys.items()]
        return "\n".join([*lines, *more, ""])

    def approval(self, name: str, text: str = LOOSE) -> str:
        return approve_policy(self.registry.store, policy(text), self.keys.get(name, self.stranger))

    def append(self, text: str, *approvals: str, signer: str | None = None) -> None:
        """Append a policy as any program can that writes to the store."""
        store = self.registry.store
        key = self.keys.get(signer or "")
        sign = None if key is None else lambda line: sign_line(self.registry.id, key.sign, line)
        log = with_policy(read_policies(store), policy(text), sign=sign, approvals=approvals)
        (store.root / "policy.jsonl").write_bytes(log.encode())


@pytest.fixture(scope="session")
def office_template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Office:
    root = tmp_path_factory.mktemp("office")
    registry = Registry(root / "registry")
    registry.add(write_draft(root / "draft", "acme/pii", "seed", 10), "1.0.0")
    registry.set_policy(policy(STRICT))
    return Office(registry)


@pytest.fixture
def office(office_template: Office, tmp_path: Path, own_user: Path) -> Office:
    own_user.mkdir(parents=True, exist_ok=True)
    copy = shutil.copytree(office_template.registry.store.root, tmp_path / "registry")
    return replace(office_template, registry=Registry(copy))


Do = Callable[[Office], None]


def without_approvals(office: Office) -> None:
    office.append(LOOSE)


def with_one(office: Office) -> None:
    office.append(LOOSE, office.approval("qa"))


def with_one_twice(office: Office) -> None:
    office.append(LOOSE, office.approval("qa"), office.approval("qa"))


def by_a_stranger(office: Office) -> None:
    office.append(LOOSE, office.approval("qa"), office.approval("stranger"))


def under_another_name(office: Office) -> None:
    """The stranger's signature under the id of a key that counts."""
    forged = office.approval("stranger").partition(":")[2]
    office.append(LOOSE, office.approval("qa"), f"{office.keys['release'].public.id}:{forged}")


def of_another_policy(office: Office) -> None:
    other = LOOSE.replace("signatures = 2", "signatures = 1")
    office.append(other, office.approval("qa"), office.approval("release"))


def of_another_place(office: Office) -> None:
    """Approved once, replayed after the policy was made strict again."""
    approvals = [office.approval("qa"), office.approval("release")]
    office.append(LOOSE, *approvals)
    office.append(STRICT)
    office.append(LOOSE, *approvals)


def of_another_registry(office: Office) -> None:
    other = Registry(office.registry.store.root.parent / "other")
    other.set_policy(policy(STRICT))
    keys = (office.keys["qa"], office.keys["release"])
    office.append(LOOSE, *(approve_policy(other.store, policy(LOOSE), key) for key in keys))


def remove_the_rule(office: Office) -> None:
    office.append("")


def fewer_signatures(office: Office) -> None:
    office.append(STRICT.replace("signatures = 2", "signatures = 1"))


def a_key_of_their_own(office: Office) -> None:
    office.append(STRICT.replace('"audit"', f'"{office.stranger.public.id}"'))


def in_two_steps(office: Office) -> None:
    """First another channel, which nobody minds, then the one that counts."""
    office.append(STRICT + '[[rule]]\nchannel = "beta"\nlicenses = ["MIT"]\n')
    office.append(LOOSE)


def with_two(office: Office) -> None:
    office.append(LOOSE, office.approval("qa"), office.approval("release"))


def with_one_and_the_line(office: Office) -> None:
    office.append(LOOSE, office.approval("qa"), signer="release")


def stricter(office: Office) -> None:
    office.append(STRICT + "synthetic = false\n")


LACKS = {
    "no approval": without_approvals,
    "one approval": with_one,
    "one approval twice": with_one_twice,
    "an approval by a stranger": by_a_stranger,
    "an approval under another name": under_another_name,
    "approvals of another policy": of_another_policy,
    "approvals of another place": of_another_place,
    "approvals of another registry": of_another_registry,
    "the rule is removed": remove_the_rule,
    "fewer signatures": fewer_signatures,
    "a key of their own": a_key_of_their_own,
    "in two steps": in_two_steps,
}
HONEST = {"two approvals": with_two, "an approval and the line": with_one_and_the_line, "stricter": stricter}
APPROVALS = ("[[require]]", 'models = [".policy"]', "approvals = true")
LINES = ("[[require]]", 'models = [".policy"]', "lines = true")


DEMANDS = {"new": None, "seen": None, "keys": (), "lines": LINES, "approvals": APPROVALS}


@pytest.mark.parametrize("do", [*LACKS.values(), *HONEST.values()], ids=[*LACKS, *HONEST])
def test_readers_that_notice_a_loosened_policy(
    do: Do,
    office: Office,
    own_user: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Only who demands the approvals; and who demands signed lines, since none of these lines is signed."""
    show = ["--registry", str(tmp_path / "own"), "policy", "show", "--remote", office.registry.store.url]
    monkeypatch.setenv("REG_STATE", str(own_user / "seen"))
    assert main(show) == 0
    do(office)
    for reader, demands in DEMANDS.items():
        monkeypatch.setenv("REG_STATE", str(own_user / reader))
        if demands is not None:
            (own_user / "trust").write_text(office.trust(*demands))
        capfd.readouterr()
        status, said = main(show), capfd.readouterr().err
        is_noticed = reader == "lines" or (reader == "approvals" and do in LACKS.values())
        assert status == (4 if is_noticed else 0), f"{reader}: {said}"
        if reader == "approvals" and is_noticed:
            assert "without its signatures: stable of *: signed_by: " in said and "of 2 wanted" in said


def test_the_writer_must_have_the_approvals(
    office: Office, own_user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_user / "trust").write_text(office.trust())
    with pytest.raises(
        GateError, match="signed_by: 0 of 2 wanted; no trusted signature by release, qa, audit"
    ):
        office.registry.set_policy(policy(LOOSE))
    qa = office.approval("qa")
    with pytest.raises(GateError, match="signed_by: 1 of 2 wanted: qa; no trusted"):
        office.registry.set_policy(policy(LOOSE), approvals=[qa])
    monkeypatch.setenv("REG_SIGNING_KEY", plain_pem(office.keys["audit"]))
    assert office.registry.set_policy(policy(LOOSE), approvals=[qa]) is not None


def test_the_command_line_says_what_is_missing(
    office: Office,
    own_user: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (own_user / "trust").write_text(office.trust())
    (tmp_path / "looser.toml").write_text(LOOSE)
    own = ["--registry", office.registry.store.url, "policy"]
    files = []
    for name in ("qa", "release"):
        with monkeypatch.context() as patch:
            patch.setenv("REG_SIGNING_KEY", plain_pem(office.keys[name]))
            files.append(str(tmp_path / name))
            assert main([*own, "approve", str(tmp_path / "looser.toml"), "--output", files[-1]]) == 0
    command = [*own, "set", str(tmp_path / "looser.toml"), "--replace", "--approval"]
    assert main([*command, files[0]]) == 8
    assert "signed_by: 1 of 2 wanted: qa" in capfd.readouterr().err
    assert main([*command, files[0], "--approval", files[1]]) == 0
    assert main([*own, "show"]) == 0
    assert "# 2 of 3 wanted: release, qa, audit" in capfd.readouterr().out


def test_a_policy_that_demands_no_signatures_is_loosened_as_before(office: Office, tmp_path: Path) -> None:
    other = Registry(tmp_path / "free")
    other.set_policy(policy('[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n'))
    assert other.set_policy(policy("")) is not None


# Rotation


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
    revoked = ("[[revoked]]", 'key = "release"', "date = 2026-01-02", 'reason = "laptop stolen"')
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
    office.registry.sign("acme/pii:1.0.0", newer)
    assert main(own) == 4
    for number, keys in enumerate(((office.keys["release"], new), (new, newer))):
        statement = tmp_path / str(number)
        statement.write_bytes(sign_rotation(*keys).encode())
        assert read_rotation(statement.read_bytes(), "statement").new == keys[1].public
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
