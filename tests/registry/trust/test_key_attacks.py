"""A key that replaces another."""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from support.registries import owner
from support.registries.drafts import write_draft
from support.registries.home import Home

from onnxreg.cli.main import main
from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.registry.trust.known_heads import add_key, load_trust
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.gates.policy import read_policy

STRICT = '[[rule]]\nchannel = "stable"\nsigned_by = ["release", "qa", "audit"]\nsignatures = 2\nlicenses = ["MIT"]\n'
NAMES = ("release", "qa", "audit")


@dataclass
class Office:
    """A registry with a strict policy, the keys that it names, and a stranger's."""

    registry: Home
    keys: dict[str, PrivateKey] = field(default_factory=lambda: {name: generate("ed25519") for name in NAMES})
    stranger: PrivateKey = field(default_factory=lambda: generate("ed25519"))

    def trust(self, *more: str) -> str:
        lines = [f'[keys.{name}]\nkey = "{key.public}"' for name, key in self.keys.items()]
        return "\n".join([*lines, *more, ""])


@pytest.fixture(scope="session")
def office_template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Office:
    root = tmp_path_factory.mktemp("office")
    registry = Home(root / "registry")
    registry.add(write_draft(root / "draft", "acme/pii", "seed", 10), "1.0.0")
    owner.set_policy(registry, read_policy(STRICT.encode(), "policy.toml"))
    return Office(registry)


@pytest.fixture
def office(office_template: Office, tmp_path: Path, own_user: Path) -> Office:
    own_user.mkdir(parents=True, exist_ok=True)
    copy = shutil.copytree(office_template.registry.store.root, tmp_path / "registry")
    return replace(office_template, registry=Home(copy))


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
    for name, key, former in (("release-0", new, "release"), ("release-1", newer, "release-0")):
        add_key(name, str(key.public), ())
        with (own_user / "trust").open("a") as file:
            file.write(f'replaces = "{former}"\n')
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
