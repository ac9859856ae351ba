"""A family from its files to a draft: the contract of every graph, its members, limits, certificates, and bad input."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.families import small
from support.progress import RecordedSteps
from support.sampling import sampled

from onnxreg.cli.main import main
from onnxreg.converters.evaluation import evaluate
from onnxreg.converters.evaluation.latency import LatencyTable
from onnxreg.converters.families.backbone import load_backbone
from onnxreg.converters.families.export_family import export_family, plan_family
from onnxreg.converters.passes.samples import digest
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.tasks.code import Consent
from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError, GateError, InputError, NotFoundError, RegError
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest import Manifest

FP32, HALF, INT8 = "backbone-fp32.onnx", "backbone-fp16.onnx", "backbone-int8.onnx"


@dataclass(frozen=True)
class Family:
    """The files that a family is made of, and what was made of them."""

    source: Path
    workspace: Path
    draft: Draft

    def checks(self, path: str, metric: str) -> list[dict[str, Any]]:
        (artifact,) = (item for item in self.draft.artifacts if item.path == path)
        return [check for check in artifact.fields["checks"] if check["metric"] == metric]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    small.write(root)
    return root


@pytest.fixture(scope="module")
def family(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Family:
    workspace = tmp_path_factory.mktemp("workspace")
    return Family(source, workspace, small.export(small.document(), source, workspace))


def shapes(values: Any) -> dict[str, list[str | int]]:
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in values
    }


def test_every_member_has_its_files_and_every_graph_keeps_the_contract(family):
    members = {item["name"]: item["artifacts"] for item in family.draft.fields["model_family"]["members"]}
    assert members == {
        "backbone": [FP32, HALF, INT8],
        **{f"head:{name}": [f"heads/{name}-{kind}.onnx" for kind in ("fp32", "fp16", "int8")] for name in small.CLASSES},
        "ood": ["ood.onnx"],
    }  # fmt: skip
    written = (path for path in family.workspace.rglob("*") if path.is_file())
    assert {str(path.relative_to(family.workspace)) for path in written} == {*chain(*members.values())}
    for item in family.draft.artifacts:
        names = {check["name"] for check in item.fields["checks"]}
        assert {"load", "size"} <= names and any(name.startswith("parity of") for name in names)
        graph = onnx.load(family.workspace / item.path)
        onnx.checker.check_model(graph, full_check=True)
        assert {entry.version for entry in graph.opset_import if entry.domain == ""} == {18}
        inputs, outputs = shapes(graph.graph.input), shapes(graph.graph.output)
        assert {dims[0] for dims in (*inputs.values(), *outputs.values())} == {"batch"}
        if item.path.startswith("backbone"):
            assert inputs == {"input": ["batch", 3, 16, 16]}
            assert outputs == {"logits": ["batch", 4], "embedding": ["batch", small.WIDTH]}
        else:
            assert inputs["embedding"] == ["batch", small.WIDTH]
        if item.path.startswith("heads/"):
            classes = small.CLASSES[Path(item.path).stem.partition("-")[0]]
            assert outputs == {"logits": ["batch", len(classes)]}


def test_the_recipe_and_the_checks_say_how_the_detector_was_fitted(family):
    def digest_of(file: str) -> str:
        return str(digest([{"input": small.rows(family.source, file, "input")}]))

    steps = {step["name"]: step for step in family.draft.fields["recipe"]["steps"]}
    ood = steps["ood-float32"]["result"]
    assert (ood["rows"], ood["distinct_rows"], ood["held_out"]) == (200, 200, 100)
    assert (ood["dimension"], ood["rank"], ood["percentile"]) == (small.WIDTH, small.WIDTH - 1, 95.0)
    assert 1 < ood["condition"] < 1e12
    assert (ood["dataset"], ood["held_out_dataset"]) == (digest_of("fit.npz"), digest_of("calibrate.npz"))
    (outliers,) = family.checks("ood.onnx", "true_positive_rate")
    assert (outliers["name"], outliers["samples"], outliers["limit"]) == ("rejection of outliers", 50, 0.9)
    calibration, *rejections = family.checks("ood.onnx", "false_rejection_rate")
    assert [check["name"] for check in rejections] == [
        f"false rejection, {precision} backbone" for precision in ("float32", "float16", "int8")
    ]
    assert ood["false_rejection"] == pytest.approx(calibration["value"])
    assert calibration["interval"][0] <= calibration["value"] <= calibration["interval"][1]
    assert calibration["dataset"] not in (None, rejections[0]["dataset"])
    assert rejections[0]["dataset"] == digest_of("held-out.npz")
    (parity,) = family.checks("ood.onnx", "agreement")
    assert parity["name"] == "parity of in_distribution" and 0.9 < parity["value"] <= 1


@pytest.mark.more
def test_the_same_files_give_the_same_bytes_without_a_time_or_a_path(family, tmp_path):
    source = small.copy(family.source, tmp_path / "elsewhere")
    again = small.export(small.document(), source, tmp_path / "work")
    assert again.fields == family.draft.fields
    for path in again.paths():
        assert (tmp_path / "work" / path).read_bytes() == (family.workspace / path).read_bytes(), path
    published = Registry(tmp_path / "home").add(again, "1.0.0")
    read = Manifest.decode(published.data).model_family
    assert read is not None
    assert read.routing == {"apple": "head:apple", "bean": "head:bean", "corn": "head:corn", "weed": None}
    assert not any(word in published.data for word in (str(tmp_path).encode(), b"latency_ms", b"p50"))


@pytest.mark.more
@pytest.mark.parametrize("changed", sampled(["calibrate.npz", "heads/bean.safetensors"], 2))
def test_files_that_change_meanwhile_make_no_family(family, tmp_path, changed):
    source = small.copy(family.source, tmp_path / "source")

    def change(label: str) -> None:
        if label == "describing what was made":
            small.save_head(source / "heads" / "bean.safetensors", small.CLASSES["bean"], seed=99)
            np.savez(source / "calibrate.npz", input=small.images(100, 99))
            for path in {"calibrate.npz", "heads/bean.safetensors"} - {changed}:
                (source / path).write_bytes((family.source / path).read_bytes())

    plain = small.document(variants={"head": [], "backbone": []})
    with pytest.raises(InputError, match="was changed while it was read"):
        small.export(plain, source, tmp_path / "work", RecordedSteps(change))


@pytest.mark.more
def test_one_new_head_is_its_files_and_a_manifest_and_other_members_may_be_none(family, tmp_path):
    asked = small.document(variants={"head": ["int8"]})
    here, there = Registry(tmp_path / "here"), Registry(tmp_path / "there")
    here.add(small.export(asked, family.source, tmp_path / "one"), "1.0.0")
    here.push("acme/crops:1.0.0", str(there.store.root))
    source = small.copy(family.source, tmp_path / "changed")
    small.save_head(source / "heads" / "bean.safetensors", small.CLASSES["bean"], seed=99)
    here.add(small.export(asked, source, tmp_path / "two"), "1.1.0")
    done = here.push("acme/crops:1.1.0", str(there.store.root))
    assert done.blobs == 3  # two graphs and the manifest
    plain = small.document(ood=None, evaluation=None, variants={"backbone": [], "head": []})
    alone = small.export(plain, family.source, tmp_path / "plain")
    heads = [f"heads/{name}-fp32.onnx" for name in small.CLASSES]
    assert [item.path for item in alone.artifacts] == [FP32, *heads]


def put_head(root: Path, name: str = "apple", **notes: Any) -> None:
    given = {"classes": small.CLASSES.get(name, ["a", "b"]), "seed": 1, **notes}
    small.save_head(root / "heads" / f"{name}.safetensors", **given)


def spoil(root: Path, name: str = "apple") -> None:
    path = root / "heads" / f"{name}.safetensors"
    with path.open("rb") as file:
        notes = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
    state = load_file(path)
    state["weight"][0, 0] = float("nan")
    save_file(state, path, notes)


def untrained(root: Path) -> None:
    weights = load_file(root / "swin" / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, root / "swin" / "model.safetensors", {"format": "pt"})


def rows_of(root: Path, file: str, **arrays: Any) -> None:
    with np.load(root / file) as found:
        np.savez(root / file, **({name: found[name] for name in found.files} | arrays))


def same_rows(root: Path) -> None:
    (root / "calibrate.npz").write_bytes((root / "fit.npz").read_bytes())


Spoil = Callable[[Path], Any]
BAD: dict[str, tuple[Spoil, dict[str, Any], str]] = {
    "a missing head": (lambda r: (r / "heads" / "apple.safetensors").unlink(), {}, "head:apple: there is no checkpoint"),
    "an orphan head": (lambda r: put_head(r, "rice"), {}, "rice.safetensors is the head of no class"),
    "a head of a class without one": (lambda r: put_head(r, "weed"), {}, "weed.safetensors is the head of no class"),
    "two heads of a class": (lambda r: np.savez(r / "heads" / "apple.npz"), {}, "apple.npz is the head of no class"),
    "permuted classes": (lambda r: None, {"heads": {"folder": "heads", "none": ["weed"], "classes": {"apple": ["scab", "healthy"]}}}, "head:apple: the classes asked for are not in the order of training"),
    "permuted species": (lambda r: None, {"backbone": {"checkpoint": "swin", "classes": small.SPECIES[::-1]}}, "backbone: the classes asked for are not in the order of training"),
    "another width": (partial(put_head, width=9), {}, "head:apple reads embeddings of width 9, the backbone gives 16"),
    "nan weights": (spoil, {}, "head:apple: weight holds NaN"),
    "a class that there is not": (lambda r: None, {"heads": {"folder": "heads", "none": ["weed", "rye"]}}, "heads.none names rye"),
    "a backbone called as a head": (lambda r: None, {"backbone": {"checkpoint": "swin", "file": "heads/apple"}}, "two files are called 'heads/apple-fp32.onnx'"),
    "a precision twice": (lambda r: None, {"variants": {"backbone": ["int8", "int8"]}}, "two files are called 'backbone-int8.onnx'"),
    "heads in a file": (lambda r: None, {"heads": {"folder": "heads", "none": ["weed"], "file": "ood.onnx"}}, "path is both a file and a directory"),
    "no checkpoint": (lambda r: None, {"backbone": {"checkpoint": "none"}}, "backbone: there is no checkpoint"),
    "no folder": (lambda r: None, {"heads": {"folder": "none"}}, "there is no folder of heads at none"),
    "a fit of few dimensions": (lambda r: np.savez(r / "fit.npz", embedding=small.of_rank(5)), {}, "ood: the covariance of the fitted embeddings is singular: rank 5 of 16"),
    "its own held-out set": (same_rows, {}, "ood: calibrate.npz shares 200 of its rows"),
    "held-out rows that were fitted on": (lambda r: rows_of(r, "held-out.npz", input=small.rows(r, "fit.npz", "input")[:60]), {}, "held-out.npz shares 60 of its rows with fit.npz"),
    "outliers that gave the threshold": (lambda r: np.savez(r / "outliers.npz", input=small.rows(r, "calibrate.npz", "input")[:60]), {}, "ood: outliers.npz shares 60 of its rows with calibrate.npz"),
    "an array that is no archive": (lambda r: (np.save(r / "x.npy", small.images(9, 1)), (r / "x.npy").rename(r / "held-out.npz")), {}, "held-out.npz is not an .npz file of plain arrays"),
    "an untrained classifier": (untrained, {}, "backbone: the checkpoint has no values for classifier.weight"),
    "rows without images": (lambda r: np.savez(r / "held-out.npz", pixels=small.images(3, 0)), {}, "held-out.npz has no array called input"),
    "preprocessing of other channels": (lambda r: None, {"preprocessing": {"mean": [0.5], "std": [0.5], "color": "L"}}, "3 channels first, not L"),
}  # fmt: skip


@pytest.mark.parametrize("what", sampled(BAD, 3))
def test_bad_input_is_refused_with_the_members_name(source, tmp_path, what):
    spoil_it, changes, message = BAD[what]
    root = small.copy(source, tmp_path / "source")
    spoil_it(root)
    with pytest.raises((InputError, NotFoundError)) as caught:
        small.export(small.document(**changes), root, tmp_path / "work")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["apple", "bean", "corn", "../weed"], "the class '../weed' is not an id"),
        (["apple", "bean", "corn", "☃"], "is not an id"),
        (["apple", "bean", "corn", "a" * 65], "is not an id"),
        (["apple", "bean", "apple", "weed"], "two of its classes have one id"),
        (["apple", "bean", "corn", 3], "the class '3' is not an id"),
        ({"0": "apple", "1": "bean", "2": "corn", "5": "weed"}, "the class 'None' is not an id"),
        (["apple", "Apple", "corn", "weed"], "heads/Apple"),
        (["corn maize", "corn (maize", "bean", "weed"], "two heads would be called head:corn-maize"),
    ],
)
def test_wrong_ids_are_refused(source, tmp_path, labels, message):
    root = small.copy(source, tmp_path / "source")
    config = root / "swin" / "config.json"
    ids = labels if isinstance(labels, dict) else {str(index): name for index, name in enumerate(labels)}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"id2label": ids}))
    for path in (root / "heads").iterdir():
        path.unlink()
    for name in ids.values():
        if str(name).isprintable() and "/" not in str(name):
            small.save_head(root / "heads" / f"{name}.safetensors", ["a", "b"], 0)
    with pytest.raises(InputError, match=re.escape(message)):
        small.export(small.document(heads={"folder": "heads"}), root, tmp_path / "work")


@pytest.mark.more
def test_names_of_people_and_of_the_document_at_opset_17(source, tmp_path):
    root = small.copy(source, tmp_path / "source")
    config = root / "swin" / "config.json"
    ids = ["apple", "bean (runner)", "corn", "weed"]
    config.write_text(json.dumps(json.loads(config.read_text()) | {"id2label": dict(enumerate(ids))}))
    (root / "heads" / "bean.safetensors").rename(root / "heads" / "bean (runner).safetensors")
    named = small.document(
        opset=17,
        variants={"backbone": [], "head": ["int8"]},
        backbone={"checkpoint": "swin", "file": "trunk", "logits": "crop", "embedding": "features"},
        heads={"folder": "heads", "none": ["weed"], "file": "diseases", "logits": "disease"},
        preprocessing={"mean": [0.5, 0.4, 0.4], "std": [0.2, 0.2, 0.2], "resize": 20},
    )
    draft = small.export(named, root, tmp_path / "work")
    family = draft.fields["model_family"]
    assert family["routing"]["bean (runner)"] == "head:bean-runner"
    assert {edge[side] for edge in family["edges"] for side in ("input", "output")} == {"features"}
    beans = [f"diseases/bean-runner-{kind}.onnx" for kind in ("fp32", "int8")]
    assert [item.path for item in draft.artifacts if "bean" in item.path] == beans
    graphs = {item.path: onnx.load(tmp_path / "work" / item.path) for item in draft.artifacts}
    assert {graph.opset_import[0].version for graph in graphs.values()} == {17}
    assert set(shapes(graphs["trunk-fp32.onnx"].graph.output)) == {"crop", "features"}
    assert set(shapes(graphs["diseases/corn-int8.onnx"].graph.output)) == {"disease"}
    size = {"size": [small.SIDE, small.SIDE], "layout": "NCHW", "color": "RGB"}
    assert draft.fields["preprocessing"].items() >= size.items()
    assert "preprocessing" not in plan_family(small.document(), source).recorded


LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "parity": ({"parity": {"int8": 1e-9}}, "backbone (int8): parity of"),
    "size": ({"size": {"head": {"int8": "100B"}}}, "head:apple (int8): size: bytes is"),
    "outliers": ({"ood_true_positive": 1.0}, "ood (float32): rejection of outliers, float32 backbone: true_positive_rate is 0"),
    "latency": ({"latency_p95": 1e-6}, "p95 is"),
}  # fmt: skip


@pytest.mark.more
@pytest.mark.parametrize("what", sampled(LIMITS, 4, pytest.mark.large))
def test_a_limit_that_does_not_hold_refuses_the_release(source, tmp_path, what):
    limits, message = LIMITS[what]
    root = small.copy(source, tmp_path / "source")
    np.savez(root / "outliers.npz", input=small.images(50, 77))
    quiet = {"latency_p95": None, "ood_true_positive": None}
    with pytest.raises(GateError, match="nothing was published") as caught:
        small.export(small.document(limits=quiet | limits), root, tmp_path / "work")
    assert message in caught.value.message


def test_an_unknown_key_is_an_error():
    for changes in ({"limit": {}}, {"limits": {"sizes": {}}}, {"family": 2}, {"family": True}, {"opset": 16}):
        with pytest.raises(RegError):
            small.document(**changes)


ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CONFIGS: dict[str, dict[str, Any]] = {
    "vit": {**ENCODER, "image_size": 16, "patch_size": 8},
    "beit": {**ENCODER, "image_size": 16, "patch_size": 8, "use_relative_position_bias": True},
    "dinov2": {**ENCODER, "image_size": 16, "patch_size": 8},
    "convnext": {"image_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2, "patch_size": 2},
}  # fmt: skip


@pytest.mark.parametrize("kind", sampled(CONFIGS, 3))
def test_a_backbone_gives_the_logits_of_the_checkpoint_and_the_embedding_behind_them(kind, tmp_path):
    config = transformers.AutoConfig.for_model(kind, num_labels=4, **CONFIGS[kind])
    torch.manual_seed(0)
    model = transformers.AutoModelForImageClassification.from_config(config).eval()
    model.save_pretrained(tmp_path / "swin")
    (tmp_path / "heads").mkdir()
    none = [f"LABEL_{index}" for index in range(4)]
    heads = {"folder": "heads", "none": none}
    plain = small.document(ood=None, evaluation=None, variants={"backbone": []}, heads=heads)
    small.export(plain, tmp_path, tmp_path / "work")
    images = small.images(3, 0)
    logits, embedding = load_session(tmp_path / "work" / FP32).run(["logits", "embedding"], {"input": images})
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).logits.numpy()
        read = model.classifier(torch.from_numpy(embedding)).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    np.testing.assert_allclose(read, expected, atol=1e-4)


def make(root: Path, work: Path, **changes: Any) -> None:
    value = {key: each for key, each in {**small.MADE_BACKBONE, **changes}.items() if each is not None}
    (root / "heads").mkdir()
    alone = {"variants": {"backbone": [], "head": []}, "heads": {"folder": "heads", "none": small.SPECIES}}
    asked = small.document(backbone=value, ood=None, evaluation=None, **alone)
    small.export_allowed(asked, root, work)


@pytest.mark.parametrize("as_tuple", [False, True])
def test_a_factory_makes_a_backbone(tmp_path, as_tuple):
    trained = small.write_factory(tmp_path)
    make(tmp_path, tmp_path / "work", arguments={"width": small.WIDTH, "as_tuple": as_tuple})
    images = small.images(3, 1)
    session = load_session(tmp_path / "work" / FP32)
    scores, features = session.run(["scores", "features"], {"input": images})
    with torch.no_grad():
        expected = trained(torch.from_numpy(images))
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    np.testing.assert_allclose(features, expected["features"], atol=1e-5)


UNFIT: dict[str, tuple[dict[str, Any], type[RegError], str]] = {
    "the wrong way round": ({"logits": "features", "embedding": "scores"}, InputError, "gives 16 logits"),
    "other classes": ({"classes": ["a", "b"]}, InputError, "gives 4 logits, and has 2 classes"),
    "a class twice": ({"classes": ["a", "a", "b", "c"]}, InputError, "two of its classes have one id"),
    "other channels": ({"input": [1, 16, 16]}, ConversionError, "does not take an input of shape"),
    "another module": ({"arguments": {"width": 8}}, InputError, "has other shapes than the module"),
    "no checkpoint": ({"checkpoint": "none.ckpt"}, NotFoundError, "there is no checkpoint file none.ckpt"),
    "no code": ({"factory": "none.py:build"}, NotFoundError, "there is no file none.py"),
    "a local path": ({"arguments": {"width": "/home/jane/x"}}, InputError, "a place on this machine"),
    "no classes": ({"classes": None, "input": None}, InputError, "a factory needs classes and input too"),
    "one name": ({"logits": "features"}, InputError, "logits and embedding have one name"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_unfit_backbones_of_a_factory_are_refused(tmp_path, case):
    small.write_factory(tmp_path)
    changes, error, message = UNFIT[case]
    with pytest.raises(error, match=message):
        make(tmp_path, tmp_path / "work", **changes)


@pytest.mark.parametrize(
    "config",
    [
        {"pretrained_cfg": {}, "architecture": "hf-hub:acme/x"},
        {"model_type": "timm_wrapper", "architecture": "hf-hub:acme/x"},
        {"pretrained_cfg": {}, "architecture": "resnet18", "model_args": {"checkpoint_path": "/home/jane/x"}},
        {
            "model_type": "detr",
            "backbone_config": {"model_type": "timm_backbone", "backbone": "hf-hub:acme/x"},
        },
    ],
)
def test_a_backbone_of_timm_reads_nothing_beyond_its_directory(config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = small.document(backbone={"checkpoint": "."}).backbone
    with pytest.raises(InputError, match="names a model of timm outside the checkpoint"):
        load_backbone(spec, tmp_path, None, Consent())


@pytest.mark.large
@pytest.mark.timeout(1800)
def test_a_full_size_swin_with_320_heads(tmp_path):
    ids = [f"species{number:03}" for number in range(320)]
    numbers = {name: index for index, name in enumerate(ids)}
    config = transformers.SwinConfig(id2label=dict(enumerate(ids)), label2id=numbers)
    torch.manual_seed(0)
    transformers.SwinForImageClassification(config).save_pretrained(tmp_path / "swin")
    (tmp_path / "heads").mkdir()
    for name, number in numbers.items():
        classes = [f"disease{index}" for index in range(5 + number % 8)]
        small.save_head(tmp_path / "heads" / f"{name}.safetensors", classes, number, width=768)
    plan = plan_family(small.document(ood=None, evaluation=None, heads={"folder": "heads"}), tmp_path)
    draft, _ = export_family(plan, tmp_path / "work")
    assert len(draft.artifacts) == 3 + 3 * 320


ROWS = 24
SUITES = {
    "backbone": {"suite": "field.npz", "item_scores": True},
    "head:bean": {"suite": "beans.npz", "metrics": [{"metric": "top_1", "limit": 1.0}], "item_scores": True},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("family")
    small.write(root)
    draw = np.random.default_rng(9)
    np.savez(root / "field.npz", input=small.images(ROWS, 11), labels=draw.integers(0, 4, ROWS))
    np.savez(root / "beans.npz", input=small.images(ROWS, 12), labels=draw.integers(0, 3, ROWS))
    return root


def document(certify: dict[str, Any]) -> Any:
    return small.document(ood=None, evaluation=None, variants={"head": ["int8"]}, certify=certify)


@pytest.fixture(scope="module")
def made(root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Draft, list[LatencyTable]]:
    return export_family(plan_family(document(SUITES), root), tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def exported(made: tuple[Draft, list[LatencyTable]]) -> Draft:
    return made[0]


def certificates(draft: Draft) -> dict[str, Any]:
    return {
        item.path: json.loads((draft.root / item.path).read_bytes())
        for item in draft.companions
        if item.role == "certificate"
    }


def test_each_reduced_precision_has_a_certificate(exported, root):
    documents = certificates(exported)
    judged = ("backbone-fp16", "backbone-int8", "heads/bean-int8")
    assert set(documents) == {f"certificates/{path}.onnx.json" for path in judged}
    head = documents["certificates/heads/bean-int8.onnx.json"]
    parent = exported.root / "heads/bean-fp32.onnx"
    assert head["parent"] == str(Digest.of(parent.read_bytes()))
    assert head["suite"] == str(Digest.of((root / "beans.npz").read_bytes()))
    (record,) = head["metrics"]
    assert (record["metric"], record["samples"]) == ("top_1", ROWS)
    states = {item.path: item.verdict.state for item in exported.artifacts}
    assert states["heads/bean-int8.onnx"] != "unknown" or head["reasons"]
    assert states["heads/corn-int8.onnx"] == "unknown"
    recorded = exported.fields["recipe"]["parameters"]["family"]["certify"]
    assert recorded["head:bean"]["suite"] == head["suite"] and "beans.npz" not in json.dumps(recorded)


def test_each_judged_file_is_timed_beside_float32(made):
    _, (_, judged) = made
    bean = ("heads/bean-int8.onnx", "heads/bean-fp32.onnx")
    assert {(*item.paths, item.parent) for item in judged.latencies} == {(HALF, FP32), (INT8, FP32), bean}
    assert all(item.ratio is not None and item.ratio.value > 0 for item in judged.latencies)


@pytest.mark.more
def test_a_head_that_lost_its_weights_is_refused(root, tmp_path, monkeypatch):
    """A head whose INT8 graph answers wrongly, judged on rows that the float32 one gets right."""
    images = small.images(200, 13)
    draft = small.export(document({}), root, tmp_path / "first")
    embeddings = load_session(draft.root / "backbone-fp32.onnx").run(["embedding"], {"input": images})[0]
    logits = load_session(draft.root / "heads/bean-fp32.onnx").run(None, {"embedding": embeddings})[0]
    np.savez(tmp_path / "right.npz", input=images, labels=logits.argmax(1))
    wrong = lambda path, *_: lambda feed: {"logits": -load_session(path).run(None, feed)[0]}
    monkeypatch.setattr(evaluate, "artifact_runner", wrong)
    request = {"head:bean": {"suite": str(tmp_path / "right.npz")}}
    refused = small.export(document(request), root, tmp_path / "second")
    states = {item.path: item.verdict.state for item in refused.artifacts}
    assert states["heads/bean-int8.onnx"] == "refused"


def test_published_scores_give_the_verdict_again(exported, tmp_path, capsys):
    registry = Registry(tmp_path / "home")
    registry.add(replace(exported, root=Path(shutil.copytree(exported.root, tmp_path / "copy"))))
    home = ["--registry", str(tmp_path / "home")]
    assert main([*home, "certificates", "acme/crops", "--recompute", "--json"]) == 0
    assert "bean-int8.onnx" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("certify", "kind", "message"),
    [
        ({"head:ben": {"suite": "beans.npz"}}, InputError, "neither the backbone nor a head"),
        ({"backbone": {"suite": "absent.npz"}}, NotFoundError, "no evaluation suite"),
        ({"backbone": {"suite": "field.npz", "metrics": [{"metric": "sts"}]}}, InputError, "sts"),
        ({"backbone": {"suite": "twice.npz"}}, InputError, "the same row was used before"),
        ({"head:bean": {"suite": "field.npz"}}, InputError, "has the class 3"),
        ({"backbone": {"suite": "field.npz", "artifacts": ["x.onnx"]}}, InputError, "x.onnx"),
    ],
)
def test_bad_suites(root, tmp_path, certify, kind, message):
    np.savez(root / "twice.npz", input=np.repeat(small.images(1, 1), 2, 0), labels=np.zeros(2, np.int64))
    with pytest.raises(kind, match=message):
        small.export(document(certify), root, tmp_path)
