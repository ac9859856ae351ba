"""A family trained on real images, released, pulled and asked: what it gets right on rows that nobody trained on."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_family import Family

from onnxreg.cli.main import main

pytestmark = pytest.mark.large

EXAMPLES = Path(__file__).parents[2] / "examples"
SEEDED = 20
NAME = "examples/digits"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the example writes: a trained Swin, three trained heads and 20 seeded ones."""
    place = tmp_path_factory.mktemp("family") / "work"
    subprocess.run(
        [sys.executable, str(EXAMPLES / "digits_family.py"), str(place), "--seeded", str(SEEDED)],
        check=True,
        capture_output=True,
    )
    with (place / "family.yaml").open("a") as document:
        document.write("limits: {latency_p95: null}\n")
    return place


@pytest.fixture(scope="module")
def home(work: Path) -> Path:
    """A registry with the family, exported by the command line."""
    assert reg(work.parent / "home", "export", "--recipe", work / "family.yaml") == 0
    return work.parent / "home"


@pytest.fixture(scope="module")
def pulled(home: Path) -> Path:
    """The files of the family, pulled out of another registry."""
    target = home.parent / "pulled"
    assert reg(home.parent / "app", "pull", NAME, home, "--output", target) == 0
    return target


def reg(registry: Path, *words: object) -> int:
    return main(["--quiet", "--registry", str(registry), *(str(word) for word in words)])


def test_held_out_figures(pulled, capsys):
    manifest = json.loads((pulled / "openmed-onnx.json").read_text())
    found = {
        (item["path"], check["name"], check["metric"]): check
        for item in manifest["artifacts"]
        for check in item["checks"]
    }
    with capsys.disabled():
        for (path, name, metric), check in found.items():
            if "top_1" in name or "rate" in metric:
                print(f"{path:36} {name:44} {metric:20} {check['value']:8.4g} n={check['samples']}")
    for backbone in ("float32", "float16", "int8"):
        photos = found["ood.onnx", f"rejection of outliers, {backbone} backbone", "true_positive_rate"]
        digits = found["ood.onnx", f"false rejection, {backbone} backbone", "false_rejection_rate"]
        assert photos["value"] > 0.95 and digits["value"] < 0.1
    routing = manifest["model_family"]["routing"]
    assert len(routing) == SEEDED + 4 and routing["unnamed"] is None
    assert all((pulled / item["path"]).is_file() for item in manifest["artifacts"])
    states = {item["path"]: item["certification"]["state"] for item in manifest["artifacts"]}
    assert states["backbone-int8.onnx"] != "refused"
    assert (pulled / "certificates" / "heads" / "round-int8.onnx.json").is_file()


@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
def test_the_helper_answers_from_a_pulled_directory(work, pulled, precision):
    family = Family(pulled, precision)
    with np.load(work / "round.npz") as rows, np.load(work / "outliers.npz") as outliers:
        answers = [family.ask(image) for image in rows["input"][:150]]
        truth = [f"digit{(0, 6, 8, 9)[label]}" for label in rows["labels"][:150]]
        photos = [family.ask(image) for image in outliers["input"][:50]]
    assert np.mean([answer.second == digit for answer, digit in zip(answers, truth, strict=True)]) > 0.8
    assert np.mean([answer.in_distribution for answer in answers]) > 0.85
    assert np.mean([answer.in_distribution for answer in photos]) < 0.1


def test_a_head_is_loaded_when_it_is_needed(work, pulled):
    family = Family(pulled)
    assert family._head.cache_info().currsize == 0
    with np.load(work / "held-out.npz") as rows:
        for image in rows["input"][:20]:
            family.ask(image)
    assert 1 <= family._head.cache_info().currsize <= 3
    assert family._head("head:curved").get_session_options().intra_op_num_threads == 1


def test_the_script_prints_an_answer(work, pulled, tmp_path):
    with np.load(work / "held-out.npz") as rows:
        np.save(tmp_path / "image.npy", rows["input"][5])
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "run_family.py"), str(pulled), str(tmp_path / "image.npy")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["backbone", "head", "in"]
