"""A manifest without pydantic: the same fields, properties and rules as the document."""

import json
from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.schema_reader import PlainObject
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.plain_manifest import plain_manifest


def as_json(value: Any) -> Any:
    """The JSON of a plain object, with the defaults of absent keys."""
    if isinstance(value, PlainObject):
        named = {key: item for key, item in vars(value).items() if key != "model_extra"}
        return {("pass" if key == "pass_" else key): as_json(item) for key, item in named.items()} | {
            **vars(value)["model_extra"]
        }
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, Digest) else value


def whole(manifest: Manifest) -> Any:
    return json.loads(manifest.model_dump_json(by_alias=True))


def test_the_plain_object_has_the_fields_of_the_document(full: dict[str, Any]) -> None:
    full["unknown"] = {"x": [1]}
    full["artifacts"][0]["metadata"]["encode"] = None
    assert as_json(plain_manifest(json.dumps(full).encode())) == whole(Manifest.from_json(full))


def test_absent_fields_have_their_defaults(full: dict[str, Any]) -> None:
    required = ("format", "format_version", "name", "formats")
    artifact = {key: full["artifacts"][0][key] for key in ("format", "path", "precision", "digest", "size")}
    small = {key: full[key] for key in required} | {"artifacts": [artifact], "formats": [artifact["format"]]}
    plain = plain_manifest(json.dumps(small).encode())
    assert as_json(plain) == whole(Manifest.from_json(small))
    assert plain.artifacts[0].metadata.opset is None
    assert dict(plain.artifacts[0].opset_imports) == {}


def test_the_properties_are_those_of_the_document(full: dict[str, Any]) -> None:
    plain, document = plain_manifest(json.dumps(full).encode()), Manifest.from_json(full)
    for one, other in zip(plain.artifacts, document.artifacts, strict=True):
        assert one.own_size == other.own_size
        assert [check.label for check in one.checks] == [check.label for check in other.checks]
        assert [spec.shape_text for spec in one.metadata.inputs] == [
            spec.shape_text for spec in other.metadata.inputs
        ]
    assert plain.stages == document.stages
    assert [item.path for item in plain.entry_artifacts] == [item.path for item in document.entry_artifacts]


@pytest.mark.parametrize("path", [("license",), ("artifacts", 0, "ir_version"), ("artifacts", 0, "checks")])
def test_another_type_is_refused(path: tuple[Any, ...], full: dict[str, Any]) -> None:
    value: Any = full
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = 1.5
    with pytest.raises(InputError):
        plain_manifest(json.dumps(full).encode())


def test_every_required_field_is_required(full: dict[str, Any]) -> None:
    for key in ("format", "format_version", "name", "formats", "artifacts"):
        with pytest.raises(InputError, match=f"{key} is missing"):
            plain_manifest(json.dumps({name: full[name] for name in full if name != key}).encode())
