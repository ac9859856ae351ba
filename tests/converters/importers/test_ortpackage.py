"""`reg import` of model packages: those of other tools, and what no package may hold."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from onnxreg.converters.importers.packages.import_package import import_package, is_package
from onnxreg.schema.core.descriptor import Descriptor
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

FOLDER = "session.model_external_initializers_file_folder_path"


def manifest_of(draft: Draft) -> Manifest:
    """The manifest as a registry would make it."""
    measured = {}
    for path in draft.paths():
        data = (draft.root / path).read_bytes()
        measured[path] = Descriptor(Digest.of(data), len(data))
    return draft.manifest(measured)


def save_model(path: Path, scale: float = 1.0, weights: str | None = None) -> None:
    """A matrix product of two classes; with `weights` its matrix lies in that file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[batch, 2] x) => (float[batch, 2] logits) { logits = MatMul(x, w) }"""
    )
    matrix = np.full((2, 2), scale, np.float32)
    model.graph.initializer.append(numpy_helper.from_array(matrix, "w"))
    if weights is None:
        onnx.save(model, path)
    else:
        onnx.save(model, path, save_as_external_data=True, location=weights, size_threshold=0)


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def variant(file: str = "model.onnx", ep: str = "CPUExecutionProvider", **more: Any) -> dict[str, Any]:
    return {"ep": ep, "executor_info": {"ort": {"model_file": file, **more}}}


def add_asset(root: Path, files: dict[str, str]) -> str:
    """Write a shared asset; its URI."""
    digest = directory_digest({path: Digest.of(text.encode()) for path, text in files.items()})
    for path, text in files.items():
        place = root / f"shared_assets/sha256-{digest.hex}" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(digest)


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package as another tool writes it: two variants of one component, a tokenizer that they share."""
    root = tmp_path / "package"
    save_model(root / "decoder/cpu/model.onnx")
    save_model(root / "decoder/cuda/model.onnx", 2.0)
    add_asset(root, {"tokenizer.json": "{}", "config.json": '{"model_type": "tiny"}'})
    variants = {"cpu": variant(), "cuda": variant(ep="CUDAExecutionProvider") | {"device": "gpu"}}
    write_json(root / "decoder/component.json", {"variants": variants})
    told = {"schema_version": "1.0", "package_name": "tiny", "components": {"decoder": "decoder"}}
    write_json(root / "manifest.json", told)
    return root


