"""Which deltas a client takes, by the vectors of docs/delta.md."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.delta.delta_format import Delta, choose_deltas

VECTORS = Path(__file__).parents[2] / "vectors"
CASES = json.loads((VECTORS / "delta" / "choose.json").read_text())["vectors"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_vector(case: dict[str, Any]) -> None:
    chosen = choose_deltas(
        [Delta.read(delta) for delta in case["deltas"]],
        {Digest.parse(file): size for file, size in case["sizes"].items()},
        frozenset(map(Digest.parse, case["present"])),
    )
    assert {str(file): str(delta.digest) for file, delta in chosen.items()} == case["chosen"]


def test_the_vectors_are_those_of_their_script() -> None:
    command = [sys.executable, str(VECTORS / "make_delta.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0, "run tests/vectors/make_delta.py"
