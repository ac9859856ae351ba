"""The documents of a dossier say what they may say, and nothing else."""

from typing import Any

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.dossier.profile import DossierProfile, OwnerFacts

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


def test_facts_are_texts_or_paragraphs() -> None:
    facts = OwnerFacts.from_json({"facts": 1, "name": "acme/pii", "statements": {"a": "x", "b": ["y", "z"]}})
    assert [facts.paragraphs(key) for key in "abc"] == [("x",), ("y", "z"), ()]
