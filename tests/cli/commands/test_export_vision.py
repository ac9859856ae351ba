"""`reg export module:function`: a vision model by Orchard's section, published, pulled, or refused with nothing left."""

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxreg.converters.source.source_files import digest_file
from onnxreg.registry import Registry

Reg = Callable[..., Any]

NET = """
import torch


def build(classes: int = 10) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, classes)
    )


class Pixels(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Conv2d(1, 10, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(x).flatten(1)


class Rows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(8, 32)
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.mix(x.flatten(1, 2)))).mean(1)


class Heads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = build(6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.body(x)
        return found[:, :4], found[:, 4:]


def raises() -> torch.nn.Module:
    raise RuntimeError("no such architecture")
"""
FP32, QUANTIZED = "exports/model.onnx", "exports/model_quantized.onnx"


def weights(directory: Path, kind: str, scale: float = 0.2) -> None:
    import torch

    space: dict[str, Any] = {}
    exec(NET, space)  # noqa: S102
    torch.manual_seed(0)
    module = space[kind]()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    torch.save(module.state_dict(), directory / "best.pth")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `net.py`, weights of its `build`, and a registry to be."""
    (tmp_path / "net.py").write_text(NET, "utf-8")
    weights(tmp_path, "build")
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def export(project: Path, reg: Reg) -> Reg:
    """Export with this section, and these keys beside it."""

    def run(section: dict[str, Any], source: str = "net.py:build", **beside: Any) -> Any:
        options = {"input": [1, 8, 8], **beside.pop("options", {})}
        document = {"name": "acme/digits", "options": options, "export": section, **beside}
        (project / "orchard.yaml").write_text(json.dumps(document), "utf-8")
        words = ["export", source, "--recipe", "orchard.yaml", "--json"]
        return reg(*words, *([] if "checkpoint" in options else ["--checkpoint", "best.pth"]))

    return run


def nothing_left(project: Path) -> bool:
    home = project / "home"
    models = list(Registry(home).store.names()) if home.exists() else []
    scratch = [path for path in home.glob("local/tmp/**/*") if path.is_file() and path.suffix != ".lock"]
    return not models and not scratch


def test_an_export_into_its_run_directory_lands_in_exports(export: Reg, reg: Reg, project: Path) -> None:
    run = project / "outputs" / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "best_net.pth").write_bytes((project / "best.pth").read_bytes())
    (run / "config.yaml").write_text("kept")
    assert export({"quantize": True, "quantization_type": "uint8"}).status == 0
    words = (
        "export",
        "net.py:build",
        "--checkpoint",
        run / "checkpoints" / "best_net.pth",
        "--recipe",
        "orchard.yaml",
    )
    for _ in range(2):
        done = reg(*words, "--output", run, "--json")
        assert (done.status, done.json["output"]) == (0, str(run / "exports")), done.err
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert {FP32, QUANTIZED, "exports/openmed-onnx.json", "checkpoints/best_net.pth", "config.yaml"} <= files
    assert not any(path.startswith("exports/exports") for path in files)
    (run / "exports" / "mine.txt").write_text("kept")
    refused = reg(*words, "--output", run)
    assert refused.status == 2 and "holds mine.txt, which no earlier export wrote" in refused.err
    assert reg("pull", "acme/digits", str(project / "home"), "--output", run).status == 2


def test_twelve_fields_to_two_files(export: Reg, reg: Reg, project: Path) -> None:
    done = export(
        {"quantize": True, "quantization_type": "uint8", "opset_version": 17, "validation_samples": 4}
    )
    assert (done.status, done.err) == (0, "")
    manifest = done.json["manifest"]
    fp32, quantized = manifest["artifacts"]
    assert [fp32["path"], quantized["path"]] == [FP32, QUANTIZED]
    assert [each["metadata"]["opset"] for each in (fp32, quantized)] == [17, 17]
    assert quantized["quantization"]["measured"]["weights_quantized"] == 2
    told = manifest["recipe"]["parameters"]["recipe"]["translation"]
    assert len(told) == 12
    (check,) = [each for each in fp32["checks"] if each["metric"] == "max_abs_diff"]
    assert (check["limit"], check["verdict"]) == (1e-4, "pass")
    assert str(project) not in json.dumps(manifest)


def test_people_read_what_became_of_each_field(project: Path, reg: Reg) -> None:
    document = {"name": "acme/digits", "options": {"input": [1, 8, 8]}, "export": {}}
    (project / "orchard.yaml").write_text(json.dumps(document), "utf-8")
    shown = reg("export", "net.py:build", "--recipe", "orchard.yaml", "--checkpoint", "best.pth").out
    assert "FIELD" in shown and "BECAME" in shown
    assert re.search(r"max_deviation .*max_abs_diff: 0.0001", shown)


def test_a_pulled_version_runs_elsewhere(export: Reg, reg: Reg, project: Path, tmp_path: Path) -> None:
    import onnxruntime as ort

    assert export({"quantize": True, "quantization_type": "uint8"}).status == 0
    done = reg("--registry", "other", "pull", "acme/digits", str(project / "home"), "--output", "out")
    assert done.status == 0, done.err
    for path in (FP32, QUANTIZED):
        session = ort.InferenceSession(Path("out", path))
        (scores,) = session.run(None, {"input": np.zeros((3, 1, 8, 8), np.float32)})
        assert scores.shape == (3, 10)


def test_two_folders_one_digest(export: Reg, reg: Reg, project: Path) -> None:
    first = export({"quantize": True})
    other = project / "deep" / "another"
    other.mkdir(parents=True)
    for name in ("net.py", "best.pth", "orchard.yaml"):
        (other / name).write_bytes((project / name).read_bytes())
    words = ["--registry", "second", "export", f"{other}/net.py:build", "--recipe", f"{other}/orchard.yaml"]
    second = reg(*words, "--checkpoint", other / "best.pth", "--no-cache", "--json")
    assert second.json["digest"] == first.json["digest"]


def test_a_second_export_runs_nothing(export: Reg, reg: Reg) -> None:
    export({})
    again = reg("export", "net.py:build", "--recipe", "orchard.yaml", "--checkpoint", "best.pth")
    assert again.out.startswith("nothing new")
    assert "running" not in again.err


def test_a_factory_of_another_working_directory_is_another_request(
    reg: Reg, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {"name": "acme/digits", "options": {"input": [1, 8, 8]}, "export": {}}
    (project / "recipes").mkdir()
    (project / "recipes" / "orchard.yaml").write_text(json.dumps(document), "utf-8")
    words = ("export", "net.py:build", "--recipe", project / "recipes" / "orchard.yaml")
    words = (*words, "--checkpoint", project / "best.pth", "--json")
    other = project / "other"
    other.mkdir()
    first = reg(*words)
    (other / "net.py").write_text(NET.replace("ReLU()", "GELU()"), "utf-8")
    monkeypatch.chdir(other)
    assert reg(*words).json["version"] == "0.1.1"
    monkeypatch.chdir(project)
    assert reg(*words, "--version", "0.1.0").json["digest"] == first.json["digest"]


@pytest.mark.more
def test_the_file_has_the_opset_that_was_asked_for(export: Reg) -> None:
    for opset in (13, 17, 21, 26):
        done = export({"opset_version": opset})
        assert done.json["manifest"]["artifacts"][0]["metadata"]["opset"] == opset


def test_a_fixed_batch(export: Reg) -> None:
    manifest = export({"dynamic_axes": False, "validation_samples": 3}).json["manifest"]
    shape = manifest["artifacts"][0]["metadata"]["inputs"][0]["shape"]
    assert [dim.get("value") for dim in shape] == [1, 1, 8, 8]


@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize(("net", "count"), [("Rows", 2), ("build", 1)])
def test_four_bits_where_there_is_a_matrix(
    export: Reg, project: Path, net: str, count: int, kind: str
) -> None:
    weights(project, net)
    done = export({"quantize": True, "quantization_type": kind}, f"net.py:{net}")
    quantized = done.json["manifest"]["artifacts"][1]
    assert quantized["quantization"]["measured"]["weights_quantized"] == count
    assert quantized["format"] == "onnx-int4"


def test_four_bits_where_there_is_none(export: Reg, reg: Reg, project: Path) -> None:
    weights(project, "Pixels")
    done = export({"quantize": True, "quantization_type": "int4"}, "net.py:Pixels")
    assert (done.status, done.out) == (7, "")
    assert "quantization reached none of the weights" in done.error["message"]
    assert nothing_left(project)


def test_a_run_directory_brings_its_best_checkpoint(export: Reg, reg: Reg, project: Path) -> None:
    one = export({"quantize": True})
    (project / "run" / "checkpoints").mkdir(parents=True)
    (project / "best.pth").rename(project / "run" / "checkpoints" / "best_net.pth")
    document = json.loads((project / "orchard.yaml").read_text("utf-8"))
    document["options"]["factory"] = "net.py:build"
    (project / "orchard.yaml").write_text(json.dumps(document), "utf-8")
    refused = reg("export", "run", "--recipe", "orchard.yaml", "--json")
    assert refused.status == 2
    assert refused.error["hint"] == "read it, then pass --allow-code net.py:build"
    two = reg("export", "run", "--recipe", "orchard.yaml", "--allow-code", "net.py", "--json")
    assert two.status == 0, two.err
    files = [[each["digest"] for each in done.json["manifest"]["artifacts"]] for done in (one, two)]
    assert files[0] == files[1]
    again = reg("export", "run", "--recipe", "orchard.yaml", "--allow-code", "net.py")
    assert (again.status, again.out.startswith("nothing new")) == (0, True)
    assert reg("export", "run", "--recipe", "orchard.yaml").status == 2


def test_two_heads_are_both_held_against_the_module(export: Reg, project: Path) -> None:
    weights(project, "Heads")
    done = export({}, "net.py:Heads", options={"outputs": ["kind", "state"]})
    checks = done.json["manifest"]["artifacts"][0]["checks"]
    limited = [each["name"] for each in checks if each["metric"] == "max_abs_diff" and "limit" in each]
    assert limited == ["parity of kind", "parity of state"]


def test_labels_and_preprocessing_are_in_the_manifest(export: Reg) -> None:
    labels = [str(digit) for digit in range(10)]
    about = {"mean": [0.3], "std": [0.4], "color": "L"}
    manifest = export({}, options={"labels": labels, "preprocessing": about}).json["manifest"]
    assert manifest["labels"] == labels
    assert manifest["preprocessing"] == {**about, "size": [8, 8], "layout": "NCHW"}


def dataset(project: Path, rows: int = 12) -> None:
    """Labels that the module gets right."""
    import torch

    space: dict[str, Any] = {}
    exec(NET, space)  # noqa: S102
    module = space["build"]().eval()
    module.load_state_dict(torch.load(project / "best.pth", weights_only=True))
    drawn = np.random.default_rng(1).normal(size=(rows, 1, 8, 8)).astype(np.float32)
    with torch.no_grad():
        right = module(torch.from_numpy(drawn)).argmax(1).numpy()
    np.savez(project / "held.npz", input=drawn, labels=right)


def test_the_quantized_file_is_judged_on_a_suite(export: Reg, reg: Reg, project: Path) -> None:
    dataset(project)
    section = {"quantize": True, "quantization_type": "uint8"}
    export(section, options={"dataset": "held.npz"})
    words = (
        "net.py:build",
        "--recipe",
        "orchard.yaml",
        "--checkpoint",
        "best.pth",
        "--eval-suite",
        "held.npz",
    )
    done = reg("export", *words, "--json")
    assert done.status == 0, done.err
    states = {item["path"]: item["certification"] for item in done.json["manifest"]["artifacts"]}
    assert states[QUANTIZED]["rule"], states


def test_a_benchmark_is_on_record_and_in_no_manifest(export: Reg, reg: Reg, project: Path) -> None:
    section = {"quantize": True, "benchmark": True, "benchmark_runs": 5}
    done = export(section)
    shown = reg("show", "acme/digits", "--benchmark", "--json").json
    (found,) = shown["benchmarks"]
    assert found["runs"] == 5
    assert {"cpu", "isa", "threads", "runtime", "warm_up"} <= set(found)
    digests = {artifact["path"]: artifact["digest"] for artifact in done.json["manifest"]["artifacts"]}
    assert {each["path"]: each["artifact"] for each in found["artifacts"]} == digests
    checks = found["artifacts"][0]["checks"]
    assert [(each["name"], each["metric"]) for each in checks] == [
        (f"latency of batch {rows}", metric) for rows in (1, 8) for metric in ("median_ms", "p95_ms")
    ]
    assert all(each["value"] > 0 and each["samples"] == 5 for each in checks)
    assert "latency" not in json.dumps(done.json["manifest"])
    words = ("export", "net.py:build", "--recipe", "orchard.yaml", "--checkpoint", "best.pth", "--no-cache")
    again = reg("--registry", "second", *words, "--json")
    assert again.json["digest"] == done.json["digest"]
    assert "median_ms" in reg("show", "acme/digits", "--benchmark").out


def test_a_benchmark_travels_with_the_version(export: Reg, reg: Reg, project: Path) -> None:
    export({"benchmark": True, "benchmark_runs": 3})
    assert reg("--registry", "other", "pull", "acme/digits", str(project / "home")).status == 0
    moved = reg("--registry", "other", "show", "acme/digits", "--benchmark", "--json").json
    assert moved == reg("show", "acme/digits", "--benchmark", "--json").json
    assert moved["benchmarks"]
    assert reg("--registry", "other", "verify").status == 0


def test_a_version_is_rebuilt_from_the_same_files(export: Reg, reg: Reg) -> None:
    export({})
    words = ("rebuild", "acme/digits", "--source", "net.py:build")
    done = reg(*words, "--data", "options.checkpoint=best.pth", "--json")
    assert done.status == 0, done.err


def test_no_benchmark_is_on_record(export: Reg, reg: Reg) -> None:
    export({})
    assert reg("show", "acme/digits", "--benchmark").out == "no benchmark of acme/digits is on record\n"
    assert reg("show", "acme/digits", "--benchmark", "--json").json["benchmarks"] == []


def spoil(project: Path, how: str) -> None:
    import torch

    state = torch.load(project / "best.pth", weights_only=True)
    path = project / "best.pth"
    if how == "nan":
        state["0.weight"][0] = float("nan")
    if how == "keys":
        del state["3.bias"]
    if how == "shapes":
        state["3.bias"] = torch.zeros(3)
    torch.save(state, path)
    if how == "bomb":
        path.write_bytes(pickle.dumps({"0.weight": Path("/etc/passwd")}))
    if how == "garbage":
        path.write_bytes(b"\x00garbage" * 50)
    if how == "cut":
        path.write_bytes(path.read_bytes()[:700])
    if how == "empty":
        path.write_bytes(b"")
    if how == "absent":
        path.unlink()


@pytest.mark.parametrize(
    ("how", "status", "message"),
    [
        ("nan", 7, "the source itself gives NaN or infinity in output"),
        ("keys", 2, "best.pth is not of this module: the checkpoint has no values for 3.bias"),
        ("shapes", 2, "other shapes than the module for 3.bias"),
        ("bomb", 2, "best.pth is not a checkpoint of tensors alone"),
        ("garbage", 2, "best.pth is not a checkpoint"),
        ("cut", 2, "best.pth is not a checkpoint"),
        ("empty", 2, "best.pth is not a checkpoint"),
        ("absent", 3, "there is no checkpoint"),
    ],
)
def test_a_checkpoint_that_cannot_be_used(
    export: Reg, project: Path, how: str, status: int, message: str
) -> None:
    spoil(project, how)
    done = export({"quantize": True})
    assert (done.status, done.out) == (status, "")
    assert message in done.error["message"]
    assert nothing_left(project)


@pytest.mark.parametrize(
    ("section", "more", "status", "message"),
    [
        ({"max_deviation": 1e-12}, {}, 7, "exports/model.onnx does not meet its recipe: max_abs_diff is"),
        ({"opset_version": 25, "do_constant_folding": False}, {}, 2, "target_opset is above 23"),
        ({"opset_version": 999}, {}, 2, "opset_version"),
        ({"validation_samples": 10**9}, {}, 2, "validation_samples"),
        ({"validation_samples": 13}, {"options": {"dataset": "held.npz"}}, 2, "13 samples were asked for"),
        ({}, {"source": "net.py:raises"}, 7, "the factory net:raises raised RuntimeError at net.py:"),
        ({}, {"source": "net.py:absent"}, 2, "net.py has no function absent"),
        ({}, {"source": "absent.py:build"}, 3, "there is no file absent.py"),
        ({}, {"source": "net.py:Heads"}, 2, "best.pth is not of this module"),
        ({}, {"options": {"arguments": {"classes": "ten"}}}, 7, "the factory net:build raised TypeError"),
        ({}, {"options": {"labels": ["cat"]}}, 2, "1 classes are named"),
        ({}, {"options": {"input": [1, 9, 9]}}, 7, "does not take an input of shape [1, 9, 9]"),
    ],
)  # fmt: skip
def test_an_order_that_cannot_be_met(
    export: Reg, project: Path, section: Any, more: dict[str, Any], status: int, message: str
) -> None:
    dataset(project)
    done = export(section, **more)
    assert (done.status, done.out) == (status, "")
    assert message in done.error["message"]
    assert nothing_left(project)


def test_two_outputs_without_names(export: Reg, project: Path) -> None:
    weights(project, "Heads")
    done = export({}, "net.py:Heads")
    assert done.status == 2
    assert "2 outputs without names" in done.error["message"]
    assert nothing_left(project)


def test_an_export_of_a_factory_is_rebuilt_from_its_directory(export: Reg, reg: Reg, project: Path) -> None:
    made = export({})
    code = made.json["manifest"]["recipe"]["code"]
    assert code == {"name": "net:build", "digest": str(digest_file(project / "net.py"))}
    words = ("rebuild", "acme/digits:0.1.0", "--source", ".")
    refused = reg(*words, "--json")
    assert (refused.status, refused.error["hint"]) == (2, "read it, then pass --allow-code net.py:build")
    for name in ("net.py", "./net.py", "net.py:build", project / "net.py"):
        done = reg(*words, "--allow-code", name)
        assert done.status == 0, done.err


def test_an_export_of_a_factory_is_rebuilt_with_the_same_weights(export: Reg, reg: Reg) -> None:
    assert export({}).status == 0
    words = ("rebuild", "acme/digits:0.1.0", "--source", "net.py:build")
    needed = reg(*words)
    assert (needed.status, "--data options.checkpoint=PATH" in needed.err) == (2, True), needed.err
    done = reg(*words, "--data", "options.checkpoint=best.pth")
    assert done.status == 0, done.err
