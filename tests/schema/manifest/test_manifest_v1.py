"""Version 1 documents, and which class reads which version."""

import json
from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import read_manifest
from onnxreg.schema.manifest.manifest_v1 import ManifestV1

FIXTURES = Path(__file__).parents[1].parent / "fixtures/openmed-v1"
LEAST: dict[str, Any] = {"format": "openmed-onnx", "format_version": 1, "artifacts": []}


def read(**changes: Any) -> ManifestV1:
    manifest = read_manifest(json.dumps(LEAST | changes).encode())
    assert isinstance(manifest, ManifestV1)
    return manifest


@pytest.mark.parametrize("directory", ["bert", "distilbert-over-bert"])
def test_a_real_document_survives_a_round_trip(directory):
    data = (FIXTURES / directory / "openmed-onnx.json").read_bytes()
    manifest = read_manifest(data)
    assert isinstance(manifest, ManifestV1)
    assert manifest.to_json() == json.loads(data)
    assert (
        ManifestV1.decode(manifest.encode()).encode()
        == manifest.encode()
        == canonical.encode(json.loads(data))
    )


def test_a_format_may_stand_twice():
    artifacts = [{"format": "onnx-android", "path": path} for path in ("model.onnx", "model_fp16.onnx")]
    manifest = read(artifacts=artifacts, formats=["onnx-android", "onnx-android"])
    assert [artifact.format for artifact in manifest.artifacts] == ["onnx-android"] * 2


def test_a_directory_artifact_without_metadata():
    artifact = read(artifacts=[{"format": "transformersjs", "path": "transformersjs"}]).artifacts[0]
    assert (artifact.metadata, artifact.precision) == (None, None)


def test_null_and_absent_claims_stay_apart():
    assert read(label_map_path=None).to_json() == LEAST | {"label_map_path": None}
    assert read().to_json() == LEAST
    assert read().certified is None


def test_unknown_fields_are_kept_at_every_level():
    value = LEAST | {
        "x-site": [1, {"deep": None}],
        "artifacts": [{"format": "onnx", "path": "m.onnx", "sha": "?", "metadata": {"latency": 1.5}}],
        "tokenizer": {"path": ".", "kind": "bpe"},
        "segmenter": {"id": "s", "resource_files": [{"path": "s.bin", "role": "model"}]},
    }
    assert read(**value).to_json() == value


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"artifacts": None}, "artifacts"),
        ({"artifacts": [{"format": "onnx"}]}, "artifacts.0.path"),
        ({"artifacts": [{"path": "m.onnx"}]}, "artifacts.0.format"),
        ({"artifacts": [{"format": 3, "path": "m.onnx"}]}, "artifacts.0.format"),
        ({"certified": "yes"}, "certified"),
        ({"segmenter": {"resource_files": [{}]}}, "segmenter.resource_files.0.path"),
    ],
)
def test_errors_name_the_field(changes, path):
    with pytest.raises(InputError, match=rf"at {path}: "):
        read(**changes)


@pytest.mark.parametrize("version", [0, 3, 99, "1", None, 1.5, True])
def test_other_versions_are_told_apart(version):
    with pytest.raises(InputError, match=r"this build reads 1 and 2") as caught:
        read_manifest(json.dumps(LEAST | {"format_version": version}).encode())
    assert "upgrade onnxreg" in caught.value.hint


@pytest.mark.parametrize(
    "data", [b"[]", b"3", b"{}", b'{"format": "onnx", "format_version": 1}', b"{", b"\xff"]
)
def test_other_documents(data):
    with pytest.raises(InputError):
        read_manifest(data)


def test_version_2_is_read_by_its_own_class():
    with pytest.raises(InputError, match=r"at name: it is missing|at (name|formats)"):
        read_manifest(json.dumps(LEAST | {"format_version": 2}).encode())
