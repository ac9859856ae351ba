"""Keys at rest, signed lines and versions, rotation and revocation."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.home import Home
from support.trust.world import plain_pem

from onnxreg.cli.main import main
from onnxreg.registry.lockfile import lock
from onnxreg.registry.signing import Keystore, PrivateKey, generate, is_valid, sign_statement
from onnxreg.registry.trust.known_heads import add_key, load_trust
from onnxreg.registry.trust.signatures import RecordedStatement
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConflictError, HostError, InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.device import ResolveRequest
from onnxreg.schema.query.resolve import Query
from onnxreg.schema.signing.dsse import EVALUATED, MEDIA_TYPE, PROVEN, Statement, release_statement

NAME = "acme/pii"


def trust(own: Path, *lines: str, **keys: PrivateKey) -> None:
    own.mkdir(parents=True, exist_ok=True)
    rows = [row for name, key in keys.items() for row in (f"[keys.{name}]", f'key = "{key.public}"')]
    (own / "trust").write_text("\n".join([*rows, *lines, ""]))


@pytest.fixture
def signing(monkeypatch) -> PrivateKey:
    """The key of this user, as CI has it."""
    key = generate("ed25519")
    monkeypatch.setenv("REG_SIGNING_KEY", plain_pem(key))
    return key


class TestKeys:
    @pytest.mark.parametrize("kind", ["ed25519", "ecdsa-p256"])
    def test_a_key_is_encrypted_private_and_found_again(self, own_user, kind):
        store = Keystore()
        public = store.new("release", kind, "correct horse")
        path = own_user / "keys" / "release.pem"
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in path.read_bytes()
        assert store.list() == {"release": public}
        key = store.private("release", "correct horse")
        assert key.public == public
        assert PrivateKey.load(plain_pem(key).encode(), "the passphrase of another key").public == public
        assert is_valid(public, key.sign(b"data").sig, b"data")
        assert not is_valid(public, key.sign(b"data").sig, b"other")
        assert sorted(file.name for file in path.parent.iterdir()) == ["release.pem", "release.pub"]

    @pytest.mark.parametrize("kind", ["ed25519", "ecdsa-p256"])
    def test_openssl_reads_them_and_agrees_on_the_id(self, own_user, kind, tmp_path):
        public = Keystore().new("release", kind, "pw")
        words = ["openssl", "pkey", "-in", own_user / "keys" / "release.pem", "-passin", "pass:pw", "-pubout"]
        der = subprocess.run([*words, "-outform", "DER"], capture_output=True, check=True).stdout
        assert der == public.spki
        assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == public.pem

    def test_a_wrong_passphrase_says_nothing_of_the_key(self):
        Keystore().new("release", "ed25519", "correct horse")
        with pytest.raises(InputError) as error:
            Keystore().private("release", "battery staple")
        assert "horse" not in str(error.value) and "staple" not in str(error.value)
        assert error.value.__cause__ is None

    def test_a_key_is_never_replaced_and_made_with_a_passphrase(self, monkeypatch, own_user):
        monkeypatch.setattr(sys, "stdin", None)
        assert main(["key", "new", "release"]) == 2
        assert not list((own_user / "keys").glob("*"))
        public = Keystore().new("release", "ed25519", "a")
        with pytest.raises(ConflictError, match=r"\brelease\b"):
            Keystore().new("release", "ed25519", "b")
        assert Keystore().private("release", "a").public == public
        (own_user / "keys" / "release.pem").unlink()  # it is offline
        with pytest.raises(ConflictError, match=r"\brelease\b"):
            Keystore().new("release", "ed25519", "b")
        assert [file.name for file in (own_user / "keys").iterdir()] == ["release.pub"]

    @pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", "a" * 65, "MC4CAQAwBQYDK2Vw/+=="])
    def test_names_stay_in_their_directory_and_may_be_secrets(self, name):
        with pytest.raises(InputError):
            Keystore().new(name, "ed25519", "pw")
        with pytest.raises(NotFoundError) as error:
            Keystore().private(name, "pw")
        assert "MC4" not in str(error.value)

    def test_what_is_no_key_of_ours_is_refused(self):
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        with pytest.raises(InputError, match="neither"):
            PrivateKey.load(pem, None)
        for text in (b"", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
            with pytest.raises(InputError, match="cannot be read"):
                PrivateKey.load(text, None)


def test_without_cryptography_the_extra_is_named(monkeypatch, capsys):
    for module in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(HostError):
        generate("ed25519")
    monkeypatch.setenv("REG_KEY_PASSPHRASE", "pw")
    assert main(["key", "new", "release"]) == 9
    assert "[sign]" in capsys.readouterr().err


class TestLines:
    def test_every_verb_signs_its_lines(self, registry, other, signing, own_user, tmp_path):
        """A mirror keeps the signatures of the original."""
        trust(own_user, "[[require]]", "lines = true", release=signing)
        for seed in "ab":
            registry.make(seed=seed)
        registry.tag(NAME, "stable")
        registry.yank(f"{NAME}:0.1.0")
        owner.pin(registry, f"{NAME}:0.1.1")
        owner.sign(registry, f"{NAME}:0.1.1", signing)
        registry.push(f"{NAME}:0.1.1", other.place, channels=["stable"])
        assert registry.reg("mirror", registry.place, str(tmp_path / "mirror")) == 0
        mirror = Home(tmp_path / "mirror")
        assert mirror.log(NAME) == registry.log(NAME)
        for place in (registry, other, mirror):
            assert all(line.sig is not None for line in place.log(NAME))
            place.check()

    def test_a_key_that_cannot_be_had_writes_nothing(self, registry, monkeypatch):
        monkeypatch.setenv("REG_SIGNING_KEY", "nobody")
        with pytest.raises(InputError):
            registry.make()
        assert registry.names() == []

    @pytest.mark.parametrize("form", ["no frame", "'", "\ufeff", "broken"])
    def test_a_private_key_in_place_of_a_name_is_not_printed(self, registry, monkeypatch, capsys, form):
        """Without the frame of its PEM, with what a shell's quotes or an editor put before it, and damaged."""
        registry.make()
        pem = plain_pem(generate("ed25519"))
        secret = "".join(pem.splitlines()[1:-1])
        given = {"no frame": secret, "broken": pem.replace("M", "N", 1)}.get(form, form + pem)
        monkeypatch.setenv("REG_SIGNING_KEY", given)
        assert registry.reg("tag", NAME, "stable") == registry.reg("sign", f"{NAME}:0.1.0") == 2
        said = "".join(capsys.readouterr())
        assert secret[4:20] not in said and given not in said
        assert form == "broken" or "neither the name of a key nor a PEM" in said
        assert "PRIVATE" not in repr(generate("ed25519"))


