"""One registry for all tests of dossiers, which only read it; the reader trusts one of its two keys."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.dossier.audited import make_audited

from onnxreg.registry import Registry
from onnxreg.registry.dossier.dossier import DossierBundle, make_dossier
from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.registry.support.environment import trust_file
from onnxreg.schema.core.ref import Ref


@dataclass(frozen=True)
class Audited:
    """The registry, the key that the reader trusts, and another one."""

    registry: Registry
    key: PrivateKey
    other: PrivateKey

    def trust(self, *lines: str) -> None:
        """Write the reader's trust file."""
        path = trust_file()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(["[keys.release]", f'key = "{self.key.public}"', *lines, ""]))

    def dossier(self, ref: str, profile: str = "plain", facts: Path | None = None) -> DossierBundle:
        return make_dossier(self.registry.store, Ref.parse(ref), profile, facts)


@pytest.fixture(scope="session")
def audited_template(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    key, other = generate("ed25519"), generate("ed25519")
    return Audited(make_audited(tmp_path_factory.mktemp("audited"), key, other), key, other)


@pytest.fixture
def audited(audited_template: Audited) -> Audited:
    audited_template.trust()
    return audited_template


@pytest.fixture
def write_facts(tmp_path: Path) -> Callable[..., Path]:
    """Writes an owner's file."""

    def write(*lines: str, name: str = "acme/pii") -> Path:
        path = tmp_path / "owner.yaml"
        path.write_text("\n".join(["facts: 1", f"name: {name}", "statements:", *lines, ""]))
        return path

    return write
