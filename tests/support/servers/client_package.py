"""The package of examples/web-client, built and packed as its authors do; the tools come from npm, into `.cache/client-package`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from support.one_at_a_time import locked

REPOSITORY = Path(__file__).parents[3]
CLIENT = REPOSITORY / "examples" / "web-client"
TOOLS = REPOSITORY / ".cache" / "client-package"


def build(directory: Path, *words: str) -> Path:
    """Build the package, or what the words name, in a copy of its sources; returns the copy."""
    sources = [path for path in CLIENT.iterdir() if path.is_file()]
    node_modules = tools()
    copy = directory / "client"  # outside the repository: it needs nothing beside itself
    copy.mkdir(parents=True)
    for path in sources:
        shutil.copy(path, copy / path.name)
    (copy / "node_modules").symlink_to(node_modules)
    done = subprocess.run(
        ["node", "build.mjs", *words], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


def tools() -> Path:
    """The tools of the package, in its versions."""
    return installed(TOOLS, (CLIENT / "package.json").read_text("utf-8"))


def installed(directory: Path, package: str) -> Path:
    """The modules of a `package.json`, installed once into a directory. Skips the test if npm cannot install them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js with npm is not installed")
    done = directory / "installed.json"
    with locked(directory):
        if not done.is_file() or done.read_text("utf-8") != package:
            (directory / "package.json").write_text(package, "utf-8")
            install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
            if subprocess.run(
                install, cwd=directory, check=False, capture_output=True, timeout=300
            ).returncode:
                pytest.skip(f"npm cannot install {directory.name}")
            done.write_text(package, "utf-8")
    return directory / "node_modules"


def pack(built: Path) -> Path:
    """The tarball of a built package."""
    done = subprocess.run(
        ["npm", "pack", "--json", "--ignore-scripts"], cwd=built, capture_output=True, text=True, check=True
    )
    value = json.loads(done.stdout)
    (entry,) = value if isinstance(value, list) else value.values()
    return built / str(entry["filename"])


def install(tarball: Path, directory: Path) -> Path:
    """An app's directory with the package in `node_modules`."""
    target = directory / "node_modules" / "@onnxreg" / "client"
    target.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", tarball, "-C", target, "--strip-components=1"], check=True)
    return directory
