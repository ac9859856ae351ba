"""A family from its files to a draft: the contract of every graph, the layout that servers read, limits, and bad input."""

import json
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.families import small
from support.sampling import sampled

from onnxreg.converters.families import build_members, family_files, rows
from onnxreg.converters.families import export_family as export
from onnxreg.converters.families.backbone import export_backbone
from onnxreg.converters.families.family_files import check_paths
from onnxreg.converters.families.head_graphs import MASKED
from onnxreg.converters.families.rows import outputs_of
from onnxreg.converters.passes.tools.samples import digest
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.registry import Registry
from onnxreg.schema.core.errors import GateError, InputError, NotFoundError, RegError
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.family import ModelFamily
from onnxreg.schema.manifest.manifest import Manifest

FP32, HALF, INT8 = "swin-species-fp32.onnx", "swin-species.onnx", "swin-species-int8.onnx"


@dataclass(frozen=True)
class Family:
    """The files that a family is made of, and what was made of them."""

    source: Path
    workspace: Path
    draft: Draft

    @property
    def model_family(self) -> ModelFamily:
        return ModelFamily.from_json(self.draft.fields["model_family"])

    def checks(self, path: str, metric: str) -> list[dict[str, Any]]:
        (artifact,) = (item for item in self.draft.artifacts if item.path == path)
        return [check for check in artifact.fields["checks"] if check["metric"] == metric]


@pytest.fixture(scope="module", autouse=True)
def traced_once() -> Iterator[None]:
    """The same weights are traced once for all tests."""
    done: dict[tuple[Any, ...], tuple[onnx.ModelProto, Any]] = {}

    def export_once(subject: TorchModel, opset: int) -> tuple[onnx.ModelProto, Any]:
        weights = (tensor.numpy().tobytes() for tensor in subject.module.state_dict().values())
        key = (opset, str(subject.module), *weights)
        if key not in done:
            done[key] = export_backbone(subject, opset)
        graph, step = done[key]
        copied = onnx.ModelProto()
        copied.CopyFrom(graph)
        return copied, step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_members, "export_backbone", export_once)
        yield


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("source")
    small.write(root)
    return root


