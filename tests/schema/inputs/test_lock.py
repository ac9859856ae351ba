"""onnxreg.lock: one spelling, strict reading, and what changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.inputs.lockfile import ChosenArtifact, LockedArtifact, Lockfile
from onnxreg.schema.log.summary import FileSummary
from onnxreg.schema.query.device import Device, preset
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.requirements import Query
from onnxreg.schema.query.resolve import ResolveRequest

DOCS = Path(__file__).parents[3] / "docs" / "lock.md"


def entry(name: str = "acme/pii", version: str = "1.0.0", query: Query | None = None) -> LockedArtifact:
    def file(role: str, path: str, size: int) -> FileSummary:
        return FileSummary(role, path, Digest.of(path.encode()), size)

    return LockedArtifact(
        name,
        ResolveRequest(Ref(name, "stable"), query or Query()).to_json(),
        "0" * 32,
        Version.parse(version),
        Digest.of(f"{name} {version}".encode()),
        ChosenArtifact("onnx-int8", "int8", "model_int8.onnx"),
        (file("config", "config.json", 2), file("artifact", "model_int8.onnx", 1000)),
    )


ASKED = Query(("onnx-int8", "ort"), "int8", True, 3000, {"PHONE": 0.9}, parse("opset <= 18 and not yanked"))


@pytest.mark.parametrize("device", [None, preset("ort-android-1.23"), Device("1.20", ram=1000)])
@pytest.mark.parametrize("query", [Query(), ASKED])
def test_a_question_is_a_document_both_ways(query: Query, device: Device | None) -> None:
    request = ResolveRequest(Ref.parse("acme/pii:stable"), query, device)
    again = ResolveRequest.read(json.loads(json.dumps(request.to_json())))
    assert again == request
    assert None not in request.to_json().values()


def test_one_spelling() -> None:
    lock = Lockfile.of([entry("b"), entry("acme/pii", query=ASKED)])
    data = lock.encode()
    assert list(lock.models) == ["acme/pii", "b"]
    assert Lockfile.of([entry("acme/pii", query=ASKED), entry("b")]).encode() == data
    assert Lockfile.decode(data) == lock and Lockfile.decode(data).encode() == data
    assert Lockfile.decode(json.dumps(json.loads(data)).encode()).encode() == data
    assert data.endswith(b"}\n") and b'\n  "models": [' in data


def test_the_schema_in_the_docs_is_of_what_is_written() -> None:
    import jsonschema

    block = DOCS.read_text().partition("```json\n")[2].partition("```")[0]
    schema = json.loads(block)
    jsonschema.validators.validator_for(schema).check_schema(schema)
    value = json.loads(Lockfile.of([entry(query=ASKED)]).encode())
    jsonschema.validate(value, schema)
    for path in (["format"], ["models", 0, "files", 0, "digest"], ["models", 0, "registry"]):
        broken = json.loads(json.dumps(value))
        holder = broken
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = "x"
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def mutations() -> dict[str, Any]:
    def changed(*path: Any, to: Any) -> bytes:
        value = json.loads(Lockfile.of([entry("a"), entry("b")]).encode())
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        if to is ...:
            del holder[path[-1]]
        else:
            holder[path[-1]] = to
        return json.dumps(value).encode()

    first = ("models", 0)
    return {
        "is not a lock": changed("format", to="other"),
        "unknown format_version": changed("format_version", to=2),
        "models is malformed": changed("models", to={}),
        "missing required field `version`": changed(*first, "version", to=...),
        "not a digest": changed(*first, "manifest", to="sha1:00"),
        "not a registry id": changed(*first, "registry", to="here"),
        "it is about c, and asks for a": changed(*first, "name", to="c"),
        "not sorted by name": changed(*first, to=entry("b").to_json()),
        "not the one file with the role artifact": changed(*first, "artifact", "path", to="config.json"),
        "path is absolute": changed(*first, "files", 0, "path", to="/etc/passwd"),
        "a query has no 'colour'": changed(*first, "asked", "colour", to="red"),
        "not valid JSON": b"{",
    }


@pytest.mark.parametrize("message", mutations())
def test_a_wrong_lock_file_is_refused(message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Lockfile.decode(mutations()[message], "app.lock")
    assert "app.lock" in caught.value.message


def test_changes_are_told_by_name() -> None:
    before = Lockfile.of([entry("a"), entry("b"), entry("c"), entry("d")])
    moved = entry("c").replace(registry="1" * 32)
    after = Lockfile.of([entry("a"), entry("b", "1.1.0"), moved, entry("e")])
    assert [str(change) for change in after.changes(before)] == [
        "b: 1.0.0 model_int8.onnx -> 1.1.0 model_int8.onnx",
        "c: 1.0.0 model_int8.onnx, registry is another",
        "d: removed 1.0.0 model_int8.onnx",
        "e: added 1.0.0 model_int8.onnx",
    ]
    assert after.changes(after) == []


def test_entries_are_replaced_by_name() -> None:
    lock = Lockfile.of([entry("a"), entry("b")]).with_entries([entry("b", "2.0.0")])
    assert [str(found.version) for found in lock.models.values()] == ["1.0.0", "2.0.0"]


def test_equal_files_are_downloaded_once() -> None:
    one = entry()
    assert one.size == 1002
    assert one.replace(files=(*one.files, one.files[0].replace(path="copy.json"))).size == 1002
