"""onnxreg.lock: one spelling, strict reading, and what changed."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.schema.edits import replaced_at

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.inputs.lockfile import ChosenArtifact, LockedArtifact, Lockfile
from onnxreg.schema.log.state import FileSummary
from onnxreg.schema.query.device import Device, ResolveRequest, preset
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.resolve import Query

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
def test_a_question_is_a_document_both_ways(query, device):
    request = ResolveRequest(Ref.parse("acme/pii:stable"), query, device)
    again = ResolveRequest.read(json.loads(json.dumps(request.to_json())))
    assert again == request
    assert None not in request.to_json().values()


def test_one_spelling():
    lock = Lockfile.of([entry("b"), entry("acme/pii", query=ASKED)])
    data = lock.encode()
    assert list(lock.models) == ["acme/pii", "b"]
    assert Lockfile.of([entry("acme/pii", query=ASKED), entry("b")]).encode() == data
    assert Lockfile.decode(data) == lock and Lockfile.decode(data).encode() == data
    assert Lockfile.decode(json.dumps(json.loads(data)).encode()).encode() == data
    assert data.endswith(b"}\n") and b'\n  "models": [' in data


def test_the_schema_in_the_docs_is_of_what_is_written():
    import jsonschema

    block = DOCS.read_text().partition("```json\n")[2].partition("```")[0]
    schema = json.loads(block)
    jsonschema.validators.validator_for(schema).check_schema(schema)
    value = json.loads(Lockfile.of([entry(query=ASKED)]).encode())
    jsonschema.validate(value, schema)
    for pointer in ("/format", "/models/0/files/0/digest", "/models/0/registry"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(replaced_at(value, pointer, "x"), schema)


WRONG: dict[str, tuple[str, Any]] = {
    "is not a lock": ("/format", "other"),
    "unknown format_version": ("/format_version", 2),
    "models is malformed": ("/models", {}),
    "`version` is missing": ("/models/0/version", ...),
    "not a digest": ("/models/0/manifest", "sha1:00"),
    "not a registry id": ("/models/0/registry", "here"),
    "it is about c, and asks for a": ("/models/0/name", "c"),
    "not sorted by name": ("/models/0", entry("b").to_json()),
    "not the one file with the role artifact": ("/models/0/artifact/path", "config.json"),
    "path is absolute": ("/models/0/files/0/path", "/etc/passwd"),
    "a query has no 'colour'": ("/models/0/asked/colour", "red"),
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_lock_file_is_refused(message):
    value = replaced_at(json.loads(Lockfile.of([entry("a"), entry("b")]).encode()), *WRONG[message])
    with pytest.raises(InputError, match=message) as caught:
        Lockfile.decode(json.dumps(value).encode(), "app.lock")
    assert "app.lock" in caught.value.message


def test_a_file_that_is_no_json_is_refused():
    with pytest.raises(InputError, match=r"app\.lock is not valid JSON"):
        Lockfile.decode(b"{", "app.lock")


def test_changes_are_told_by_name():
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


def test_entries_are_replaced_by_name():
    lock = Lockfile.of([entry("a"), entry("b")]).with_entries([entry("b", "2.0.0")])
    assert [str(found.version) for found in lock.models.values()] == ["1.0.0", "2.0.0"]


def test_equal_files_are_downloaded_once():
    one = entry()
    assert one.size == 1002
    assert one.replace(files=(*one.files, one.files[0].replace(path="copy.json"))).size == 1002