@pytest.fixture(scope="module")
def family(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Family:
    workspace = tmp_path_factory.mktemp("workspace")
    return Family(source, workspace, small.export(small.document(), source, workspace))


def test_the_layout_is_what_servers_read(family: Family) -> None:
    found = {
        str(path.relative_to(family.workspace)) for path in family.workspace.rglob("*") if path.is_file()
    }
    heads = {
        f"disease-heads/{name}-{kind}.onnx" for name in small.CLASSES for kind in ("fp32", "fp16", "int8")
    }
    fused = {"disease-heads-fp32.onnx", "disease-heads-int8.onnx"}
    others = {"ood.onnx", "ood.safetensors", family_files.LIST, family_files.METADATA}
    assert found == {FP32, HALF, INT8} | heads | fused | others
    listed = json.loads((family.workspace / family_files.LIST).read_text())
    assert listed == {
        "apple": "disease-heads/apple-int8.onnx",
        "bean": "disease-heads/bean-int8.onnx",
        "corn": "disease-heads/corn-int8.onnx",
        "weed": None,
    }


def shapes(values: Any) -> dict[str, list[str | int]]:
    return {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in values
    }


def test_every_graph_keeps_the_contract(family: Family) -> None:
    for item in family.draft.artifacts:
        graph = onnx.load(family.workspace / item.path)
        onnx.checker.check_model(graph, full_check=True)
        assert {entry.version for entry in graph.opset_import if entry.domain == ""} == {18}
        inputs, outputs = shapes(graph.graph.input), shapes(graph.graph.output)
        assert {dims[0] for dims in (*inputs.values(), *outputs.values())} == {"batch_size"}
        if item.path.startswith("swin"):
            assert inputs == {"input": ["batch_size", 3, 16, 16]}
            assert outputs == {"species_logits": ["batch_size", 4], "embedding": ["batch_size", small.WIDTH]}
        else:
            assert inputs["embedding"] == ["batch_size", small.WIDTH]
        if item.path.startswith("disease-heads/"):
            classes = small.CLASSES[Path(item.path).stem.partition("-")[0]]
            assert outputs == {"disease_logits": ["batch_size", len(classes)]}


def test_the_metadata_says_what_the_graphs_say(family: Family) -> None:
    value = json.loads((family.workspace / family_files.METADATA).read_text())
    assert value["members"]["backbone"]["outputs"]["embedding"]["shape"] == ["batch_size", small.WIDTH]
    assert value["members"]["backbone"]["files"] == {"float32": FP32, "float16": HALF, "int8": INT8}
    assert value["members"]["head:bean"]["classes"] == small.CLASSES["bean"]
    assert value["members"]["fused"]["heads"] == ["head:apple", "head:bean", "head:corn"]
    assert value["routing"]["weed"] is None
    assert set(value["versions"]) == {"onnx", "onnxruntime", "torch", "transformers"}
    ood = value["ood"]
    assert (ood["rows"], ood["distinct_rows"], ood["held_out"]) == (200, 200, 100)
    assert (ood["dimension"], ood["rank"], ood["percentile"]) == (small.WIDTH, small.WIDTH - 1, 95.0)
    assert 1 < ood["condition"] < 1e12
    for key, file in (("dataset", "fit.npz"), ("held_out_dataset", "calibrate.npz")):
        assert ood[key] == str(digest([{"input": small.rows(family.source, file, "input")}]))


def test_the_fused_graph_answers_as_the_separate_files(family: Family) -> None:
    rows = np.random.default_rng(9).normal(size=(6, small.WIDTH)).astype(np.float32)
    index = np.array([0, 1, 2, 2, 1, 0])
    fused = load_session(family.workspace / "disease-heads-fp32.onnx")
    (got,) = fused.run(None, {"embedding": rows, "head": index})
    for row, (place, classes) in enumerate(
        (number, list(small.CLASSES.values())[number]) for number in index
    ):
        name = list(small.CLASSES)[place]
        head = load_session(family.workspace / f"disease-heads/{name}-fp32.onnx")
        (expected,) = head.run(None, {"embedding": rows[row : row + 1]})
        assert np.abs(got[row, : len(classes)] - expected[0]).max() < 1e-5
        assert (got[row, len(classes) :] == np.float32(MASKED)).all()


def test_every_claim_is_a_check(family: Family) -> None:
    for item in family.draft.artifacts:
        names = {check["name"] for check in item.fields["checks"]}
        assert {"load", "size"} <= names
        assert any(name.startswith("parity of") for name in names)
    assert family.checks(FP32, "accuracy")[0]["samples"] == 60
    assert {check["metric"] for path in (HALF, INT8) for check in family.checks(path, "mcnemar_p")}
    outliers = family.checks("ood.onnx", "true_positive_rate")
    assert [(check["name"], check["samples"], check["limit"]) for check in outliers] == [
        ("rejection of outliers", 50, 0.9)
    ]
    calibration, *rejections = family.checks("ood.onnx", "false_rejection_rate")
    independent = rejections[0]
    assert [check["name"] for check in rejections] == [
        f"false rejection, {precision} backbone" for precision in ("float32", "float16", "int8")
    ]
    assert calibration["dataset"] not in (None, independent["dataset"])
    assert calibration["interval"][0] <= calibration["value"] <= calibration["interval"][1]
    assert independent["dataset"] == family.checks(FP32, "accuracy")[0]["dataset"]


def test_rates_of_rejection_are_those_of_the_written_graph(family: Family) -> None:
    detector = load_session(family.workspace / "ood.onnx")
    backbone = load_session(family.workspace / FP32)
    calibration, independent, *_ = family.checks("ood.onnx", "false_rejection_rate")
    record = json.loads((family.workspace / family_files.METADATA).read_text())["ood"]
    for file, check in (("calibrate.npz", calibration), ("held-out.npz", independent)):
        (embeddings,) = backbone.run(["embedding"], {"input": small.rows(family.source, file, "input")})
        (inside,) = detector.run(["in_distribution"], {"embedding": embeddings})
        assert check["value"] == pytest.approx((~inside).mean(), abs=1 / len(inside))
    assert record["false_rejection"] == pytest.approx(calibration["value"], abs=1e-6)
    (parity,) = family.checks("ood.onnx", "agreement")
    assert parity["name"] == "parity of in_distribution"
    assert 0.9 < parity["value"] <= 1


def test_the_draft_becomes_a_manifest_without_a_time_or_a_path(family: Family, tmp_path: Path) -> None:
    registry = Registry(tmp_path / "home")
    published = registry.add(small.export(small.document(), family.source, tmp_path / "work"), "1.0.0")
    read = Manifest.decode(published.data).model_family
    assert read is not None
    assert read.routing == {"apple": "head:apple", "bean": "head:bean", "corn": "head:corn", "weed": None}
    assert str(tmp_path).encode() not in published.data
    assert b"latency_ms" not in published.data
    assert b"p50" not in published.data


def test_each_row_goes_through_each_backbone_once(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: Counter[tuple[str, str]] = Counter()

    def counting(session: Any, rows: Any) -> Any:
        (graph,) = (path for path in (FP32, HALF, INT8) if session is sessions[path])
        seen.update((graph, row.tobytes().hex()) for row in rows)
        return outputs_of(session, rows)

    sessions: dict[str, Any] = {}

    def loading(path: Path) -> Any:
        return sessions.setdefault(path.name, load_session(path))

    monkeypatch.setattr(rows, "outputs_of", counting)
    monkeypatch.setattr(export, "load_session", loading)
    small.export(small.document(), family.source, tmp_path)
    assert set(seen.values()) == {1}
    assert Counter(graph for graph, _ in seen) == {FP32: 200 + 100 + 60, HALF: 60, INT8: 60}


def test_the_same_files_give_the_same_bytes(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_members, "export_backbone", export_backbone)
    source = small.copy(family.source, tmp_path / "elsewhere")
    again = small.export(small.document(), source, tmp_path / "work")
    assert again.fields == family.draft.fields
    for path in again.paths():
        assert (tmp_path / "work" / path).read_bytes() == (family.workspace / path).read_bytes(), path


@pytest.mark.parametrize("changed", ["calibrate.npz", "heads/bean.safetensors"])
def test_files_that_change_meanwhile_make_no_family(family: Family, tmp_path: Path, changed: str) -> None:
    source = small.copy(family.source, tmp_path / "source")

    class Change(Progress):
        def step(self, label: str) -> None:
            if label == "describing what was made":
                small.save_head(source / "heads" / "bean.safetensors", small.CLASSES["bean"], seed=99)
                np.savez(source / "calibrate.npz", input=small.images(100, 99))
                for path in {"calibrate.npz", "heads/bean.safetensors"} - {changed}:
                    (source / path).write_bytes((family.source / path).read_bytes())

    plain = small.document(variants={"head": [], "backbone": []})
    with pytest.raises(InputError, match="was changed while it was read"):
        small.export(plain, source, tmp_path / "work", Change())


def test_one_new_head_is_its_files_and_a_manifest(family: Family, tmp_path: Path) -> None:
    """Without a fused graph, which is made of every head."""
    asked = small.document(variants={"head": ["int8"]})
    here, there = Registry(tmp_path / "here"), Registry(tmp_path / "there")
    here.add(small.export(asked, family.source, tmp_path / "one"), "1.0.0")
    here.push("acme/crops:1.0.0", str(there.store.root))
    source = small.copy(family.source, tmp_path / "changed")
    small.save_head(source / "heads" / "bean.safetensors", small.CLASSES["bean"], seed=99)
    here.add(small.export(asked, source, tmp_path / "two"), "1.1.0")
    done = here.push("acme/crops:1.1.0", str(there.store.root))
    sent = {item.path for item in here.get("acme/crops:1.1.0").manifest.artifacts} & {
        f"disease-heads/bean-{kind}.onnx" for kind in ("fp32", "int8")
    }
    assert done.blobs == len(sent) + 1 == 3


def test_a_detector_alone_or_none(family: Family, tmp_path: Path) -> None:
    plain = small.document(ood=None, evaluation=None, variants={"backbone": [], "head": []})
    draft = small.export(plain, family.source, tmp_path)
    assert [item.path for item in draft.artifacts] == [
        *(f"disease-heads/{name}-fp32.onnx" for name in small.CLASSES),
        FP32,
    ]


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


def pickled(root: Path, suffix: str) -> None:
    (root / "heads" / "apple.safetensors").unlink()
    (root / "heads" / f"apple.{suffix}").write_bytes(pickle.dumps({"weight": torch.zeros(2, 2)}))


def rows_of(root: Path, file: str, **arrays: Any) -> None:
    with np.load(root / file) as found:
        np.savez(root / file, **({name: found[name] for name in found.files} | arrays))


def same_rows(root: Path) -> None:
    (root / "calibrate.npz").write_bytes((root / "fit.npz").read_bytes())


Spoil = Callable[[Path], Any]
BAD: dict[str, tuple[Spoil, dict[str, Any], str]] = {
    "a missing head": (
        lambda r: (r / "heads" / "apple.safetensors").unlink(),
        {},
        "head:apple: there is no checkpoint",
    ),
    "an orphan head": (lambda r: put_head(r, "rice"), {}, "head:rice would be an orphan"),
    "a head of a class without one": (lambda r: put_head(r, "weed"), {}, "head:weed would be an orphan"),
    "two heads of a class": (
        lambda r: np.savez(r / "heads" / "apple.npz"),
        {},
        "head:apple has two checkpoints",
    ),
    "permuted classes": (
        lambda r: None,
        {"heads": {"folder": "heads", "none": ["weed"], "classes": {"apple": ["scab", "healthy"]}}},
        "head:apple: the classes asked for are not in the order of training",
    ),
    "permuted species": (
        lambda r: None,
        {"backbone": {"checkpoint": "swin", "classes": small.SPECIES[::-1]}},
        "backbone: the classes asked for are not in the order of training",
    ),
    "another width": (
        partial(put_head, width=9),
        {},
        "head:apple reads embeddings of width 9, the backbone gives 16",
    ),
    "a class without rows": (
        partial(put_head, rows=[3, 0]),
        {},
        "head:apple: the class scab has no training rows",
    ),
    "nan weights": (spoil, {}, "head:apple: weight holds NaN"),
    "a pickle": (partial(pickled, suffix="pkl"), {}, "head:apple: apple.pkl must end in one of"),
    "a pickle called pth": (
        partial(pickled, suffix="pth"),
        {},
        "head:apple: apple.pth holds more than tensors",
    ),
    "a pickle called npz": (
        partial(pickled, suffix="npz"),
        {},
        "head:apple: apple.npz is not an .npz file of plain arrays",
    ),
    "a class that there is not": (
        lambda r: None,
        {"heads": {"folder": "heads", "none": ["weed", "rye"]}},
        "heads.none names rye",
    ),
    "a backbone called as a head": (
        lambda r: None,
        {"backbone": {"checkpoint": "swin", "file": "disease-heads/apple"}},
        "backbone and head:apple: two files are called",
    ),
    "a backbone called as the detector": (
        lambda r: None,
        {"backbone": {"checkpoint": "swin", "file": "ood"}},
        "backbone and ood: two files are called",
    ),
    "a precision twice": (
        lambda r: None,
        {"variants": {"backbone": ["int8", "int8"]}},
        "backbone: two files are called",
    ),
    "heads in a file": (
        lambda r: None,
        {"heads": {"folder": "heads", "none": ["weed"], "file": "onnx-metadata.json"}},
        "layout and head:apple: path is both a file and a directory",
    ),
    "no checkpoint": (
        lambda r: None,
        {"backbone": {"checkpoint": "none"}},
        "backbone: there is no checkpoint",
    ),
    "no folder": (lambda r: None, {"heads": {"folder": "none"}}, "there is no folder of heads at none"),
    "a fit of few dimensions": (
        lambda r: np.savez(r / "fit.npz", embedding=small.of_rank(5)),
        {},
        "ood: the covariance of the fitted embeddings is singular: rank 5 of 16",
    ),
    "its own held-out set": (same_rows, {}, "ood: calibrate.npz and fit.npz are one set, sha256:"),
    "held-out rows that were fitted on": (
        lambda r: rows_of(r, "held-out.npz", input=small.rows(r, "fit.npz", "input")[:60]),
        {},
        "held-out.npz shares 60 of its 60 rows with fit.npz",
    ),
    "outliers that gave the threshold": (
        lambda r: np.savez(r / "outliers.npz", input=small.rows(r, "calibrate.npz", "input")[:60]),
        {},
        "ood: outliers.npz shares 60 of its 60 rows with calibrate.npz",
    ),
    "a disease that was not trained": (
        lambda r: rows_of(r, "held-out.npz", **{"head:bean": np.array(["mildew"] * 60)}),
        {},
        "head:bean: a held-out row has the class 'mildew'",
    ),
    "held-out rows of a head that there is not": (
        lambda r: rows_of(r, "held-out.npz", **{"head:aple": np.array(["scab"] * 60)}),
        {},
        "the held-out array head:aple belongs to no head",
    ),
    "held-out rows of a class without a head": (
        lambda r: rows_of(r, "held-out.npz", **{"head:weed": np.array(["tall"] * 60)}),
        {},
        "the held-out array head:weed belongs to no head",
    ),
    "species in two axes": (
        lambda r: rows_of(r, "held-out.npz", species=np.array([["apple"]] * 60)),
        {},
        "backbone: the held-out array species is not an array of class ids",
    ),
    "an array that is no archive": (
        lambda r: (np.save(r / "x.npy", small.images(9, 1)), (r / "x.npy").rename(r / "held-out.npz")),
        {},
        "held-out.npz is not an .npz file of plain arrays",
    ),
    "nothing to fuse": (
        lambda r: [path.unlink() for path in (r / "heads").iterdir()],
        {"heads": {"folder": "heads", "none": small.SPECIES}, "evaluation": None, "ood": None},
        "fused: there is no head to stack",
    ),
    "held-out rows without truth": (
        lambda r: np.savez(r / "held-out.npz", input=small.images(3, 0)),
        {},
        r"held-out.npz has no array called species",
    ),
}


@pytest.mark.parametrize("what", sampled(BAD, 3))
def test_bad_input_is_refused_with_the_members_name(source: Path, tmp_path: Path, what: str) -> None:
    spoil_it, changes, message = BAD[what]
    root = small.copy(source, tmp_path / "source")
    spoil_it(root)
    with pytest.raises((InputError, NotFoundError)) as caught:
        small.export(small.document(**changes), root, tmp_path / "work")
    assert message in caught.value.message


def test_ids_that_differ_in_case_alone_share_no_file() -> None:
    with pytest.raises(InputError, match="head:apple and head:Apple: paths collide"):
        check_paths(small.document(), ["apple", "Apple"])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["apple", "bean", "corn", "../weed"], "the class '../weed' is not an id"),
        (["apple", "bean", "apple", "weed"], "two of its classes have one id"),
    ],
)
def test_wrong_ids_are_refused(source: Path, tmp_path: Path, ids: list[str], message: str) -> None:
    root = small.copy(source, tmp_path / "source")
    config = root / "swin" / "config.json"
    value = json.loads(config.read_text())
    value["id2label"] = {str(index): name for index, name in enumerate(ids)}
    config.write_text(json.dumps(value))
    with pytest.raises(InputError) as caught:
        small.export(small.document(), root, tmp_path / "work")
    assert caught.value.message == f"backbone: {message}"


