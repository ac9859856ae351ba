"""Statements about a model: its licence and its description, and where a manifest keeps them."""

import json
import re

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.formats import json_schema
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.vocabulary import (
    DESCRIPTION,
    HUB_NAMES,
    MAX_DESCRIPTION_CHARS,
    check_description,
    check_license,
    hub_license,
    spdx_expression,
)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("apache-2.0", "Apache-2.0"),
        ("mit or apache-2.0", "MIT OR Apache-2.0"),
        ("GPL-2.0-only with classpath-exception-2.0", "GPL-2.0-only WITH Classpath-exception-2.0"),
        ("LicenseRef-Acme", "LicenseRef-Acme"),
        ("OpenRAIL", "openrail"),
        ("llama3.1", "llama3.1"),
        ("other", "other"),
    ],
)
def test_a_licence_has_one_spelling(typed, stored):
    assert check_license(typed) == check_license(stored) == stored


@pytest.mark.parametrize(
    ("typed", "near"),
    [
        ("apache2", "Apache-2.0"),
        ("mit license", "LicenseRef-NAME"),
        ("opnrail", "openrail"),
        ("MIT OR", "SPDX"),
    ],
)
def test_another_name_gets_the_nearest_ones(typed, near):
    with pytest.raises(InputError, match="no licence is called") as raised:
        check_license(typed)
    assert near in raised.value.hint


def test_an_empty_licence_is_called_empty():
    with pytest.raises(InputError, match="the licence is empty") as raised:
        check_license(" ")
    assert "SPDX" in raised.value.hint


@pytest.mark.parametrize("text", ["(" * 4000, "not mit", "mit)", "\0", "mit or " * 500, "__import__('os')"])
def test_hostile_text_makes_no_expression(text):
    assert spdx_expression(text) is None


def test_a_card_has_a_name_that_the_hub_knows():
    assert hub_license("MIT") == {"license": "mit"}
    assert hub_license("GPL-3.0-only") == hub_license("GPL-3.0-or-later") == {"license": "gpl-3.0"}
    assert hub_license("MIT OR Apache-2.0") == {"license": "other", "license_name": "mit or apache-2.0"}
    assert all(hub_license(name) == {"license": name} for name in HUB_NAMES)


TEXTS = {
    "Names of people in letters": True,
    "Prénoms, 名前, שם 👩\u200d⚕️": True,
    "x" * MAX_DESCRIPTION_CHARS: True,
    "x" * (MAX_DESCRIPTION_CHARS + 1): False,
    "": False,
    "two\nlines": False,
    "a\ttab": False,
    "bell\x07": False,
    "next\x85line": False,
    "right\u202eleft": False,
    "\u2066hidden\u2069": False,
}


@pytest.mark.parametrize(("text", "is_valid"), TEXTS.items())
def test_a_description_is_one_line_for_every_reader(text, is_valid, full):
    from jsonschema import Draft202012Validator

    schema = json.loads(json_schema.text("manifest-v2"))
    value = {**full, "description": text}
    assert Draft202012Validator(schema).is_valid(value) == is_valid
    assert (re.fullmatch(DESCRIPTION, text) is not None) == is_valid
    if is_valid:
        assert check_description(text) == Manifest.from_json(value).description == text
        return
    for read in (lambda: check_description(text), lambda: Manifest.from_json(value)):
        with pytest.raises(InputError):
            read()


def test_a_manifest_without_a_description_has_the_same_bytes_as_before(full):
    del full["description"]
    manifest = Manifest.from_json(full)
    assert manifest.description is None
    assert "description" not in json.loads(manifest.encode())
