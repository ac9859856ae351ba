"""Manifest version 2: lossless, strict, frozen; every refusal says where, and soon. A draft becomes one when its files are measured."""

import copy
import json
import pathlib
import pickle
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.processor import no_quadratic_time
from support.sampling import sampled
from support.schema.edits import Path, at, sha

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict
from onnxreg.schema.manifest.manifest import Manifest, Preprocessing, Step

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


def test_full_manifest_round_trip(full):
    data = canonical.encode(full)
    manifest = Manifest.decode(data)
    assert manifest.encode() == data
    assert Manifest.from_json(full) == manifest
    unset = {name for name in type(manifest).model_fields if name not in manifest.model_fields_set}
    assert unset == {FAMILY}


def test_unknown_fields_survive_at_every_level(full):
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


def test_the_table_names_every_required_field():
    schema = Manifest.model_json_schema()
    models = [schema, *(model for name, model in schema["$defs"].items() if name not in OF_FAMILIES)]
    declared = [key for model in models for key in model.get("required", ())]
    assert sorted(declared) == sorted(str(path[-1]) for path in REQUIRED if path[0] != "files")


@pytest.mark.parametrize("path", REQUIRED, ids=lambda path: ".".join(map(str, path)))
def test_required_field(path, full):
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


def test_the_same_artifact_twice(full):
    full["artifacts"].append(full["artifacts"][0])
    assert "artifacts.3 repeats format, precision and path" in refusal(full)


def test_one_file_may_stand_twice(full):
    full["files"].append({**full["files"][0], "role": "other"})
    Manifest.from_json(full)


def test_a_python_name_is_no_key_of_the_format(full):
    step = full["recipe"]["steps"][0]
    step["pass_"] = step.pop("pass")
    assert "at recipe.steps.0.pass: it is missing" in refusal(full)
    assert Step(name="a", pass_="b", version=1, params={}).to_json()["pass"] == "b"


def test_whole_floats_are_read_as_what_they_are_written_as(full):
    full["artifacts"][1]["checks"][0].update(value=1.0, interval=[1, 1.0])
    data = canonical.encode(full)
    assert json.dumps(full).encode() != data
    assert Manifest.decode(json.dumps(full).encode()).encode() == data


@pytest.mark.parametrize("key", ["\x1b[2J" * 100_000, "a" * 1_000_000, "\u202e"])
def test_a_key_of_the_document_cannot_flood_or_rewrite_the_terminal(key, full):
    full["artifacts"][0]["opset_imports"][key] = "x"
    assert "artifacts.0.opset_imports." in refusal(full)


def test_a_manifest_is_frozen_and_copies_are_equal(full):
    manifest = Manifest.from_json({**full, "unknown": {"x": [1]}})
    with pytest.raises(ValueError, match="frozen"):
        manifest.name = "b"
    for other in (copy.deepcopy(manifest), pickle.loads(pickle.dumps(manifest))):
        assert other == manifest
        assert other.encode() == manifest.encode()


def test_all_files_and_own_size(full):
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


