"""SLSA provenance: read by in-toto's own library, whole, and only where a recipe is recorded."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.formats.sbom import BomSubject, provenance
from onnxreg.schema.manifest.manifest import Manifest


def make(value: dict[str, Any]) -> dict[str, Any]:
    manifest = Manifest.from_json(value)
    return provenance(BomSubject(manifest, Digest.of(manifest.encode()), Version(1, 2, 0)))


def parsed(made: dict[str, Any]) -> Any:
    """The predicate, read by the library; it refuses unknown fields, and statements that lack what they must have."""
    from google.protobuf import json_format
    from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement

    message = json_format.Parse(json.dumps(made), statement_pb2.Statement())
    Statement.copy_from_pb(message).validate()
    predicate = provenance_pb2.Provenance()
    json_format.ParseDict(made["predicate"], predicate)
    assert predicate.build_definition.build_type and predicate.run_details.builder.id
    return predicate


def test_in_totos_library_reads_it(full: dict[str, Any]) -> None:
    full["recipe"]["code"] = {"name": "net:build", "digest": full["source"]["digest"]}
    full["recipe"]["tools"]["isa"] = "x86_64+avx2"
    made = make(full)
    predicate = parsed(made)
    build = predicate.build_definition
    assert build.external_parameters["profile"] == full["recipe"]["profile"]
    assert len(build.internal_parameters["steps"]) == len(full["recipe"]["steps"])
    source, code = build.resolved_dependencies
    hexed = full["source"]["digest"].removeprefix("sha256:")
    assert (source.name, dict(source.digest)) == (full["source"]["id"], {"dirHash": hexed})
    assert source.annotations["revision"] == "abc"
    assert (code.name, dict(code.digest)) == ("net:build", {"sha256": hexed})
    assert dict(predicate.run_details.builder.version) == full["recipe"]["tools"]


def test_every_file_is_a_subject(full: dict[str, Any]) -> None:
    files = {(entry.path, entry.digest.hex) for entry in Manifest.from_json(full).all_files()}
    assert {(each["name"], each["digest"]["sha256"]) for each in make(full)["subject"]} == files


@pytest.mark.parametrize("change", [{"surprise": 1}, {"subject": [{"digest": {}}]}, {"predicateType": ""}])
def test_the_library_refuses_a_wrong_statement(full: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"surprise|At least one|Predicate type required"):
        parsed(make(full) | change)


def test_the_digest_of_the_source_is_gos_dirhash(tmp_path: Path) -> None:
    """Go's Hash1: the SHA-256 of `sha256sum` of all files, sorted by name."""
    from onnxreg.converters.source.source_files import digest_files

    files = {"a.json": b"{}", "model.safetensors": b"weights"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    lines = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    assert digest_files(tmp_path, files).hex == hashlib.sha256(lines.encode()).hexdigest()


def test_without_a_recipe_nothing_is_said(full: dict[str, Any]) -> None:
    del full["recipe"]
    with pytest.raises(NotFoundError, match="no recorded recipe"):
        make(full)