@pytest.mark.parametrize(
    "labels", [{"0": "apple", "1": "bean", "2": "corn", "5": "weed"}, {"0": 1, "1": 2, "2": 3, "3": 4}]
)
def test_labels_that_are_no_list_of_texts_are_refused(
    source: Path, tmp_path: Path, labels: dict[str, Any]
) -> None:
    root = small.copy(source, tmp_path / "source")
    config = root / "swin" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"id2label": labels}))
    with pytest.raises(InputError, match=r"backbone: id2label of its config\.json has no text for"):
        small.export(small.document(), root, tmp_path / "work")


def test_an_untrained_classifier_is_refused(source: Path, tmp_path: Path) -> None:
    root = small.copy(source, tmp_path / "source")
    weights = load_file(root / "swin" / "model.safetensors")
    del weights["classifier.weight"]
    save_file(weights, root / "swin" / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"backbone: the checkpoint has no values for classifier\.weight"):
        small.export(small.document(), root, tmp_path / "work")


LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "parity": ({"parity": {"int8": 1e-9}}, "backbone (int8): parity of"),
    "size": ({"size": {"head": {"int8": "100B"}}}, "head:apple (int8): size: bytes is"),
    "outliers": (
        {"ood_true_positive": 1.0},
        "ood (float32): rejection of outliers, float32 backbone: true_positive_rate is 0",
    ),
    "latency": ({"latency_p95": 1e-6}, "p95 is"),
}


@pytest.mark.parametrize("what", sampled(LIMITS, 4))
def test_a_limit_that_does_not_hold_refuses_the_release(source: Path, tmp_path: Path, what: str) -> None:
    limits, message = LIMITS[what]
    root = small.copy(source, tmp_path / "source")
    np.savez(root / "outliers.npz", input=small.images(50, 77))
    quiet = {"accuracy_loss": None, "latency_p95": None, "ood_true_positive": None}
    with pytest.raises(GateError, match="nothing was published") as caught:
        small.export(small.document(limits=quiet | limits), root, tmp_path / "work")
    assert message in caught.value.message


def test_an_unknown_key_is_an_error() -> None:
    for changes in ({"limit": {}}, {"limits": {"sizes": {}}}, {"family": 2}, {"family": True}, {"opset": 16}):
        with pytest.raises(RegError):
            small.document(**changes)
