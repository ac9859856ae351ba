"""A package of somebody else's, as docs/passes.md and docs/recipes.md tell how to write one: built, installed and used."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.sampling import sampled

DOCS = Path(__file__).parents[2] / "docs"
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "my-package"
version = "1.0"

[tool.setuptools]
packages = ["my_package"]
package-data = {{my_package = ["*.yaml"]}}

{entries}
"""
PROFILE = "profile_version: 1\ntask: onnx\nsteps:\n  - {name: plain, pass: DropNames}\noutputs:\n  - {step: plain, path: model.onnx}\n"
MODEL = """<ir_version: 8, opset_import: ["" : 18]>
net (float[n, 2] x) => (float[n, 2] y) <float[2, 2] w = {1.0, 2.0, 3.0, 4.0}> { y = MatMul(x, w) }"""


def block(page: str, kind: str, holds: str) -> str:
    """The one block of code of a page that holds a text."""
    found = re.findall(rf"```{kind}\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    (text,) = (each for each in found if holds in each)
    return str(text)


def write_package(root: Path) -> None:
    package = root / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "watch.yaml").write_text(PROFILE)
    (package / "passes.py").write_text(block("passes.md", "python", "class DropNames"))
    (package / "profiles.py").write_text(block("recipes.md", "python", "WATCH ="))
    entries = block("recipes.md", "toml", "onnxreg.profiles")
    assert block("passes.md", "toml", "onnxreg.passes").strip() in entries
    (root / "pyproject.toml").write_text(PROJECT.format(entries=entries))
    (root / "tests").mkdir()
    (root / "tests" / "test_passes.py").write_text(block("passes.md", "python", "PassContract"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package's own directory, `package`, and `site`, which it was installed into."""
    directory = tmp_path_factory.mktemp("installed")
    write_package(directory / "package")
    words = "install --quiet --no-deps --no-index --no-build-isolation --target site ./package"
    subprocess.run([sys.executable, "-m", "pip", *words.split()], check=True, cwd=directory)
    return directory


@pytest.fixture
def package(installed: Path, tmp_path: Path, environment: dict[str, str]) -> Path:
    """The package's own directory; what it was installed into is where `reg` looks. Both are the test's own."""
    shutil.copytree(installed, tmp_path, dirs_exist_ok=True)
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    return tmp_path / "package"


@pytest.mark.more
def test_its_pass_and_its_profile_are_listed_and_run(reg, package, tmp_path):
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "m.onnx")
    passes = {each["name"]: each for each in json.loads(reg("builtin", "passes", "--json").stdout)["passes"]}
    assert passes["DropNames"]["package"] == "my_package"
    assert passes["DropNames"]["parameters"]["properties"]["keep"]["type"] == "array"
    assert "watch" in reg("builtin", "profiles").stdout
    done = reg("export", "m.onnx", "--profile", "watch", "--name", "acme/x", "--json")
    recipe = json.loads(done.stdout)["manifest"]["recipe"]
    assert (recipe["profile"], recipe["steps"][0]["pass"]) == ("watch", "DropNames")


NAME_CHANGED, BYTES_CHANGED = (
    "test_the_result_is_proven_and_recorded",
    "test_the_same_input_gives_the_same_bytes",
)
BREAKS = {
    "nothing": ("pass", ""),
    "an output with another name": ("subject.graph.output[0].name = 'z'", NAME_CHANGED),
    "other bytes each time": ("subject.producer_name = str(id(subject))", BYTES_CHANGED),
    "a file in the working directory": ("open('left', 'w').close()", BYTES_CHANGED),
}


@pytest.mark.more
@pytest.mark.parametrize("kind", sampled(BREAKS, 2, pytest.mark.large))
def test_a_pass_that_breaks_the_contracts_is_found(package, environment, tmp_path, kind):
    change, found = BREAKS[kind]
    code = tmp_path / "site" / "my_package" / "passes.py"
    end = "        return subject"
    code.write_text(code.read_text().replace(end, f"        {change}\n{end}"))
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(package)]
    command = [sys.executable, "-m", "pytest", *options, str(package)]
    pipes: Any = {"capture_output": True, "text": True}
    done = subprocess.run(command, check=False, cwd=package / "tests", env=environment, **pipes)
    if found:
        assert (done.returncode, f"::{found}" in done.stdout) == (1, True), done.stdout
    else:
        assert done.returncode == 0 and int(done.stdout.split()[-4]) >= 6, done.stdout
