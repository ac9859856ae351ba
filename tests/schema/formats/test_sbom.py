"""The bill of materials: valid by the standard's own schema, whole, and the same whoever makes it."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.formats.hub_layout import card_metadata
from onnxreg.schema.formats.sbom import bill
from onnxreg.schema.manifest.manifest import Manifest


@cache
def judge() -> Any:
    """The validator, whose import takes a second."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6)


def make(value: dict[str, Any], version: str = "1.2.0") -> dict[str, Any]:
    manifest = Manifest.from_json(value)
    made = bill(manifest, Digest.of(manifest.encode()), Version.parse(version))
    assert judge().validate_str(json.dumps(made)) is None
    return made


def values(holder: dict[str, Any]) -> dict[str, str]:
    return {each["name"].removeprefix("onnxreg:"): each["value"] for each in holder["properties"]}


def component(made: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in made["components"] if each["name"] == name]
    return dict(found)


def test_the_validator_refuses_a_wrong_sbom(full):
    made = make(full)
    for spoiled in (
        made | {"surprise": 1},
        made | {"serialNumber": "1"},
        made | {"components": [{"type": "model", "name": "x"}]},
    ):
        assert judge().validate_str(json.dumps(spoiled)) is not None


def test_every_file_is_there_and_depended_on(full):
    made, manifest = make(full), Manifest.from_json(full)
    said = {(each["name"], each["hashes"][0]["content"], values(each)["size"]) for each in made["components"]}
    assert said == {(each.path, each.digest.hex, str(each.size)) for each in manifest.all_files()}
    refs = [each["bom-ref"] for each in made["components"]]
    assert len(set(refs)) == len(refs)
    needs = {part["ref"]: part["dependsOn"] for part in made["dependencies"]}
    assert {ref for depends in needs.values() for ref in depends} == set(refs)
    assert "file:model_int8.onnx.data" in needs["artifact:onnx-int8/int8/model_int8.onnx"]


def test_what_only_a_full_manifest_has(full):
    """Directions, intervals, quantization, the machine of the tools; all else is in the golden JSON of `reg sbom`."""
    full["recipe"]["tools"]["isa"] = "x86_64+avx2"
    made = make(full)
    found = component(made, "model_int8.onnx")
    metrics = found["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    interval = {"lowerBound": "0", "upperBound": "0.002"}
    assert {"type": "recall/quant_recall_delta", "value": "0.001", "confidenceInterval": interval} in metrics
    said = values(found["modelCard"])
    assert said["check:sts/spearman:direction"] == "higher"
    assert "check:recall/quant_recall_delta:direction" not in said
    assert said["certification:suite"] == full["artifacts"][1]["certification"]["evidence"]["suite"]
    assert {"format": "input_ids: int64[batch, sequence]"} in found["modelCard"]["modelParameters"]["inputs"]
    assert values(found)["quantization:weights_quantized"] == "4"
    assert json.loads(values(found)["quantization:requested"])["scheme"] == "dynamic"
    (formula,) = made["formulation"]
    assert [each["name"] for each in formula["components"]] == ["onnx", "torch"]
    assert values(formula["workflows"][0])["recipe:isa"] == "x86_64+avx2"


def test_reasons_of_a_refused_artifact(full):
    full["artifacts"][1]["certification"] |= {"state": "refused", "reasons": ["NAME loses 0.02"]}
    full["certified"] = full["quantization"]["certified"] = False
    found = component(make(full), "model_int8.onnx")
    assert "NAME loses 0.02" in found["modelCard"]["considerations"]["technicalLimitations"]


def test_the_serial_number_follows_from_digest_and_version(full):
    first = make(full)
    assert make(full) == first
    others = [make(full, "1.2.1"), make({**full, "license": "MIT"})]
    assert len({each["serialNumber"] for each in (first, *others)}) == 3


def test_a_timestamp_only_where_one_is_given(full):
    manifest = Manifest.from_json(full)
    about = manifest, Digest.of(manifest.encode()), Version(1, 0, 0)
    assert "timestamp" not in bill(*about)["metadata"]
    dated = bill(*about, timestamp="2026-01-31T12:00:00Z")
    assert dated["metadata"]["timestamp"] == "2026-01-31T12:00:00Z"
    assert judge().validate_str(json.dumps(dated)) is None


OPTIONAL = [
    *("source", "recipe", "license", "description", "labels", "task", "family", "max_sequence_length"),
    *("minimum_opset", "files"),
]


@given(st.sets(st.sampled_from(OPTIONAL)), st.booleans(), st.text(min_size=1, max_size=20))
def test_the_bill_of_any_manifest_is_valid(full_once, without, bare, text):
    value = {key: item for key, item in full_once.items() if key not in without}
    if bare:
        keys = ("format", "path", "precision", "digest", "size")
        value["artifacts"] = [{key: item[key] for key in keys} for item in value["artifacts"]]
        value |= {"certified": None, "quantization": None}
    if "license" in value:
        value["license"] = text
    make(value)


@pytest.mark.parametrize(
    ("text", "license"),
    [
        ("mit", {"license": {"id": "MIT"}}),
        ("EUPL-1.2", {"license": {"id": "EUPL-1.2"}}),
        ("mit or apache-2.0", {"expression": "MIT OR Apache-2.0"}),
        ("LicenseRef-Acme", {"expression": "LicenseRef-Acme"}),
        ("openrail", {"license": {"name": "openrail"}}),
        ("our own", {"license": {"name": "our own"}}),
    ],
)
def test_licences_by_identifier_or_by_name(full, text, license):
    assert make({**full, "license": text})["metadata"]["component"]["licenses"] == [license]


def test_local_files_are_not_the_model_itself(full):
    """Their id in the manifest is the model's own name; one of the Hub has a revision."""
    del full["source"]["revision"]
    full["source_model_id"] = full["source"]["id"] = full["name"]
    manifest = Manifest.from_json(full)
    (source,) = make(full)["metadata"]["component"]["pedigree"]["ancestors"]
    assert source["name"] == "local files"
    assert "base_model" not in card_metadata(manifest, [artifact.path for artifact in manifest.artifacts])
