"""No false alarm on the children that other programs make, in releases three back to today."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.prove import peers
from support.prove.children import verdict_of


@pytest.mark.large
@pytest.mark.parametrize("kind", peers.PACKAGES)
def test_children_of_another_program(family: dict[str, Path], kind: str, tmp_path: Path) -> None:
    packages, out = tmp_path / "packages", tmp_path / "out"
    out.mkdir()
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(packages)]
    subprocess.run([*install, *peers.PACKAGES[kind]], check=True)
    script, source = Path(peers.__file__), str(family[""])
    environment = {**os.environ, "PYTHONPATH": str(packages), "OLIVE_DISABLE_TELEMETRY": "1", "CI": "1"}
    subprocess.run([sys.executable, str(script), kind, source, str(out)], env=environment, check=True)
    children = sorted(out.glob("*.onnx"))
    assert len(children) >= 2
    for child in children:
        report = verdict_of(family[""], child)
        expected = peers.EXPECTED.get(child.stem.partition("-")[0], "proven")
        assert report.verdict == expected, (child.name, report.reasons)
