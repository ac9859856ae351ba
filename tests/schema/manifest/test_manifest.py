"""Manifest version 2: lossless, strict, frozen; every refusal says where."""

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from support.schema.edits import Path, at, sha

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.parts import Step

TYPED = {"opset_imports", "tools"}
"""Objects whose keys are data and whose values have one type."""


def objects(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every object that may hold a key this build does not know."""
    if isinstance(value, dict):
        typed = path[-1:] and (path[-1] in TYPED or (path[-1] in ("inputs", "outputs")))
        if not typed:
            yield path
        for key, item in value.items():
            yield from objects(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from objects(item, (*path, index))


def refusal(value: Any) -> str:
    with pytest.raises(InputError) as caught:
        Manifest.from_json(value, "openmed-onnx.json")
    assert caught.value.message.startswith("openmed-onnx.json is not valid")
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()
    return caught.value.message


def test_full_manifest_round_trip(full: dict[str, Any]) -> None:
    data = canonical.encode(full)
    manifest = Manifest.decode(data)
    assert manifest.encode() == data
    assert Manifest.from_json(full) == manifest
    unset = {name for name in type(manifest).model_fields if name not in manifest.model_fields_set}
    assert unset == {FAMILY}


def test_unknown_fields_survive_at_every_level(full: dict[str, Any]) -> None:
    unknown = {"x": [1, {"y": None}], "encode": "e", "model_config": 2.5, "pass_": [], "ключ": {}}
    paths = list(objects(full))
    assert len(paths) > 60
    for path in paths:
        for key in ("unknown", "encode", "to_json", "model_fields_set", "__class__", "pass_", "copy", "ключ"):
            at(full, path).setdefault(key, unknown)
    data = canonical.encode(full)
    assert Manifest.decode(data).encode() == data


FAMILY = "model_family"
OF_FAMILIES = ("ModelFamily", "Member", "Edge", "Classes", "StackedHead")
"""What only a family's manifest has: `test_family.py`."""

REQUIRED: list[Path] = [
    *((key,) for key in ("format", "format_version", "name", "formats", "artifacts")),
    *(("artifacts", 1, key) for key in ("format", "path", "precision", "digest", "size")),
    *(("artifacts", 1, "files", 0, key) for key in ("role", "path", "digest", "size")),
    *(("artifacts", 1, "pieces", key) for key in ("size", "digests")),
    *(("artifacts", 0, "metadata", "inputs", 1, key) for key in ("name", "dtype")),
    ("artifacts", 0, "metadata", "outputs", 0, "shape", 2, "kind"),
    *(("artifacts", 2, "operators", 0, key) for key in ("domain", "name", "opset")),
    *(("artifacts", 1, "quantization", key) for key in ("requested", "measured")),
    *(
        ("artifacts", 1, "quantization", "measured", f"{what}_{which}")
        for what in ("weights", "bytes")
        for which in ("quantized", "total")
    ),
    *(("artifacts", 1, "kv_cache", key) for key in ("bytes_per_token", "max_tokens")),
    *(("artifacts", 1, "semantic", key) for key in ("graph", "weights")),
    *(("artifacts", 1, "checks", 0, key) for key in ("name", "metric", "value", "verdict")),
    ("artifacts", 1, "certification", "state"),
    ("artifacts", 1, "certification", "evidence", "artifact"),
    *(("files", 2, key) for key in ("role", "path", "digest", "size")),
    ("source", "id"),
    *(("recipe", key) for key in ("profile", "profile_version", "steps", "tools")),
    ("recipe", "code", "name"),
    *(("recipe", "steps", 0, key) for key in ("name", "pass", "version", "params")),
    *(("preprocessing", key) for key in ("size", "mean", "std")),
    ("audio_preprocessing", "sampling_rate"),
]


def test_the_table_names_every_required_field() -> None:
    schema = Manifest.model_json_schema()
    models = [schema, *(model for name, model in schema["$defs"].items() if name not in OF_FAMILIES)]
    declared = [key for model in models for key in model.get("required", ())]
    assert sorted(declared) == sorted(str(path[-1]) for path in REQUIRED if path[0] != "files")


@pytest.mark.parametrize("path", REQUIRED, ids=lambda path: ".".join(map(str, path)))
def test_required_field(path: Path, full: dict[str, Any]) -> None:
    """Removed or of another JSON type: refused, with the path to it."""
    holder, key = at(full, path[:-1]), path[-1]
    where = f" at {'.'.join(map(str, path))}"
    old = holder.pop(key)
    assert f"{where}: it is missing" in refusal(full)
    for other in (None, True, "text", -1, 1.5, ["x"], {"x": 1}):
        as_number = isinstance(old, float) and isinstance(other, float | int) and other is not True
        if (isinstance(old, type(other)) and not isinstance(old, int)) or as_number:
            continue
        if other is None and key == "value":
            continue
        holder[key] = other
        assert where in refusal(full), other


def test_the_same_artifact_twice(full: dict[str, Any]) -> None:
    full["artifacts"].append(full["artifacts"][0])
    assert "artifacts.3 repeats format, precision and path" in refusal(full)


def test_one_file_may_stand_twice(full: dict[str, Any]) -> None:
    full["files"].append({**full["files"][0], "role": "other"})
    Manifest.from_json(full)


def test_a_python_name_is_no_key_of_the_format(full: dict[str, Any]) -> None:
    step = full["recipe"]["steps"][0]
    step["pass_"] = step.pop("pass")
    assert "at recipe.steps.0.pass: it is missing" in refusal(full)
    assert Step(name="a", pass_="b", version=1, params={}).to_json()["pass"] == "b"


def test_whole_floats_are_read_as_what_they_are_written_as(full: dict[str, Any]) -> None:
    full["artifacts"][1]["checks"][0].update(value=1.0, interval=[1, 1.0])
    data = canonical.encode(full)
    assert json.dumps(full).encode() != data
    assert Manifest.decode(json.dumps(full).encode()).encode() == data


@pytest.mark.parametrize("key", ["\x1b[2J" * 100_000, "a" * 1_000_000, "\u202e"])
def test_a_key_of_the_document_cannot_flood_or_rewrite_the_terminal(key: str, full: dict[str, Any]) -> None:
    full["artifacts"][0]["opset_imports"][key] = "x"
    assert "artifacts.0.opset_imports." in refusal(full)


def test_a_manifest_is_frozen_and_copies_are_equal(full: dict[str, Any]) -> None:
    manifest = Manifest.from_json({**full, "unknown": {"x": [1]}})
    with pytest.raises(ValueError, match="frozen"):
        manifest.name = "b"
    for other in (copy.deepcopy(manifest), pickle.loads(pickle.dumps(manifest))):
        assert other == manifest
        assert other.encode() == manifest.encode()


def test_all_files_and_own_size(full: dict[str, Any]) -> None:
    manifest = Manifest.from_json(full)
    paths = [entry.path for entry in manifest.all_files()]
    assert paths[:3] == ["model.onnx", "model_int8.onnx", "model_int8.onnx.data"]
    assert paths[-1] == "recall_delta.json"
    int8 = manifest.artifacts[1]
    external = next(entry for entry in int8.files if entry.role == "external-data")
    assert int8.own_size == int8.size + external.size < sum(entry.size for entry in int8.all_files())
    assert [entry.digest for entry in int8.all_files()] == [
        Digest.parse(sha(number)) for number in (2, 12, 14)
    ]
