"""The JSON Schemas judge as the models do where they can."""

import json
from functools import cache
from typing import Any

import pytest
from support.schema.edits import replaced_at

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.formats import json_schema as documents
from onnxreg.schema.manifest.manifest import Manifest


@cache
def validator(name: str) -> Any:
    import jsonschema

    schema = json.loads(documents.text(name))
    cls = jsonschema.validators.validator_for(schema)
    cls.check_schema(schema)
    return cls(schema)


@pytest.mark.parametrize("name", documents.MODELS)
def test_each_is_a_schema(name):
    assert validator(name).schema["$schema"] == documents.DIALECT


def test_unknown_document():
    with pytest.raises(InputError, match="no document is called 'manifest-v9'"):
        documents.text("manifest-v9")


def test_full_manifest_is_valid(full):
    validator("manifest-v2").validate(full)
    validator("manifest-v2").validate({**full, "unknown": {"x": 1}})
    validator("recipe").validate(full["recipe"])


INVALID = r"""
/name | removed
/artifacts/0/digest | removed
/recipe/steps/0/pass | removed
/format | "x"
/format_version | 3
/artifacts | []
/files/0/digest | "sha256:CAPITALS"
/files/0/size | -1
/files/0/size | true
/artifacts/1/certification/state | "great"
/artifacts/1/checks/0/verdict | null
/labels | ["O", 1]
/artifacts/0/metadata/inputs/0/shape/0/kind | "any"
/artifacts/0/operators/0/inputs | {"0": "float"}
/files/0/path | ""
/files/0/path | "/a"
/files/0/path | "a/"
/files/0/path | "a//b"
/files/0/path | ".."
/files/0/path | "a/../b"
/files/0/path | "./a"
/files/0/path | "C:x"
/files/0/path | "a\\b"
/files/0/path | "a\u0000"
/files/0/path | "LONG"
"""
"""Pointers into a whole manifest, and values there that are invalid."""


def test_the_model_refuses_the_documents_that_the_schema_refuses(full):
    judge = validator("manifest-v2")
    for line in INVALID.strip().splitlines():
        pointer, text = line.split(" | ")
        text = text.replace("CAPITALS", "A" * 64).replace("LONG", "x" * 1025)
        value = replaced_at(full, pointer, ... if text == "removed" else json.loads(text))
        assert not judge.is_valid(value), line
        with pytest.raises(ValueError, match="validation error"):
            Manifest.model_validate_json(json.dumps(value))


def test_the_pattern_lets_ordinary_paths_through(full):
    judge = validator("manifest-v2")
    for path in ("a", "a/b.c/d", "..a", "a..", ".a/b", "...", "é/x"):
        full["files"][0]["path"] = path
        assert judge.is_valid(full), path