def test_a_package_of_another_tool(root: Path, workspace: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    draft, differences = import_package(root, workspace, name="acme/tiny")
    manifest = manifest_of(draft)
    assert differences == []
    found = {
        item.path: (item.format, item.precision, item.metadata.execution_providers)
        for item in manifest.artifacts
    }
    assert found == {
        "decoder/cpu/model.onnx": ("onnx", "float32", ()),
        "decoder/cuda/model.onnx": ("onnx", "float32", ("CUDAExecutionProvider",)),
    }
    gpu = manifest.artifacts[1].to_json()
    assert gpu["claimed"] == {"cuda": {"device": "gpu"}}
    assert gpu["metadata"]["operators"] == ["MatMul"]
    assert [(file.role, file.path) for file in manifest.files] == [
        ("config", "config.json"),
        ("tokenizer", "tokenizer.json"),
    ]
    assert manifest.family == "tiny"
    assert manifest.recipe is not None and manifest.recipe.steps[0].params == {"package": "tiny"}
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_paths_within_the_variant_where_they_differ(root: Path, workspace: Path) -> None:
    (root / "decoder/cuda/model.onnx").rename(root / "decoder/cuda/gpu.onnx")
    rewrite(root / "decoder/component.json", lambda told: told["variants"].update(cuda=variant("gpu.onnx")))
    manifest = manifest_of(import_package(root, workspace, name="tiny")[0])
    assert [item.path for item in manifest.artifacts] == ["model.onnx", "gpu.onnx"]
    assert [file.path for file in manifest.files] == ["config.json", "tokenizer.json"]


def test_assets_that_have_one_path(root: Path, workspace: Path) -> None:
    add_asset(root, {"config.json": '{"model_type": "other"}'})
    manifest = manifest_of(import_package(root, workspace, name="tiny")[0])
    homes = sorted(file.path.partition("/")[0] for file in manifest.files)
    assert homes == ["shared_assets"] * 3


def genai_config(file: Any = "model.onnx") -> dict[str, Any]:
    return {"model": {"type": "llama", "decoder": {"filename": file}}}


def test_a_package_for_onnxruntime_genai(root: Path, workspace: Path) -> None:
    """As Olive writes them: no payload, and all graphs of a variant in its directory."""
    for name in ("cpu", "cuda"):
        write_json(root / f"decoder/{name}/genai_config.json", genai_config())
        save_model(root / f"decoder/{name}/vision/model.onnx", 3.0, weights="model.onnx.data")
    told = {"cpu": {"ep": "CPUExecutionProvider"}, "cuda": {"ep": "CUDAExecutionProvider"}}
    write_json(root / "decoder/component.json", {"component_name": "decoder", "variants": told})
    manifest = manifest_of(import_package(root, workspace, name="tiny")[0])
    assert [item.path for item in manifest.artifacts] == ["decoder/cpu/model.onnx", "decoder/cuda/model.onnx"]
    assert [(file.role, file.path) for file in manifest.artifacts[0].files] == [
        ("other", "decoder/cpu/genai_config.json"),
        ("model", "decoder/cpu/vision/model.onnx"),
        ("external-data", "decoder/cpu/vision/model.onnx.data"),
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model": {}}, "names no decoder"),
        ([], "names no decoder"),
        (genai_config(7), "names no decoder"),
        (genai_config("../cuda/model.onnx"), r"'\.\.' part"),
        (genai_config("other.onnx"), "which is missing"),
    ],
)
def test_configurations_of_onnxruntime_genai_that_name_no_model(
    root: Path, workspace: Path, config: Any, message: str
) -> None:
    write_json(root / "decoder/cpu/genai_config.json", config)
    write_json(root / "decoder/component.json", {"variants": {"cpu": {}}})
    with pytest.raises(InputError, match=message):
        import_package(root, workspace, name="tiny")


def test_a_second_graph_must_be_one(root: Path, workspace: Path) -> None:
    (root / "decoder/cpu/other.onnx").write_bytes(b"no graph")
    with pytest.raises(InputError, match=r"other\.onnx"):
        import_package(root, workspace, name="tiny")


def test_inline_components_and_payloads_in_files(root: Path, workspace: Path) -> None:
    told = json.loads((root / "decoder/component.json").read_text())
    (root / "decoder/component.json").unlink()
    for name, body in told["variants"].items():
        write_json(root / f"decoder/{name}/ort.json", body["executor_info"]["ort"])
        body["executor_info"]["ort"] = "ort.json"
        body["variant_directory"] = f"decoder/{name}/"
    rewrite(root / "manifest.json", lambda manifest: manifest.update(components={"decoder": told}))
    manifest = manifest_of(import_package(root, workspace, name="tiny")[0])
    assert [item.path for item in manifest.artifacts] == ["decoder/cpu/model.onnx", "decoder/cuda/model.onnx"]
    assert [item.files for item in manifest.artifacts] == [(), ()]


def test_weights_in_a_shared_asset(tmp_path: Path, workspace: Path) -> None:
    root = tmp_path / "package"
    save_model(root / "m/cpu/model.onnx", weights="w.data")
    digest = directory_digest({"w.data": Digest.of((root / "m/cpu/w.data").read_bytes())})
    (root / f"shared_assets/sha256-{digest.hex}").mkdir(parents=True)
    (root / "m/cpu/w.data").rename(root / f"shared_assets/sha256-{digest.hex}/w.data")
    body = {"variants": {"cpu": variant(session_options={FOLDER: str(digest)})}}
    write_json(root / "m/component.json", body)
    write_json(root / "manifest.json", {"schema_version": "1.0", "components": {"m": "m/component.json"}})
    manifest = manifest_of(import_package(root, workspace, name="tiny")[0])
    (artifact,) = manifest.artifacts
    assert [(file.role, file.path) for file in artifact.files] == [("external-data", "w.data")]
    assert manifest.files == ()
    rewrite(root / "m/component.json", lambda told: told["variants"].update(cpu=variant()))
    with pytest.raises(
        InputError, match=r"external data of m/cpu/model\.onnx m/cpu/w\.data, which is missing"
    ):
        import_package(root, tmp_path, name="tiny")


