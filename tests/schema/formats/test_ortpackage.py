"""The documents of a model package: how a version is laid out."""

import hashlib
import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxreg.schema.core.canonical import Digest, directory_digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.formats.package_layout import PackageLayout, package, packaged_files
from onnxreg.schema.manifest.manifest import Manifest

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
def test_the_digest_of_a_directory_is_that_of_its_checksum_file(files):
    digests = {path: Digest.of(data) for path, data in files.items()}
    found = directory_digest(digests)
    assert found.hex == hashlib.sha256(printed(files)).hexdigest()
    assert directory_digest(dict(reversed(digests.items()))) == found


def digest_of(text: str) -> str:
    return str(Digest.of(text.encode()))


def entry(role: str, path: str, content: str = "") -> dict[str, Any]:
    return {"role": role, "path": path, "digest": digest_of(content or path), "size": 3}


def artifact(path: str, *files: dict[str, Any], **more: Any) -> dict[str, Any]:
    fields = {"format": "onnx", "precision": "float32", "path": path, "digest": digest_of(path), "size": 5}
    return fields | {"files": list(files)} | more


def laid_out(*artifacts: dict[str, Any], files: tuple[dict[str, Any], ...] = ()) -> PackageLayout:
    formats = list(dict.fromkeys(item["format"] for item in artifacts))
    fields = {"format": "openmed-onnx", "format_version": 2, "name": "acme/pii", "formats": formats}
    manifest = Manifest.from_json({**fields, "artifacts": list(artifacts), "files": list(files)})
    made = package(manifest, Digest.of(b"manifest"), "1.2.0", manifest.artifacts)
    check_whole(made)
    return made


def check_whole(made: PackageLayout) -> None:
    """The documents are valid, list every file, and name only what is there."""
    manifest = json.loads(made.documents["manifest.json"])
    files = {item.path: item.digest for item in made.files}
    digests = {path: Digest.of(data) for path, data in made.documents.items() if path != "manifest.json"}
    ours = manifest["additional_metadata"]["onnxreg"]
    assert ours["files"] == {path: str(digest) for path, digest in (files | digests).items()}
    assert packaged_files(made.documents["manifest.json"]) == {*files, *made.documents}
    assert (ours["name"], ours["manifest"]) == ("acme/pii", str(Digest.of(b"manifest")))
    assert (manifest["schema_version"], manifest["components"]) == ("1.0", {"pii": "model"})
    for name, variant in variants(made).items():
        ort = variant["executor_info"]["ort"]
        assert f"model/{variant['variant_directory']}/{ort['model_file']}" in files, name
    for asset in made.assets:
        home = f"shared_assets/sha256-{asset.hex}/"
        held = {path.removeprefix(home): digest for path, digest in files.items() if path.startswith(home)}
        assert directory_digest(held) == asset
    for build in made.variants:
        home = f"model/{variants(made)[build.name]['variant_directory']}/"
        held = {path.removeprefix(home): digest for path, digest in files.items() if path.startswith(home)}
        assert directory_digest(held) == build.directory


def variants(made: PackageLayout) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(made.documents["model/component.json"])["variants"]
    return value


@pytest.mark.parametrize("manifest", [b"", b"[]", b"{}", b'{"additional_metadata": {"onnxreg": 1}}'])
def test_a_directory_of_another_tool_is_no_package_of_ours(manifest):
    assert packaged_files(manifest) == set()


def test_variants_are_named_after_artifacts_and_keep_their_order():
    made = laid_out(
        artifact("z.onnx"),
        artifact("a.onnx"),
        artifact("q.onnx", format="onnx-int8", precision="int8"),
        artifact("m.ort", format="ort", precision="int8"),
    )
    assert list(variants(made)) == ["onnx-float32", "onnx-float32-2", "onnx-int8", "ort-int8"]
    taken = laid_out(*(artifact(f"{n}.onnx", precision=p) for n, p in enumerate(("x-2", "x", "x"))))
    assert list(variants(taken)) == ["onnx-x-2", "onnx-x", "onnx-x-3"]
    assert json.loads(made.documents["manifest.json"])["package_version"] == "1.2.0"


def test_a_variant_for_every_provider():
    phone = artifact("a.onnx", metadata={"execution_providers": ["NNAPI", "XNNPACK", "Abacus"]})
    web = artifact("w.onnx", format="webgpu", precision="fp16")
    made = laid_out(phone, web)
    found = {name: (variant["ep"], variant["variant_directory"]) for name, variant in variants(made).items()}
    assert found == {
        "onnx-float32": ("CPUExecutionProvider", "onnx-float32"),
        "onnx-float32-nnapi": ("NnapiExecutionProvider", "onnx-float32"),
        "onnx-float32-xnnpack": ("XnnpackExecutionProvider", "onnx-float32"),
        "webgpu-fp16": ("WebGpuExecutionProvider", "webgpu-fp16"),
    }
    assert sum(item.path.endswith("a.onnx") for item in made.files) == 1


def test_shared_files_are_one_asset():
    made = laid_out(
        artifact("a.onnx"), files=(entry("config", "config.json"), entry("tokenizer", "t/vocab.txt"))
    )
    (asset,) = made.assets
    variant = variants(made)["onnx-float32"]
    assert variant["executor_info"]["onnxreg"] == {"companions": str(asset)}
    assert {PurePosixPath(item.path).name for item in made.files} == {"a.onnx", "config.json", "vocab.txt"}


def test_foreign_formats_are_left_out():
    foreign = artifact("m.xml", entry("weights", "m.bin"), format="openvino-ir")
    made = laid_out(artifact("a.onnx"), foreign)
    assert made.left_out == ("m.xml",)
    with pytest.raises(InputError, match="loads none of openvino-ir"):
        laid_out(foreign)
