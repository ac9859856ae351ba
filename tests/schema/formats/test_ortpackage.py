"""The documents of a model package: what is read, what is refused, and how a version is laid out."""

import hashlib
import json
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.formats.ort_package import Component, read_component, read_package, written_by_us
from onnxreg.schema.formats.package_layout import PackageLayout, package
from onnxreg.schema.manifest.manifest import Manifest

VARIANT = {"ep": "CPUExecutionProvider", "executor_info": {"ort": {"model_file": "model.onnx"}}}
GOOD: dict[str, Any] = {"schema_version": "1.0", "components": {"m": {"variants": {"cpu": VARIANT}}}}
OLIVE_13 = {
    "schema_version": 1,
    "components": [{"name": "decoder", "variants": ["cpu"]}],
    "configs_dir": "configs",
}
BAD: dict[str, tuple[Any, str]] = {
    "no object": ([], "no schema_version"),
    "no version": ({"components": {}}, "no schema_version"),
    "version of another kind": (GOOD | {"schema_version": True}, "no schema_version"),
    "version of three parts": (GOOD | {"schema_version": "1.0.0"}, "no schema_version"),
    "newer major": (GOOD | {"schema_version": "2.0"}, r"schema_version 2\.0; this build reads 1\.x"),
    "older major": (GOOD | {"schema_version": 0}, r"schema_version 0\.0"),
    "Olive 0.13": (OLIVE_13, r"olive generate-model-package.* of Olive 0\.13"),
    "no components": ({"schema_version": "1.0", "components": {}}, "components"),
    "installed": (GOOD | {"layout": "installed"}, "layout 'installed'"),
    "another layout": (GOOD | {"layout": "flat"}, "layout"),
    "unknown key": (GOOD | {"producer": "x"}, r"manifest\.json has the unknown key 'producer'"),
    "unknown key of a component": (
        GOOD | {"components": {"m": {"variants": {}, "models": []}}},
        r"component 'm' has the unknown key 'models'",
    ),
    "unknown key of a variant": (
        GOOD | {"components": {"m": {"variants": {"cpu": VARIANT | {"file": "x"}}}}},
        r"variant 'cpu' has the unknown key 'file'",
    ),
    "absolute component": (GOOD | {"components": {"m": "/etc"}}, "is absolute"),
    "climbing component": (GOOD | {"components": {"m": "../m"}}, r"'\.\.' part"),
    "climbing asset": (GOOD | {"shared_assets": {"sha256:" + "0" * 64: "../a"}}, r"'\.\.' part"),
    "payload of another kind": (
        GOOD | {"components": {"m": {"variants": {"cpu": {"executor_info": {"ort": 1}}}}}},
        "executor_info",
    ),
}


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize(("value", "message"), BAD.values(), ids=BAD.keys())
def test_a_wrong_package_manifest_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_package(encode(value))
    assert "manifest.json" in caught.value.message


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"a":1,"a":2}'])
def test_a_package_manifest_must_be_json(text: bytes) -> None:
    with pytest.raises(InputError, match=r"manifest\.json"):
        read_package(text)


def test_a_newer_minor_may_have_more_keys() -> None:
    told = GOOD | {"schema_version": "1.3", "more": 1}
    told["components"] = {"m": {"variants": {"cpu": VARIANT | {"rank": 2}}}}
    assert read_package(encode(told)).to_json()["more"] == 1
    assert read_component(b'{"variants":{},"more":1}', "component.json", newer=True).variants == {}
    with pytest.raises(InputError, match=r"component\.json has the unknown key 'more'"):
        read_component(b'{"variants":{},"more":1}', "component.json", newer=False)


def test_a_bare_integer_is_a_major() -> None:
    assert read_package(encode(GOOD | {"schema_version": 1})).schema_version == "1.0"


def test_a_slash_at_the_end_of_a_directory() -> None:
    assert read_package(encode(GOOD | {"components": {"m": "./m/"}})).components == {"m": "m"}


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", "1.0", "..", "/x", "sha256:0", "cpu"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["ort", "x", ".."]), inner),
    max_leaves=4,
)
PLACES = [
    *((key,) for key in ("schema_version", "layout", "components", "shared_assets", "additional_metadata")),
    *(("components", "m", key) for key in ("component_name", "variants")),
    *(
        ("components", "m", "variants", "cpu", key)
        for key in ("variant_directory", "ep", "executor_info", "x")
    ),
]