def test_a_model_in_a_shared_asset(tmp_path: Path, workspace: Path) -> None:
    root = tmp_path / "package"
    save_model(root / "model.onnx")
    digest = directory_digest({"model.onnx": Digest.of((root / "model.onnx").read_bytes())})
    (root / f"shared_assets/sha256-{digest.hex}").mkdir(parents=True)
    (root / "model.onnx").rename(root / f"shared_assets/sha256-{digest.hex}/model.onnx")
    variants = {"cpu": variant(f"{digest}/model.onnx")}
    write_json(root / "manifest.json", {"schema_version": "1.0", "components": {"m": {"variants": variants}}})
    manifest = manifest_of(import_package(root, workspace, name="tiny")[0])
    assert [item.path for item in manifest.artifacts] == ["model.onnx"]


def test_statements_without_a_file_are_claims(root: Path, workspace: Path) -> None:
    options = {"session.intra_op_thread_count": "4", "ep.context_file_path": "/home/ada/context.bin"}
    told = variant(session_options=options, provider_options={"device_id": "0"}) | {
        "compatibility_string": "x1"
    }
    rewrite(root / "decoder/component.json", lambda body: body["variants"].update(cpu=told))
    draft, _ = import_package(root, workspace, name="tiny")
    assert draft.artifacts[0].fields["claimed"] == {
        "cpu": {
            "compatibility_string": "x1",
            "session_options": {"session.intra_op_thread_count": "4", "ep.context_file_path": "context.bin"},
            "provider_options": {"device_id": "0"},
        }
    }


def test_files_that_nothing_names_are_left_out(root: Path, workspace: Path) -> None:
    (root / "README.md").write_text("hello")
    (root / "shared_assets/notes").mkdir()
    (root / "shared_assets/notes/x.txt").write_text("x")
    (root / "decoder/cpu/genai_config.json").write_text("{}")
    draft, differences = import_package(root, workspace, name="tiny")
    assert [item.path for item in differences] == ["README.md", "shared_assets/notes/x.txt"]
    assert [file.path for file in draft.artifacts[0].sidecars] == ["decoder/cpu/genai_config.json"]


def test_a_stated_format_must_be_true(root: Path, workspace: Path) -> None:
    stated = {"onnxreg": {"format": "onnx-int8", "precision": "int8"}}
    rewrite(
        root / "decoder/component.json",
        lambda told: told["variants"]["cpu"].update(additional_metadata=stated),
    )
    draft, differences = import_package(root, workspace, name="tiny")
    assert (draft.artifacts[0].format, draft.artifacts[0].precision) == ("onnx", "float32")
    assert [(item.path, item.claimed, item.actual) for item in differences] == [
        ("decoder/cpu/model.onnx.precision", "int8", "float32"),
        ("decoder/cpu/model.onnx.format", "onnx-int8", "onnx"),
    ]


def test_variants_of_one_file_are_one_artifact(root: Path, workspace: Path) -> None:
    told = {"cpu": variant(), "xnn": variant(ep="XnnpackExecutionProvider") | {"variant_directory": "cpu"}}
    write_json(root / "decoder/component.json", {"variants": told})
    draft, _ = import_package(root, workspace, name="tiny")
    (artifact,) = draft.artifacts
    assert artifact.fields["metadata"]["execution_providers"] == ["XnnpackExecutionProvider"]