WRONG = r"""
format | /format | "openmed-mlx" | at format:
version 3 | /format_version | 3 | at format_version:
version 1 | /format_version | 1 | at format_version:
version as text | /format_version | "2" | at format_version:
version true | /format_version | true | at format_version:
name | /name | "../x" | at name: not a model name
name too long | /name | "LONG" | at name: not a model name
no artifacts | /artifacts | [] | at artifacts:
formats incomplete | /formats | ["onnx-android", "onnx-int8"] | formats does not list
formats too many | /formats | ["onnx-android", "onnx-int8", "ort-android", "onnx"] | formats does
formats twice | /formats | ["onnx-android", "onnx-int8", "ort-android", "onnx-int8"] | formats does
format name | /artifacts/0/format | "Onnx Android" | at artifacts.0.format:
precision name | /artifacts/0/precision | "" | at artifacts.0.precision:
size negative | /artifacts/0/size | -1 | at artifacts.0.size:
size true | /files/0/size | true | at files.0.size:
size with a fraction | /files/0/size | 1.5 | at files.0.size:
size as text | /files/0/size | "1" | at files.0.size:
digest | /files/0/digest | "sha256:CAPITALS" | at files.0.digest: not a digest: 'sha256:AAA
digest of another kind | /files/0/digest | "md5:00000000000000000000000000000000" | at files.0.digest: not a digest: 'md5:00
path climbs | /artifacts/0/path | "../model.onnx" | at artifacts.0.path: path is absolute
path of a sidecar | /artifacts/1/files/0/path | "/etc/x" | at artifacts.1.files.0.path:
path of the labels | /label_map_path | "C:/x" | at label_map_path:
path of a tokenizer file | /tokenizer/files | ["tokenizer.json", ".."] | at tokenizer.files.1:
path is the manifest's | /files/0/path | "OpenMed-ONNX.json" | collide
path in the manifest | /files/0/path | "openmed-onnx.json/x" | both a file and a directory
path twice, other bytes | /files/0/path | "model.onnx" | names two different files
path twice after folding | /files/0/path | "MODEL.onnx" | collide
parent no artifact | /artifacts/1/parent | "SHA 77" | artifacts.1.parent is not an artifact
parent itself | /artifacts/1/parent | "SHA 2" | each other's parents
parents in a circle | /artifacts/0/parent | "SHA 3" | each other's parents
evidence about other bytes | /artifacts/1/certification/evidence/artifact | "SHA 1" | at artifacts.1: certification.evidence.artifact is about other bytes
certified without evidence | /artifacts/1/certification/evidence | null | at artifacts.1.certification: certified without evidence of the artifact
certified without parent | /artifacts/1/certification/evidence/parent | null | at artifacts.1.certification: certified without evidence of the parent
certified without suite | /artifacts/1/certification/evidence/suite | null | at artifacts.1.certification: certified without evidence of the suite
check above its limit that passes | /artifacts/1/checks/0 | {"name": "quant_recall_delta", "metric": "recall", "value": 0.4, "limit": 0.005, "verdict": "pass"} | at artifacts.1.checks.0: quant_recall_delta is 0.4, its limit 0.005
check that failed | /artifacts/1/checks/0 | {"name": "quant_recall_delta", "metric": "recall", "value": 0.001, "verdict": "fail"} | at artifacts.1: certified, and the verdict
state | /artifacts/1/certification/state | "great" | at artifacts.1.certification.state:
verdict | /artifacts/1/checks/0/verdict | "ok" | at artifacts.1.checks.0.verdict:
samples negative | /artifacts/1/checks/0/samples | -1 | at artifacts.1.checks.0.samples:
value as text | /artifacts/1/checks/0/value | "0.9" | at artifacts.1.checks.0.value:
value true | /artifacts/1/checks/0/value | true | at artifacts.1.checks.0.value:
interval reversed | /artifacts/1/checks/0/interval | [2, 1] | at artifacts.1.checks.0:
interval of three | /artifacts/1/checks/0/interval | [1, 2, 3] | checks.0.interval
more quantized than there is | /artifacts/1/quantization/measured/weights_quantized | 7 | at artifacts.1.quantization.measured: more is quantized
static without value | /artifacts/0/metadata/inputs/0/shape/0 | {"kind": "static"} | at artifacts.0.metadata.inputs.0.shape.0: a static axis has a value
dynamic with value | /artifacts/0/metadata/inputs/0/shape/0 | {"kind": "dynamic", "value": 1} | at artifacts.0.metadata.inputs.0.shape.0: a static axis has a value
dimension negative | /artifacts/0/metadata/inputs/0/shape/0 | {"kind": "static", "value": -1} | at artifacts.0.metadata.inputs.0.shape.0.value:
axes and shape | /artifacts/0/metadata/inputs/0/axes | ["batch"] | 1 axes are named
opset import true | /artifacts/0/opset_imports/ai.onnx | true | artifacts.0.opset_imports
operator types | /artifacts/0/operators/0/inputs | {"0": "float"} | at artifacts.0.operators.0.inputs.0:
tool version | /recipe/tools/onnx | 1 | at recipe.tools.onnx:
long text | /license | "LONG" | at license:
labels | /labels | ["O", 1] | at labels.1:
"""
"""The case, the pointer to a field of a whole manifest, its new value, and a part of the reason."""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_value_is_refused(line, replaced):
    _, pointer, text, reason = line.split(" | ")
    text = re.sub(r"SHA (\d+)", lambda match: f"sha256:{int(match[1]):064x}", text)
    value = json.loads(text.replace("CAPITALS", "A" * 64).replace("LONG", "x" * 4097))
    with pytest.raises(InputError) as caught:
        Manifest.from_json(replaced(pointer, value), "openmed-onnx.json")
    assert caught.value.message.startswith("openmed-onnx.json is not valid")
    assert reason in caught.value.message