class TestVersions:
    @pytest.mark.parametrize("kind", ["ed25519", "ecdsa-p256"])
    def test_twice_is_as_good_as_once_and_it_travels(self, registry, other, own_user, kind):
        key = generate(kind)
        trust(own_user, "[[require]]", "versions = true", 'keys = ["release"]', release=key)
        registry.make()
        with pytest.raises(IntegrityError, match="nobody signed it"):
            other.pull(NAME, registry.place)
        assert [owner.sign(registry, f"{NAME}:0.1.0", key).is_logged for _ in range(2)] == [True, False]
        assert len(registry.log(NAME)) == 2
        other.pull(NAME, registry.place)
        assert str(other.resolve(NAME).located.version) == "0.1.0"

    def test_a_signature_ends_with_a_drop_and_the_same_bytes_are_signed_again(
        self, registry, other, own_user
    ):
        key = generate("ed25519")
        registry.make()
        owner.sign(registry, f"{NAME}:0.1.0", key)
        owner.drop(registry, f"{NAME}:0.1.0")
        owner.gc(registry)
        registry.make()
        registry.check()
        other.pull(NAME, registry.place)
        trust(own_user, "[[require]]", "versions = true", release=key)
        assert registry.reg("resolve", NAME) == 4
        assert owner.sign(registry, f"{NAME}:0.1.0", key).is_logged
        other.pull(NAME, registry.place)
        for home in (registry, other):
            assert home.reg("resolve", NAME) == 0
            home.check()

    def test_a_signature_on_a_dropped_version_is_not_one_on_its_twin(self, registry, own_user):
        key = generate("ed25519")
        trust(own_user, release=key)
        for version in ("1.0.0", "1.0.1"):
            registry.make(version)
        owner.sign(registry, f"{NAME}:1.0.0", key)
        owner.drop(registry, f"{NAME}:1.0.0")
        registry.check()

    def test_no_answer_is_given_of_what_must_be_signed(self, registry, own_user, capsys):
        """Each way to ask for a version, before and after it is signed."""
        key = generate("ed25519")
        registry.make()
        trust(own_user, "[[require]]", "versions = true", release=key)
        asking = [
            ("resolve", NAME),
            ("coverage", f"{NAME}:0.1.0", "--devices", "ort-desktop-1.23"),
            ("verify", "--signatures"),
        ]
        assert [registry.reg(*words) for words in asking] == [4, 4, 4]
        asks = (
            lambda: registry.resolve(NAME),
            lambda: lock(registry.store, [ResolveRequest(Ref.parse(NAME), Query())]),
        )
        for ask in asks:
            with pytest.raises(IntegrityError, match="nobody signed it"):
                ask()
        capsys.readouterr()
        assert registry.reg("verify", "--signatures", "--json") == 4
        said = json.loads(capsys.readouterr().out)
        assert (said["ok"], [each["missing"] for each in said["versions"]]) == (False, [True])
        owner.sign(registry, f"{NAME}:0.1.0", key)
        assert [registry.reg(*words) for words in asking] == [0, 8, 0], "its opset is not recorded"
        assert str(registry.resolve(NAME).located.version) == "0.1.0"

    def test_a_key_that_replaces_another_counts_where_that_is_named_and_as_one(
        self, registry, other, own_user
    ):
        """In a requirement of the trust file; together with the old key it is one of two."""
        old, new, newer, qa = (generate("ed25519") for _ in range(4))
        demand = ("[[require]]", "versions = true", 'keys = ["release"]')
        trust(own_user, *demand, release=old, qa=qa)
        registry.make("1.0.0")
        owner.sign(registry, f"{NAME}:1.0.0", newer)
        assert other.reg("resolve", NAME, "--remote", registry.place) == 4
        for name, key, former in (("release-0", new, "release"), ("release-1", newer, "release-0")):
            add_key(name, str(key.public), ())
            with (own_user / "trust").open("a") as file:
                file.write(f'replaces = "{former}"\n')
        assert other.reg("resolve", NAME, "--remote", registry.place) == 0
        ids = [key.public.id for key in (old, new, newer, qa)]
        assert len(load_trust().signers(ids)) == 2
        assert {"release", "release-0", "release-1"} <= load_trust().signers(ids[2:3])[0]