def component(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda root: rewrite(root / "decoder/component.json", lambda told: change(told["variants"]))


def manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda root: rewrite(root / "manifest.json", change)


def asset(root: Path) -> Path:
    return next((root / "shared_assets").iterdir())


def link(root: Path, path: str, target: str) -> None:
    (root / path).symlink_to(target)


def unknown_operator(path: Path) -> None:
    model = onnx.load(path)
    model.graph.node[0].op_type = "Unheard"
    onnx.save(model, path)


NOWHERE = "sha256:" + "0" * 64
BAD: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "asset changed": (
        lambda root: (asset(root) / "tokenizer.json").write_text("[]"),
        IntegrityError,
        "shared asset .* is damaged",
    ),
    "file added to an asset": (
        lambda root: (asset(root) / "more.txt").write_text("x"),
        IntegrityError,
        "shared asset .* is damaged",
    ),
    "file of an asset renamed": (
        lambda root: (asset(root) / "tokenizer.json").rename(asset(root) / "vocab.json"),
        IntegrityError,
        "shared asset .* is damaged",
    ),
    "asset at another place, missing": (
        manifest(lambda told: told.update(shared_assets={NOWHERE: "there"})),
        InputError,
        "there holds no file",
    ),
    "no digest": (
        manifest(lambda told: told.update(shared_assets={"sha256:abc": "there"})),
        InputError,
        "not a SHA-256 digest",
    ),
    "unknown asset": (
        component(lambda told: told.update(cpu=variant(f"{NOWHERE}/model.onnx"))),
        InputError,
        "variant 'cpu' refers to the shared asset .* which is missing",
    ),
    "link to a file": (
        lambda root: link(root, "decoder/x", "cpu/model.onnx"),
        InputError,
        "decoder/x .* symbolic link",
    ),
    "link to a directory": (lambda root: link(root, "x", "decoder"), InputError, "x .* symbolic link"),
    "link that leads out": (lambda root: link(root, "x", "/etc/passwd"), InputError, "x .* symbolic link"),
    "named pipe": (lambda root: os.mkfifo(root / "pipe"), InputError, "neither a file nor a directory"),
    "name with a line break": (
        lambda root: (root / "a\nb").write_text(""),
        InputError,
        "control or reserved",
    ),
    "missing component": (
        lambda root: (root / "decoder/component.json").unlink(),
        InputError,
        r"component decoder/component\.json, which is missing",
    ),
    "missing model": (
        lambda root: (root / "decoder/cpu/model.onnx").unlink(),
        InputError,
        r"model of variant 'cpu' decoder/cpu/model\.onnx, which is missing",
    ),
    "absolute model": (
        component(lambda told: told.update(cpu=variant("/etc/passwd.onnx"))),
        InputError,
        "variant 'cpu' .*is absolute",
    ),
    "climbing model": (
        component(lambda told: told.update(cpu=variant("../cuda/model.onnx"))),
        InputError,
        r"variant 'cpu' .*'\.\.' part",
    ),
    "climbing out of an asset": (
        lambda root: component(
            lambda told: told.update(
                cpu=variant(f"{asset(root).name.replace('-', ':')}/../../decoder/cpu/model.onnx")
            )
        )(root),
        InputError,
        r"variant 'cpu' .*'\.\.' part",
    ),
    "climbing variant": (
        component(lambda told: told["cpu"].update(variant_directory="../..")),
        InputError,
        r"variant_directory.*'\.\.' part",
    ),
    "name of a variant that climbs": (
        component(lambda told: told.update({"..": variant()})),
        InputError,
        r"variant '\.\.' names a file",
    ),
    "no payload": (
        component(lambda told: told["cpu"].pop("executor_info")),
        InputError,
        "variant 'cpu' names no model for ONNX Runtime",
    ),
    "payload that is missing": (
        component(lambda told: told["cpu"].update(executor_info={"ort": "ort.json"})),
        InputError,
        r"ort document of variant 'cpu' decoder/cpu/ort\.json, which is missing",
    ),
    "payload that is a list": (
        lambda root: (
            (root / "decoder/cpu/ort.json").write_text("[]"),
            component(lambda told: told["cpu"].update(executor_info={"ort": "ort.json"}))(root),
        ),
        InputError,
        "variant 'cpu' names no model",
    ),
    "no model file": (
        component(lambda told: told.update(cpu=variant("component.bin"))),
        InputError,
        r"component\.bin, which is missing",
    ),
    "weights of two places": (
        component(
            lambda told: told.update(
                again=variant(session_options={FOLDER: "elsewhere"}) | {"variant_directory": "cpu"}
            )
        ),
        InputError,
        r"variants give decoder/cpu/model\.onnx different weights",
    ),
    "no graph": (
        lambda root: (root / "decoder/cpu/model.onnx").write_bytes(b"not a model"),
        InputError,
        r"model\.onnx",
    ),
    "no variants": (
        lambda root: write_json(root / "decoder/component.json", {"variants": {}}),
        InputError,
        "has no variant",
    ),
    "unknown key": (
        component(lambda told: told["cpu"].update(file="model.onnx")),
        InputError,
        r"decoder/component\.json, variant 'cpu' has the unknown key 'file'",
    ),
    "pickle beside a model": (
        lambda root: (root / "decoder/cpu/state.pkl").write_bytes(b"\x80\x04."),
        InputError,
        "is a pickle",
    ),
    "labels of another model": (
        lambda root: add_asset(root, {"id2label.json": '{"0": "A", "1": "B", "2": "C"}'}),
        InputError,
        "has 2 classes, but the labels beside it are 3",
    ),
    "a manifest of 5 GB that is a hole": (
        lambda root: os.truncate(root / "manifest.json", 5 * 10**9),
        InputError,
        r"manifest\.json in the package is larger than a document may be",
    ),
    "a component of 5 GB that is a hole": (
        lambda root: os.truncate(root / "decoder/component.json", 5 * 10**9),
        InputError,
        r"component\.json in the package is larger than a document may be",
    ),
    "a component that is nested without end": (
        lambda root: (root / "decoder/component.json").write_text("[" * 100_000),
        InputError,
        "nested deeper",
    ),
    "a graph that ONNX refuses": (
        lambda root: unknown_operator(root / "decoder/cpu/model.onnx"),
        InputError,
        r"model\.onnx is not valid ONNX: No Op registered for Unheard",
    ),
    "a device as model": (
        lambda root: (
            (root / "decoder/cpu/model.onnx").unlink(),
            link(root, "decoder/cpu/model.onnx", "/dev/zero"),
        ),
        InputError,
        "symbolic link",
    ),
    "no version of the package's own list": (
        manifest(lambda told: told.update(additional_metadata={"onnxreg": {"name": "x"}})),
        InputError,
        r"additional_metadata\.onnxreg is not valid",
    ),
}


@pytest.mark.parametrize(("spoil", "error", "message"), BAD.values(), ids=BAD.keys())
def test_a_wrong_package_is_refused(
    root: Path, workspace: Path, spoil: Callable[[Path], Any], error: type[Exception], message: str
) -> None:
    spoil(root)
    with pytest.raises(error, match=message):
        import_package(root, workspace, name="acme/tiny")


def test_directories_of_packages(root: Path, tmp_path: Path) -> None:
    assert is_package(root)
    assert not is_package(tmp_path)
    (root / "openmed-onnx.json").write_text("{}")
    assert not is_package(root)


def test_payloads_of_other_shapes_are_no_traceback(root: Path, workspace: Path) -> None:
    for number, odd in enumerate(([1], "text", 7)):
        rewrite(
            root / "decoder/component.json",
            lambda told, odd=odd: told["variants"].update(
                cpu=variant(session_options=odd, provider_options=odd)
            ),
        )
        (workspace / str(number)).mkdir()
        draft, _ = import_package(root, workspace / str(number), name="tiny")
        assert len(draft.artifacts) == 2