@given(st.sampled_from(PLACES), anything)
def test_any_value_is_read_or_refused(place: tuple[str, ...], value: Any) -> None:
    told = json.loads(encode(GOOD))
    at = told
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    try:
        found = read_package(encode(told))
    except InputError:
        return
    assert read_package(encode(found.to_json())) == found
    with suppress(InputError):
        written_by_us(found)


names = st.text(st.characters(codec="utf-8", exclude_characters="/\n\0"), min_size=1, max_size=8)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
directories = st.dictionaries(paths, st.binary(max_size=8), min_size=1, max_size=6)


def printed(files: dict[str, bytes]) -> bytes:
    """What `sha256sum` prints of the files in the order of `LC_ALL=C sort`: by the bytes of their paths."""
    lines = b""
    for raw in sorted(path.encode() for path in files):
        lines += hashlib.sha256(files[raw.decode()]).hexdigest().encode() + b"  " + raw + b"\n"
    return lines


@given(directories)
def test_the_digest_of_a_directory_is_that_of_its_checksum_file(files: dict[str, bytes]) -> None:
    digests = {path: Digest.of(data) for path, data in files.items()}
    found = directory_digest(digests)
    assert found.hex == hashlib.sha256(printed(files)).hexdigest()
    assert directory_digest(dict(reversed(digests.items()))) == found


@given(directories, st.data())
def test_names_and_bytes_count(files: dict[str, bytes], data: st.DataObject) -> None:
    digests = {path: Digest.of(content) for path, content in files.items()}
    path = data.draw(st.sampled_from(sorted(files)))
    assert directory_digest(digests | {path: Digest.of(files[path] + b"!")}) != directory_digest(digests)
    moved = {key: value for key, value in digests.items() if key != path} | {f"{path}!": digests[path]}
    if f"{path}!" not in digests:
        assert directory_digest(moved) != directory_digest(digests)


def digest_of(text: str) -> str:
    return str(Digest.of(text.encode()))


def entry(role: str, path: str, content: str = "") -> dict[str, Any]:
    return {"role": role, "path": path, "digest": digest_of(content or path), "size": 3}


