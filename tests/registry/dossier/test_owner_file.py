"""What a person states, and whose signature counts for it: for this file and this version only."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.registries.gated import NAME

from onnxreg.registry.dossier.dossier import sign_facts
from onnxreg.registry.signing import generate
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.signing.dsse import Envelope, Signature

from .conftest import Audited
from .test_dossier import fields

Write = Callable[..., Path]
REF = f"{NAME}:1.2.0"
LINES = ("  provider: Acme GmbH", "  intended_purpose: [Find names., 'Not <b>for</b> diagnosis.']")


def sign(audited: Audited, path: Path, version: str = "1.2.0", by: str = "key") -> Path:
    return sign_facts(path, audited.registry.get(f"{NAME}:{version}"), getattr(audited, by))


def test_without_a_file_every_field_of_a_person_is_not_provided(audited: Audited) -> None:
    owned = [field for field in fields(audited.dossier(REF, "eu-annex-iv").dossier) if "key" in field]
    assert len(owned) > 25
    assert {(field["origin"], field["text"]) for field in owned} == {("absent", ("not provided",))}


def test_the_words_of_the_owner_are_shown_as_theirs(audited: Audited, write_facts: Write) -> None:
    made = audited.dossier(REF, "eu-annex-iv", write_facts(*LINES))
    owned = {field["key"]: field for field in fields(made.dossier) if field["origin"] == "owner"}
    assert owned["provider"]["text"] == ("Acme GmbH",)
    assert owned["intended_purpose"]["text"] == ("Find names.", "Not <b>for</b> diagnosis.")
    assert not any("tables" in field for field in owned.values())
    page = made.files["dossier.html"].decode()
    assert "owner, not signed" in page and "Not &lt;b&gt;for&lt;/b&gt; diagnosis." in page
    assert made.dossier["facts"]["signers"] == []
    assert made.files["owner.yaml"].startswith(b"facts: 1")


def test_a_signature_is_named(audited: Audited, write_facts: Write) -> None:
    path = write_facts(*LINES)
    assert sign(audited, path) == path.with_name("owner.yaml.sig")
    sign(audited, path, by="other")
    sign(audited, path)
    made = audited.dossier(REF, "plain", path)
    assert made.dossier["facts"]["signers"] == ["release"]
    assert made.dossier["facts"]["unchecked"] == [f"unknown key {audited.other.public.id[:12]}"]
    assert len(Envelope.decode(made.files["owner.yaml.sig"]).signatures) == 2
    assert "owner, signed" in made.files["dossier.html"].decode()


def test_a_signature_that_nobody_checked_is_not_called_one(audited: Audited, write_facts: Write) -> None:
    """Anybody can write 64 zeros below the id of a key that the reader does not know."""
    path = write_facts(*LINES)
    beside = sign(audited, path, by="other")
    envelope = Envelope.decode(beside.read_bytes())
    beside.write_bytes(replace(envelope, signatures=(Signature("ab" * 32, bytes(64)),)).encode())
    bundle = audited.dossier(REF, "eu-annex-iv", path)
    page = bundle.files["dossier.html"].decode()
    assert bundle.dossier["facts"]["unchecked"] == ["unknown key abababababab"]
    assert bundle.dossier["facts"]["signers"] == []
    assert "owner, signature not checked: unknown key" in page and "owner, signed" not in page
    assert "<strong>the signature was not checked</strong>: unknown key abababababab." in page


def test_the_owners_key_is_listed(audited: Audited, write_facts: Write) -> None:
    """Also if it signed nothing in the registry."""
    owner = generate("ed25519")
    audited.trust("[keys.owner]", f'key = "{owner.public}"')
    path = write_facts(*LINES)
    sign_facts(path, audited.registry.get(REF), owner)
    made = audited.dossier(REF, "plain", path)
    assert {"name": "owner", "key": str(owner.public)} in made.dossier["keys"]


def test_a_signature_on_other_words_or_another_version_is_refused(
    audited: Audited, write_facts: Write
) -> None:
    path = write_facts(*LINES)
    sign(audited, path, "1.1.0")
    with pytest.raises(IntegrityError, match="of other facts or another version"):
        audited.dossier(REF, "plain", path)
    sign(audited, path)
    write_facts(*LINES, "  contact: somebody else")
    with pytest.raises(IntegrityError, match="of other facts or another version"):
        audited.dossier(REF, "plain", path)


def test_a_signature_that_its_key_did_not_make_is_refused(audited: Audited, write_facts: Write) -> None:
    path = write_facts(*LINES)
    beside = sign(audited, path, by="other")
    forged = beside.read_bytes().replace(audited.other.public.id.encode(), audited.key.public.id.encode())
    beside.write_bytes(forged)
    with pytest.raises(IntegrityError, match="release did not sign this"):
        audited.dossier(REF, "plain", path)
    beside.write_bytes(b"{}")
    with pytest.raises(IntegrityError, match="cannot be read"):
        audited.dossier(REF, "plain", path)


def test_a_revoked_key_does_not_count(audited: Audited, write_facts: Write) -> None:
    path = write_facts(*LINES)
    sign(audited, path)
    audited.trust("[[revoked]]", 'key = "release"', "date = 2026-01-02", 'reason = "stolen"')
    with pytest.raises(IntegrityError, match="does not count: revoked"):
        audited.dossier(REF, "plain", path)


@pytest.mark.parametrize(
    ("lines", "name", "message"),
    [
        (("  providr: Acme",), NAME, "no profile has a field 'providr'"),
        (("  provider: {a: 1}",), NAME, "statements.provider"),
        (("  provider: a", "  provider: b"), NAME, "occurs twice"),
        (("  provider: a",), "acme/ner", "is about acme/ner"),
        (("  provider: [",), NAME, "neither YAML nor JSON"),
    ],
)
def test_a_file_that_is_not_right_is_refused(
    audited: Audited, write_facts: Write, lines: tuple[str, ...], name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        audited.dossier(REF, "plain", write_facts(*lines, name=name))


def test_a_missing_file_and_facts_of_another_model(
    audited: Audited, write_facts: Write, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError):
        audited.dossier(REF, "plain", tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is about acme/ner"):
        sign(audited, write_facts(*LINES, name="acme/ner"))
