"""The documents of a dossier say what they may say, and nothing else."""

from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.dossier.dossier import Citation, DossierCell
from onnxreg.schema.dossier.dossier_profile import DossierProfile, FactsStatement, OwnerFacts
from onnxreg.schema.signing.dsse import Release

ONE, TWO = Digest.of(b"1"), Digest.of(b"2")
QUOTE = {"blob": str(ONE), "pointer": "/a", "value": 1}
BAD_CELLS: dict[str, dict[str, Any]] = {
    "another value than its source": {"value": 2, "sources": [QUOTE]},
    "a value without a source": {"value": 1, "sources": []},
    "two sources": {"value": 1, "sources": [QUOTE, QUOTE]},
    "a rule that is none": {"value": 1, "rule": "sum", "sources": [QUOTE]},
    "a source that is both": {"value": 1, "sources": [{**QUOTE, "log": "a", "line": 1, "digest": str(TWO)}]},
    "a line without its digest": {
        "value": 1,
        "sources": [{"log": "a", "line": 1, "pointer": "", "value": 1}],
    },
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_a_cell_that_its_citations_do_not_carry_is_refused(case: str) -> None:
    assert DossierCell.from_json({"value": 1, "sources": [QUOTE]}).value == 1
    with pytest.raises(InputError):
        DossierCell.from_json(BAD_CELLS[case])


def test_the_source_of_a_citation() -> None:
    assert Citation.from_json(QUOTE).source == ONE
    line = {"log": "acme/pii", "line": 3, "digest": str(TWO), "pointer": "/seq", "value": 3}
    assert Citation.from_json(line).source == TWO


BAD_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "exactly one of"),
    "two origins": ({"owner": "a", "generate": "history"}, "exactly one of"),
    "a source without a place": ({"from": "manifest"}, "value or columns"),
    "both places": ({"from": "manifest", "value": "/a", "columns": [["A", "0"]]}, "value or columns"),
    "no columns": ({"from": "manifest", "rows": "/a/*", "columns": []}, "columns"),
    "a generator with a place": ({"generate": "history", "value": "/a"}, "value or columns"),
    "an unknown generator": ({"generate": "poem"}, "generate"),
    "an unknown source": ({"from": "files", "value": "/a"}, "from"),
    "lines of a manifest": ({"from": "manifest", "value": "/a", "kinds": ["tag"]}, "choose lines"),
    "statements of no format": ({"from": "statements", "columns": [["A", "0"]]}, "format chooses"),
    "a manifest of a format": ({"from": "manifest", "value": "/a", "format": "x"}, "format chooses"),
    "no pointer": ({"from": "manifest", "value": "a"}, "not a JSON pointer"),
    "a misspelt key": ({"from": "manifest", "value": "/a", "lable": "x"}, "there is no such key"),
    "an owner's key in capitals": ({"owner": "Provider"}, "should match pattern"),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_a_field_that_means_nothing_is_refused(case: str) -> None:
    field, message = BAD_FIELDS[case]
    sections = [{"title": "A", "fields": [{"label": "x", **field}]}]
    with pytest.raises(InputError, match=message):
        DossierProfile.from_json({"dossier": 1, "name": "a", "title": "A", "sections": sections})


def test_the_statement_of_facts() -> None:
    statement = FactsStatement(ONE, TWO)
    assert FactsStatement.decode(statement.encode()) == statement
    release = Release.about("acme/pii", Version(1, 0, 0), b'{"artifacts":[]}')
    for payload in (release.encode(), b"{}", statement.encode().replace(b'"manifest"', b'"other"')):
        with pytest.raises(InputError):
            FactsStatement.decode(payload)


def test_facts_are_texts_or_paragraphs() -> None:
    facts = OwnerFacts.from_json({"facts": 1, "name": "acme/pii", "statements": {"a": "x", "b": ["y", "z"]}})
    assert [facts.paragraphs(key) for key in "abc"] == [("x",), ("y", "z"), ()]