def artifact(path: str, *files: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {"format": "onnx", "precision": "float32", "path": path, "digest": digest_of(path), "size": 5}
    return told | {"files": list(files)} | more


def laid_out(*artifacts: dict[str, Any], files: tuple[dict[str, Any], ...] = ()) -> PackageLayout:
    formats = list(dict.fromkeys(item["format"] for item in artifacts))
    told = {"format": "openmed-onnx", "format_version": 2, "name": "acme/pii", "formats": formats}
    manifest = Manifest.from_json({**told, "artifacts": list(artifacts), "files": list(files)})
    made = package(manifest, Digest.of(b"manifest"), "1.2.0", manifest.artifacts)
    check_whole(made)
    return made


def check_whole(made: PackageLayout) -> None:
    """The documents are valid, list every file, and name only what is there."""
    manifest = read_package(made.documents["manifest.json"])
    files = {item.path: item.digest for item in made.files}
    digests = {path: Digest.of(data) for path, data in made.documents.items() if path != "manifest.json"}
    ours = written_by_us(manifest)
    assert ours is not None and ours.files == files | digests
    assert (ours.name, ours.manifest) == ("acme/pii", Digest.of(b"manifest"))
    assert manifest.components == {"pii": "model"}
    for name, variant in component(made).variants.items():
        ort = variant.to_json()["executor_info"]["ort"]
        assert f"model/{variant.variant_directory}/{ort['model_file']}" in files, name
    for asset in made.assets:
        home = f"shared_assets/sha256-{asset.hex}/"
        held = {path.removeprefix(home): digest for path, digest in files.items() if path.startswith(home)}
        assert directory_digest(held) == asset
    for build in made.builds:
        home = f"model/{build.name}/"
        held = {path.removeprefix(home): digest for path, digest in files.items() if path.startswith(home)}
        assert directory_digest(held) == build.directory


def component(made: PackageLayout) -> Component:
    return read_component(made.documents["model/component.json"], "component.json", newer=False)


def test_variants_are_named_after_artifacts_and_keep_their_order() -> None:
    made = laid_out(
        artifact("z.onnx"),
        artifact("a.onnx"),
        artifact("q.onnx", format="onnx-int8", precision="int8"),
        artifact("m.ort", format="ort", precision="int8"),
    )
    assert list(component(made).variants) == ["onnx-float32", "onnx-float32-2", "onnx-int8", "ort-int8"]
    assert json.loads(made.documents["manifest.json"])["package_version"] == "1.2.0"


def test_a_name_with_a_number_may_be_taken() -> None:
    made = laid_out(
        artifact("a.onnx", precision="x-2"),
        artifact("b.onnx", precision="x"),
        artifact("c.onnx", precision="x"),
    )
    assert list(component(made).variants) == ["onnx-x-2", "onnx-x", "onnx-x-3"]


def test_a_variant_for_every_provider() -> None:
    phone = artifact("a.onnx", metadata={"execution_providers": ["NNAPI", "XNNPACK", "Abacus"]})
    web = artifact("w.onnx", format="webgpu", precision="fp16")
    made = laid_out(phone, web)
    found = {
        name: (variant.ep, variant.variant_directory) for name, variant in component(made).variants.items()
    }
    assert found == {
        "onnx-float32": ("CPUExecutionProvider", "onnx-float32"),
        "onnx-float32-nnapi": ("NnapiExecutionProvider", "onnx-float32"),
        "onnx-float32-xnnpack": ("XnnpackExecutionProvider", "onnx-float32"),
        "webgpu-fp16": ("WebGpuExecutionProvider", "webgpu-fp16"),
    }
    assert sum(item.path.endswith("a.onnx") for item in made.files) == 1


def test_shared_files_are_one_asset() -> None:
    made = laid_out(
        artifact("a.onnx"), files=(entry("config", "config.json"), entry("tokenizer", "t/vocab.txt"))
    )
    (asset,) = made.assets
    variant = component(made).variants["onnx-float32"].to_json()
    assert variant["executor_info"]["onnxreg"] == {"companions": str(asset)}
    assert {PurePosixPath(item.path).name for item in made.files} == {"a.onnx", "config.json", "vocab.txt"}


def test_external_data_is_an_asset_where_several_models_have_it() -> None:
    shared = entry("external-data", "onnx/w.data")
    own = entry("external-data", "own/w.data", "other bytes")
    made = laid_out(
        artifact("onnx/a.onnx", shared),
        artifact("onnx/b.onnx", shared),
        artifact("own/c.onnx", own, entry("golden", "own/c.onnx.golden.json")),
    )
    folder = "session.model_external_initializers_file_folder_path"
    payloads = [variant.to_json()["executor_info"]["ort"] for variant in component(made).variants.values()]
    assert [payload.get("session_options") for payload in payloads] == [
        {folder: str(made.assets[0])},
        {folder: str(made.assets[0])},
        None,
    ]
    home = f"shared_assets/sha256-{made.assets[0].hex}"
    assert sorted(item.path for item in made.files) == [
        "model/onnx-float32-2/onnx/b.onnx",
        "model/onnx-float32-3/own/c.onnx",
        "model/onnx-float32-3/own/c.onnx.golden.json",
        "model/onnx-float32-3/own/w.data",
        "model/onnx-float32/onnx/a.onnx",
        f"{home}/w.data",
    ]


def test_foreign_formats_are_left_out() -> None:
    foreign = artifact("m.xml", entry("weights", "m.bin"), format="openvino-ir")
    made = laid_out(artifact("a.onnx"), foreign)
    assert made.left_out == ("m.xml",)
    with pytest.raises(InputError, match="loads none of openvino-ir"):
        laid_out(foreign)


def test_an_artifact_of_several_models_keeps_its_files_together() -> None:
    files = (entry("model", "js/onnx/b.onnx"), entry("external-data", "js/onnx/w.data"))
    made = laid_out(artifact("js/onnx/a.onnx", *files), artifact("js/onnx/c.onnx", *files))
    assert made.assets == ()
