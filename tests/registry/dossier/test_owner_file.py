"""What only a person can state about a model."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.registries.gated import NAME

from onnxreg.schema.core.errors import InputError, NotFoundError

from .conftest import Audited
from .test_dossier import fields

Write = Callable[..., Path]
REF = f"{NAME}:1.2.0"
LINES = ("  provider: Acme GmbH", "  intended_purpose: [Find names., 'Not <b>for</b> diagnosis.']")


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
    assert "Not &lt;b&gt;for&lt;/b&gt; diagnosis." in page
    assert made.files["owner.yaml"].startswith(b"facts: 1")


@pytest.mark.parametrize(
    ("lines", "name", "message"),
    [
        (("  providr: Acme",), NAME, "no profile has a field 'providr'"),
        (("  provider: {a: 1}",), NAME, "statements.provider"),
        (("  provider: a", "  provider: b"), NAME, "occurs twice"),
        (("  provider: a",), "acme/ner", "are about acme/ner"),
        (("  provider: [",), NAME, "neither YAML nor JSON"),
    ],
)
def test_a_file_that_is_not_right_is_refused(
    audited: Audited, write_facts: Write, lines: tuple[str, ...], name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        audited.dossier(REF, "plain", write_facts(*lines, name=name))


def test_a_missing_file(audited: Audited, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        audited.dossier(REF, "plain", tmp_path / "none.yaml")
