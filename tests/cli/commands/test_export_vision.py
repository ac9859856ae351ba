"""`reg export module:function`: a vision model by Orchard's section, published, pulled, or refused with nothing left."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.command_line import Reg
from support.tasks.saved_images import photograph

from onnxreg.converters.source.source_files import digest_file
from onnxreg.registry import Registry

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
UINT8 = {"quantize": True, "quantization_type": "uint8"}
WORDS = ("export", "net.py:build", "--recipe", "orchard.yaml", "--checkpoint")


def made(kind: str) -> Any:
    import torch

    space: dict[str, Any] = {}
    exec(NET, space)  # noqa: S102
    torch.manual_seed(0)
    return space[kind]()


def weights(directory: Path, kind: str, first: float | None = None) -> None:
    import torch

    module = made(kind)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    if first is not None:
        module[0].weight.data[0] = first
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


def test_an_export_into_its_run_directory_lands_in_exports(export, reg, project):
    run = project / "outputs" / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "best_net.pth").write_bytes((project / "best.pth").read_bytes())
    (run / "config.yaml").write_text("kept")
    assert export(UINT8).status == 0
    words = (*WORDS, run / "checkpoints" / "best_net.pth", "--output", run)
    for _ in range(2):
        done = reg(*words, "--json")
        assert (done.status, done.json["output"]) == (0, str(run / "exports")), done.err
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert {FP32, QUANTIZED, "exports/openmed-onnx.json", "checkpoints/best_net.pth", "config.yaml"} <= files
    assert not any(path.startswith("exports/exports") for path in files)
    (run / "exports" / "mine.txt").write_text("kept")
    assert reg(*words).ended(2, "holds mine.txt, which no earlier export or pull wrote")
    assert reg("pull", "acme/digits", str(project / "home"), "--output", run).status == 2


def test_twelve_fields_become_two_files_that_run_elsewhere(export, reg, project):
    import onnxruntime as ort

    done = export({**UINT8, "opset_version": 17, "validation_samples": 4})
    assert (done.status, done.err) == (0, "")
    manifest = done.json["manifest"]
    fp32, quantized = manifest["artifacts"]
    assert [(each["path"], each["metadata"]["opset"]) for each in (fp32, quantized)] == [
        (FP32, 17),
        (QUANTIZED, 17),
    ]
    assert quantized["quantization"]["measured"]["weights_quantized"] == 2
    assert len(manifest["recipe"]["parameters"]["recipe"]["translation"]) == 12
    (check,) = [each for each in fp32["checks"] if each["metric"] == "max_abs_diff"]
    assert (check["limit"], check["verdict"]) == (1e-4, "pass")
    assert str(project) not in json.dumps(manifest)
    shown = reg("--registry", "new", *WORDS, "best.pth").out
    assert "FIELD" in shown and re.search(r"max_deviation .*max_abs_diff: 0.0001", shown)
    assert reg("--registry", "other", "pull", "acme/digits", project / "home", "--output", "out").status == 0
    for path in (FP32, QUANTIZED):
        (scores,) = ort.InferenceSession(Path("out", path)).run(
            None, {"input": np.zeros((3, 1, 8, 8), np.float32)}
        )
        assert scores.shape == (3, 10)


def test_two_folders_one_digest_and_another_factory_another_request(export, reg, project, monkeypatch):
    first = export({"quantize": True})
    again = reg(*WORDS, "best.pth")
    assert again.out.startswith("nothing new") and "running" not in again.err
    other = project / "deep" / "another"
    other.mkdir(parents=True)
    for name in ("net.py", "best.pth", "orchard.yaml"):
        (other / name).write_bytes((project / name).read_bytes())
    words = ["--registry", "second", "export", f"{other}/net.py:build", "--recipe", f"{other}/orchard.yaml"]
    second = reg(*words, "--checkpoint", other / "best.pth", "--no-cache", "--json")
    assert second.json["digest"] == first.json["digest"]
    (other / "net.py").write_text(NET.replace("ReLU()", "GELU()"), "utf-8")
    monkeypatch.chdir(other)
    assert reg(*WORDS, project / "best.pth", "--json").json["version"] == "0.1.1"
    monkeypatch.chdir(project)
    assert reg(*WORDS, "best.pth", "--version", "0.1.0", "--json").json["digest"] == first.json["digest"]


@pytest.mark.more
def test_the_file_has_the_opset_that_was_asked_for(export):
    for opset in (13, 26):
        done = export({"opset_version": opset})
        assert done.json["manifest"]["artifacts"][0]["metadata"]["opset"] == opset


@pytest.mark.parametrize(("kind", "net", "count"), [("int4", "Rows", 2), ("uint4", "build", 1)])
def test_four_bits_where_there_is_a_matrix(export, project, net, count, kind):
    weights(project, net)
    done = export({"quantize": True, "quantization_type": kind}, f"net.py:{net}")
    quantized = done.json["manifest"]["artifacts"][1]
    assert (quantized["format"], quantized["quantization"]["measured"]["weights_quantized"]) == (
        "onnx-int4",
        count,
    )


def test_the_factory_that_a_recipe_names_makes_the_module_of_a_directory(export, reg, project):
    one = export({"quantize": True})
    document = json.loads((project / "orchard.yaml").read_text("utf-8"))
    document["options"]["factory"] = "net.py:build"
    (project / "orchard.yaml").write_text(json.dumps(document), "utf-8")
    words = ("export", ".", "--recipe", "orchard.yaml", "--checkpoint", "best.pth")
    leave = ("--allow-code", "net.py")
    assert reg(*words).ended(2, "hint: read it, then pass --allow-code net.py:build")
    two = reg(*words, *leave, "--json")
    assert two.status == 0, two.err
    first, second = ([each["digest"] for each in done.json["manifest"]["artifacts"]] for done in (one, two))
    assert first == second
    assert reg(*words, *leave).ended(0, "nothing new") and reg(*words).status == 2


def test_heads_labels_preprocessing_and_shape_are_in_the_manifest(export, project, reg):
    labels, about = [str(digit) for digit in range(10)], {"mean": [0.3], "std": [0.4], "color": "L"}
    fixed = {"dynamic_axes": False, "validation_samples": 3}
    manifest = export(fixed, options={"labels": labels, "preprocessing": about}).json["manifest"]
    assert manifest["labels"] == labels
    assert manifest["preprocessing"] == {**about, "size": [8, 8], "layout": "NCHW"}
    shape = manifest["artifacts"][0]["metadata"]["inputs"][0]["shape"]
    assert [dim.get("value") for dim in shape] == [1, 1, 8, 8]
    seen = reg("run", "acme/digits", "--image", photograph(project / "a.png"), "--json").json
    assert sorted(one["label"] for one in seen["classes"]) == labels  # of an output called `output`
    weights(project, "Heads")
    done = export({}, "net.py:Heads", options={"outputs": ["kind", "state"]})
    checks = done.json["manifest"]["artifacts"][0]["checks"]
    limited = [each["name"] for each in checks if each["metric"] == "max_abs_diff" and "limit" in each]
    assert limited == ["parity of kind", "parity of state"]


def dataset(project: Path) -> None:
    """Labels that the module gets right."""
    import torch

    module = made("build").eval()
    module.load_state_dict(torch.load(project / "best.pth", weights_only=True))
    drawn = np.random.default_rng(1).normal(size=(12, 1, 8, 8)).astype(np.float32)
    with torch.no_grad():
        right = module(torch.from_numpy(drawn)).argmax(1).numpy()
    np.savez(project / "held.npz", input=drawn, labels=right)


def test_the_quantized_file_is_judged_on_a_suite(export, reg, project):
    dataset(project)
    export(UINT8)
    done = reg(*WORDS, "best.pth", "--eval-suite", "held.npz", "--json")
    assert done.status == 0, done.err
    states = {item["path"]: item["certification"] for item in done.json["manifest"]["artifacts"]}
    assert states[QUANTIZED]["rule"], states


def test_a_benchmark_is_on_record_and_in_no_manifest(export, reg, project):
    show = ("show", "acme/digits", "--benchmark")
    plain = export({})
    assert reg(*show).out == "no benchmark of acme/digits is on record\n"
    done = export({"benchmark": True, "benchmark_runs": 5})
    (found,) = reg(*show, "--json").json["benchmarks"]
    assert found["runs"] == 5 and {"cpu", "isa", "threads", "runtime", "warm_up"} <= set(found)
    digests = {artifact["path"]: artifact["digest"] for artifact in done.json["manifest"]["artifacts"]}
    assert {each["path"]: each["artifact"] for each in found["artifacts"]} == digests
    checks = found["artifacts"][0]["checks"]
    names = [(f"latency of batch {rows}", metric) for rows in (1, 8) for metric in ("median_ms", "p95_ms")]
    assert [(each["name"], each["metric"]) for each in checks] == names
    assert all(each["value"] > 0 and each["samples"] == 5 for each in checks)
    assert "latency" not in json.dumps(done.json["manifest"]) and "median_ms" in reg(*show).out
    assert plain.json["manifest"]["artifacts"] == done.json["manifest"]["artifacts"]
    assert reg("--registry", "other", "pull", "acme/digits", project / "home").status == 0
    assert reg("--registry", "other", *show, "--json").json == reg(*show, "--json").json
    assert reg("--registry", "other", "verify").status == 0


@pytest.mark.parametrize(
    ("section", "more", "status", "message"),
    [
        ({}, {"nan": True}, 7, "the source itself gives NaN or infinity in output"),
        ({"quantize": True, "quantization_type": "int4"}, {"net": "Pixels"}, 7, "quantization reached none of the weights"),
        ({"max_deviation": 1e-12}, {}, 7, "exports/model.onnx does not meet its recipe: max_abs_diff is"),
        ({"opset_version": 25, "do_constant_folding": False}, {}, 2, "target_opset is above 23"),
        ({}, {"source": "net.py:raises"}, 7, "the factory net:raises raised RuntimeError at net.py:"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_an_order_that_cannot_be_met_leaves_nothing(export, project, section, more, status, message):
    more = dict(more)
    if net := more.pop("net", None):
        weights(project, net)
        more["source"] = f"net.py:{net}"
    if more.pop("nan", False):
        weights(project, "build", float("nan"))
    done = export(section, **more)
    assert (done.status, done.out) == (status, "")
    assert message in done.error["message"] and nothing_left(project)


def test_an_export_of_a_factory_is_rebuilt_from_its_files(export, reg, project):
    made = export({})
    code = made.json["manifest"]["recipe"]["code"]
    assert code == {"name": "net:build", "digest": str(digest_file(project / "net.py"))}
    words = ("rebuild", "acme/digits:0.1.0", "--source")
    assert reg(*words, ".").ended(2, "hint: read it, then pass --allow-code net.py:build")
    for name in ("net.py", "./net.py", "net.py:build", project / "net.py"):
        assert reg(*words, ".", "--allow-code", name).status == 0
    assert reg(*words, "net.py:build").ended(2, "--data options.checkpoint=PATH")
    assert reg(*words, "net.py:build", "--data", "options.checkpoint=best.pth").status == 0
