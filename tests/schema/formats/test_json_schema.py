"""The JSON Schemas judge as the models do where they can."""

import copy
import json
from typing import Any

import pytest

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.formats import json_schema as documents
from onnxreg.schema.manifest.manifest import Manifest


def validator(name: str) -> Any:
    import jsonschema

    schema = json.loads(documents.text(name))
    cls = jsonschema.validators.validator_for(schema)
    cls.check_schema(schema)
    return cls(schema)


@pytest.mark.parametrize("name", documents.MODELS)
def test_each_is_a_schema(name: str) -> None:
    assert validator(name).schema["$schema"] == documents.DIALECT


def test_unknown_document() -> None:
    with pytest.raises(InputError, match="no document is called 'manifest-v9'"):
        documents.text("manifest-v9")


def test_full_manifest_is_valid(full: dict[str, Any]) -> None:
    validator("manifest-v2").validate(full)
    validator("manifest-v2").validate({**full, "unknown": {"x": 1}})
    validator("recipe").validate(full["recipe"])


def mutations(value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    def changed(*path: Any, to: Any) -> dict[str, Any]:
        result = copy.deepcopy(value)
        holder = result
        for key in path[:-1]:
            holder = holder[key]
        if to is ...:
            del holder[path[-1]]
        else:
            holder[path[-1]] = to
        return result

    return {
        "no name": changed("name", to=...),
        "no digest": changed("artifacts", 0, "digest", to=...),
        "no pass": changed("recipe", "steps", 0, "pass", to=...),
        "format": changed("format", to="x"),
        "format version": changed("format_version", to=3),
        "no artifacts": changed("artifacts", to=[]),
        "digest": changed("files", 0, "digest", to="sha256:" + "A" * 64),
        "size": changed("files", 0, "size", to=-1),
        "size true": changed("files", 0, "size", to=True),
        "state": changed("artifacts", 1, "certification", "state", to="great"),
        "verdict": changed("artifacts", 1, "checks", 0, "verdict", to=None),
        "labels": changed("labels", to=["O", 1]),
        "kind": changed("artifacts", 0, "metadata", "inputs", 0, "shape", 0, "kind", to="any"),
        "operator types": changed("artifacts", 0, "operators", 0, "inputs", to={"0": "float"}),
        **{
            f"path {path!r}": changed("files", 0, "path", to=path)
            for path in ("", "/a", "a/", "a//b", "..", "a/../b", "./a", "C:x", "a\\b", "a\x00", "x" * 1025)
        },
    }


def test_the_model_refuses_the_documents_that_the_schema_refuses(full: dict[str, Any]) -> None:
    judge = validator("manifest-v2")
    for name, value in mutations(full).items():
        assert not judge.is_valid(value), name
        with pytest.raises(ValueError, match="validation error"):
            Manifest.model_validate_json(json.dumps(value))


def test_the_pattern_lets_ordinary_paths_through(full: dict[str, Any]) -> None:
    judge = validator("manifest-v2")
    for path in ("a", "a/b.c/d", "..a", "a..", ".a/b", "...", "é/x"):
        full["files"][0]["path"] = path
        assert judge.is_valid(full), path
