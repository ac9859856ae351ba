"""Profiles that other packages bring: their promises hold, and what they consist of is part of the keys."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from onnxreg.converters.engine.read_recipe import read_recipe
from onnxreg.converters.profiles.profile_catalog import find

Reg = Callable[..., Any]
GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 3] x) => (float[batch, 3] y) { y = Relu(x) }"""
DOCUMENT = "task: onnx\nsteps: [{name: v, pass: OnnxOpVersionConversion, params: {target_opset: 19}}]\n"
VISION = """
task: image-classification
options: {input: [1, 2, 2]}
steps: [{name: fp32, pass: OnnxConversion}]
"""
MODULE = """
from pathlib import Path
from onnxreg.converters.profiles.profile_catalog import Profile
from onnxreg.schema.core.errors import ConversionError
class Broken(Profile):
    def check(self, output, subject):
        raise ConversionError(f"{output.path} breaks what the watch promises")
DOCUMENT = Path(__file__).with_name("watch.yaml")
PLAIN = Profile(DOCUMENT)
STRICT = Broken(DOCUMENT)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site directory of a package with the profiles `plain` and `strict`; a graph lies in the working directory."""
    onnx.save(onnx.parser.parse_model(GRAPH), "m.onnx")
    site = tmp_path / "site"
    (site / "watchpkg-1.0.dist-info").mkdir(parents=True)
    (site / "watch.yaml").write_text(DOCUMENT)
    (site / "watchpkg.py").write_text(MODULE)
    entries = "[onnxreg.profiles]\nplain = watchpkg:PLAIN\nstrict = watchpkg:STRICT\n"
    (site / "watchpkg-1.0.dist-info" / "entry_points.txt").write_text(entries)
    install(site, "1.0")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "watchpkg", raising=False)
    return site


def install(site: Path, version: str) -> None:
    """Give the package a version, as installers do: in a folder with the version in its name."""
    about = f"Metadata-Version: 2.1\nName: watchpkg\nVersion: {version}\n"
    (folder,) = site.glob("watchpkg-*.dist-info")
    folder = folder.rename(site / f"watchpkg-{version}.dist-info")
    (folder / "METADATA").write_text(about)


def export(reg: Reg, profile: str, *more: str) -> Any:
    return reg("--registry", "r", "export", "m.onnx", "--profile", profile, "--name", "acme/x", *more)


def test_its_promises_hold(reg: Reg, package: Path) -> None:
    done = export(reg, "strict")
    assert (done.status, "breaks what the watch promises" in done.err) == (7, True), done.err


def test_it_is_recorded_by_its_name(reg: Reg, package: Path) -> None:
    assert export(reg, "plain", "--json").json["manifest"]["recipe"]["profile"] == "plain"


def test_an_option_that_is_a_path_is_for_its_task_to_judge(reg: Reg, package: Path) -> None:
    (package / "watch.yaml").write_text(VISION)
    Path("net.py").write_text("import torch\ndef build():\n    return torch.nn.Flatten()\n")
    words = ("export", "net.py:build", "--profile", "plain", "--checkpoint", "best.pth", "--name", "acme/x")
    done = reg("--registry", "r", *words)
    assert (done.status, "best.pth" in done.err) == (3, True), done.err


def test_an_option_of_another_profile_is_refused_by_its_name(reg: Reg, package: Path) -> None:
    done = export(reg, "plain", "--opset", "18")
    assert (
        done.status == 2
        and "--opset is not an option of the profile plain\nhint: it has --checkpoint," in done.err
    )


@pytest.mark.parametrize("change", ["document", "version"])
def test_another_document_or_version_is_another_export(reg: Reg, package: Path, change: str) -> None:
    assert export(reg, "plain").status == 0
    assert "running v" not in export(reg, "plain").err
    if change == "document":
        (package / "watch.yaml").write_text(DOCUMENT.replace("19", "20"))
    else:
        install(package, "1.1")
    told = "acme/x:0.1.1" if change == "document" else "describing what was made"
    done = export(reg, "plain")
    assert told in done.out + done.err, done.err


def test_the_output_of_show_is_a_recipe(reg: Reg, tmp_path: Path) -> None:
    shown = reg("builtin", "profiles", "android").out
    assert "# OPTION          TYPE         DEFAULT\n# max_seq_length  integer > 0  512\n" in shown
    (tmp_path / "mine.yaml").write_text(shown)
    mine, android = read_recipe(tmp_path / "mine.yaml"), find("android").recipe()
    assert (mine.profile, android.profile) == ("recipe", "android")
    assert mine.steps == android.steps