HEAD = (
    b'{"format":"openmed-onnx","format_version":2,"name":"a","formats":["onnx"],"artifacts":'
    b'[{"format":"onnx","path":"m","precision":"int8","digest":"sha256:' + b"0" * 64 + b'","size":1}],'
)
LARGE: dict[str, Callable[[], bytes]] = {
    "labels of a wrong type": lambda: b'"labels":[' + b"0," * 900_000 + b"0]}",
    "files that are empty": lambda: b'"files":[' + b"{}," * 90_000 + b"{}]}",
    "a text of 15 MB": lambda: b'"license":"' + b"x" * 15_000_000 + b'"}',
    "too many files": lambda: b'"files":[' + b"{}," * 900_000 + b"{}]}",
    "a path of 15 MB": lambda: b'"config_path":"' + b"../" * 5_000_000 + b'"}',
    "30,000 files, each twice": lambda: (
        b'"files":['
        + b",".join(
            b'{"role":"x","path":"%s%05d","digest":"sha256:%064x","size":1}' % (b"d/" * 30, i // 2, i)
            for i in range(60_000)
        )
        + b"]}"
    ),
}


@pytest.mark.parametrize("tail", sampled(LARGE.values(), 2), ids=LARGE.keys())
def test_large_hostile_document_is_refused_at_once(tail):
    data = HEAD + tail()
    with no_quadratic_time(), pytest.raises(InputError) as caught:
        Manifest.decode(data)
    assert len(caught.value.message) < 500


SOURCE = Digest.of(b"source")
SUITE = Digest.of(b"suite")


def measured(*paths: str) -> dict[str, Descriptor]:
    return {path: Descriptor(Digest.of(path.encode()), len(path)) for path in paths}


def draft(verdict: Verdict | None = None, **fields: Any) -> Draft:
    return Draft(
        name="acme/pii",
        root=pathlib.Path("workspace"),
        artifacts=(
            DraftArtifact("onnx", "float32", "model.onnx", (DraftFile("external-data", "model.onnx.data"),)),
            DraftArtifact(
                "onnx-int8", "int8", "int8.onnx", parent="model.onnx", verdict=verdict or Verdict("unknown")
            ),
        ),
        companions=(DraftFile("report", "report.json"), DraftFile("config", "config.json")),
        fields={"source": {"id": "acme/pii", "digest": str(SOURCE)}, **fields},
    )


PATHS = ("model.onnx", "model.onnx.data", "int8.onnx", "report.json", "config.json")


def test_paths_are_listed_once():
    assert sorted(draft().paths()) == sorted(PATHS)


def test_manifest_of_a_draft():
    verdict = Verdict("certified", "G4/point", ("below the limit",), SUITE, "report.json")
    manifest = draft(verdict, license="MIT").manifest(measured(*PATHS))
    fp32, int8 = manifest.artifacts
    assert manifest.formats == ("onnx", "onnx-int8")
    assert manifest.license == "MIT"
    assert int8.parent == fp32.digest == Digest.of(b"model.onnx")
    assert [entry.path for entry in manifest.all_files()] == list(PATHS)
    evidence = int8.certification.evidence
    assert evidence is not None
    assert (evidence.artifact, evidence.parent) == (int8.digest, SOURCE)
    assert (evidence.suite, evidence.report) == (SUITE, Digest.of(b"report.json"))


def test_certified_needs_a_suite():
    with pytest.raises(InputError, match=r"artifacts\.1\.certification: certified without evidence"):
        draft(Verdict("certified")).manifest(measured(*PATHS))


@pytest.mark.parametrize("missing", PATHS)
def test_a_file_that_was_not_measured(missing):
    verdict = Verdict("certified", "G4/point", (), SUITE, "report.json")
    with pytest.raises(InputError, match=f"names '{missing}', which is not one of its files"):
        draft(verdict).manifest(measured(*(path for path in PATHS if path != missing)))


def test_a_fact_that_makes_no_manifest():
    with pytest.raises(InputError, match="manifest of acme/pii is not valid at max_sequence_length"):
        draft(max_sequence_length="512").manifest(measured(*PATHS))
    with pytest.raises(InputError, match="manifest of acme/pii holds a number out of range"):
        draft(quant_recall_delta=float("nan")).manifest(measured(*PATHS))


IMAGENET = {"size": [224, 224], "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def test_the_defaults_are_colour_photographs_by_planes():
    found = Preprocessing.from_json(IMAGENET)
    assert (found.layout, found.color, found.resize) == ("NCHW", "RGB", None)
    assert Preprocessing.from_json({**IMAGENET, "size": [8, 8], "mean": [0.5], "std": [1.0], "color": "L"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": [0.5]}, "RGB has 3 channels"),
        ({"color": "L"}, "L has 1 channels"),
        ({"std": [1.0, 1.0, 0.0]}, "std.2"),
        ({"std": [1.0, 1.0, -1.0]}, "std.2"),
        ({"size": [0, 224]}, "size.0"),
        ({"size": [224]}, "size"),
        ({"resize": 100}, "cannot be cut out"),
        ({"layout": "CHW"}, "layout"),
        ({"color": "YUV"}, "color"),
    ],
)
def test_contradictions_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        Preprocessing.from_json({**IMAGENET, **change})
