"""What several directories of tests share: tiny checkpoints, and the wheel as its users get it."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]
MAKERS = REPOSITORY / "tests" / "converters" / "conftest.py"
CODE = ("cli", "converters", "registry", "schema")


def _fixture(path: Path, name: str) -> Any:
    """A fixture that the tests of one directory define, for all the others."""
    spec = importlib.util.spec_from_file_location(f"shared_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


make_checkpoint = _fixture(MAKERS, "make_checkpoint")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel. Building in a copy keeps an old build/ out of it, and a new one out of the checkout."""
    root = tmp_path_factory.mktemp("wheel")
    for directory in CODE:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / directory, root / "source" / directory, ignore=ignored)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / file, root / "source")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        root,
        root / "source",
    ]
    subprocess.run(command, check=True)
    (built,) = root.glob("*.whl")
    return built