def test_a_trust_file_that_is_named_exists(registry, other, own_user):
    """Otherwise a wrong path would switch every demand off. The first key makes it."""
    registry.make()
    (own_user / "trust").unlink()
    far = ("--remote", registry.place)
    asking = [
        ("resolve", NAME),
        ("resolve", NAME, *far),
        ("verify",),
        ("trust", "show"),
        ("pull", NAME, registry.place),
    ]
    assert [other.reg(*words) for words in asking[1:]] == [2] * 4 and registry.reg(*asking[0]) == 2
    assert other.reg("trust", "add", "release", str(generate("ed25519").public)) == 0
    assert [other.reg(*words) for words in asking[1:]] == [0] * 4 and registry.reg(*asking[0]) == 0


def test_a_new_key_leaves_every_byte_of_the_trust_file(own_user, tmp_path):
    """Whatever its line ends, and where a link leads to it."""
    before = "# die Schl\u00fcssel\r\n".encode()
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").unlink(missing_ok=True)
    (tmp_path / "kept").write_bytes(before)
    (own_user / "trust").symlink_to(tmp_path / "kept")
    add_key("release", str(generate("ed25519").public), ())
    data = (tmp_path / "kept").read_bytes()
    assert data.startswith(before) and data != before and load_trust().named("release")


def test_keys_that_are_added_at_once_are_all_kept(own_user):
    own_user.mkdir(parents=True, exist_ok=True)
    names = [f"key-{number}" for number in range(8)]
    keys = [str(generate("ed25519").public) for _ in names]
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(add_key, names, keys, repeat(())))
    assert all(map(load_trust().named, names))


@pytest.mark.parametrize("kind", [EVALUATED, PROVEN])
def test_a_signed_report_is_about_its_subject(kind):
    """Otherwise the signature on one artifact would count for another."""
    artifact, other = Digest.of(b"artifact"), Digest.of(b"other bytes")
    report = {"format_version": 1, "artifact": str(artifact), "parent": str(other)}
    report |= {
        EVALUATED: {"format": "onnxreg-evaluation", "suite": str(other), "state": "certified"},
        PROVEN: {"format": "onnxreg-faithfulness", "rules": 2, "verdict": "proven"},
    }[kind]

    def read(subject: Digest) -> Any:
        envelope = sign_statement(Statement.of(kind, subject, report), generate("ed25519"))
        statement = RecordedStatement.decode(MEDIA_TYPE, envelope.encode())
        return statement.report("evaluation") or statement.report("proof")

    assert read(artifact).artifact == artifact
    with pytest.raises(InputError, match="another subject"):
        read(other)


def test_a_release_says_what_its_manifest_says(registry, own_user):
    """The key of a release signs, by mistake, a recipe that the manifest does not have."""
    key, made = generate("ed25519"), registry.make()
    trust(own_user, release=key)
    release = release_statement(NAME, made.version, made.data)
    envelope = sign_statement(release.replace(predicate=release.predicate | {"recipe": {}}), key)
    registry.decisions().attest(made.ref, envelope.encode(), MEDIA_TYPE)
    (damage,) = owner.verify(registry).damages
    assert damage.kind == "signature" and "are not those of the manifest" in damage.detail
